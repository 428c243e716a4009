"""The event loop of the simulator, over one flat array.

Everything the simulation knows lies in one int64 array `m`: a header, tables that do not change (nodes,
phases, groups), the state of every rank, and records that come and go (events, messages, streams). A record
is named by its offset in `m`. Nothing moves: when `m` runs full, a longer copy takes its place. So the
functions pass one array and a few numbers, which is what makes the compiled loop fast, and the same source
runs interpreted over a plain list. `f` holds the few real numbers.

`layout` says what lies where. Each of the other modules uses those before it alone: `clock`, `order`, `routes`,
`links`, `messages`, `bus`, `packets`, `phases`, `queues`, `nodes`, `arrivals`, `loop`. Compiled, they are one: no two
of their functions share a name.
"""
