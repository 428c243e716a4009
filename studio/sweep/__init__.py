"""Sweeps: one job on many systems, and what the settings did to its finish.

`space` says which settings, `systems` makes a configuration of each point as `simulate` does, `running` simulates points in
processes of this machine or of others, `search` chooses which (all, a random few, or the cheapest that meets a target),
`journal` keeps what is done through a kill, `tables` and `reading` write and read results, `costs` prices systems, and
`analysis` says which points are worth a look and which settings matter.
"""
