"""Jobs of models that are no language models, by the same building blocks: a network is a row of parts that replicas all hold.

`network.py` says what a network is; `vit.py`, `resnet.py` and `dlrm.py` have the named ones, `presets.py` lists them; `counts.py` has
what a step computes, sends and holds, as closed forms, and `job.py` makes the graphs.
"""
