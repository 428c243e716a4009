"""The event loop of the simulator, over one flat array.

Everything the simulation knows lies in one int64 array `m`: a header, tables that do not change (nodes,
phases, groups), the state of every rank, and records that come and go (events, messages, streams). A record
is named by its offset in `m`. Nothing moves: when `m` runs full, a longer copy takes its place. So the
functions pass one array and a few numbers, which is what makes the compiled loop fast, and the same source
runs interpreted over a plain list. `f` holds the few real numbers.

`records` says what lies where: a module of constants for each kind of record, `m[stream + Stream.TAG]`. Each of the other
modules uses those before it alone, and stands for a part of the reference's rules (SEMANTICS.md, by section):

- 1: `clock` (ticks, callbacks, lists of ranks), `loop`; `order` (what is told and put off within a tick);
- 7: `links`, `routes` (single links); 8: `messages`, `arrivals`; 12: `bus`, `bus_arrivals`;
- 6: `packets` (the common step), `ring` (and direct), `halving`, `trees`, `programs`; 12: `custom`;
- 5: `collectives` (cut into streams), `queues`, `phases`, `endings`; 9: `memory`; 3: `nodes`.
- Beyond the reference: `flows` (collectives and messages that a cost model times) and `group_turns`.

Compiled, they are one: no two of their functions share a name.
"""
