"""Generate jobs of named models: no trace needed, no rank was recorded.

`options.py` lists what a user may say and `workload.py` makes it a model, a layout and a speed. `models.py` has the shapes of models,
`configs.py` reads others, `layout.py` says how a job divides one among its ranks, `wish.py` makes that of what a user asks for,
`transformer.py` what a step computes, `volumes.py` what it sends and `memory.py` what an NPU holds, each as a closed form; `replicas.py`
what replicas divide and sum, `groups.py` which ranks do so; `schedule.py` orders passes, and `passes.py`, `stage.py` and `job.py` make
the graphs. `inference/` does the same for steps of inference, and `families/` for other networks.
"""

from studio.generation.inference.generate import generate_inference
from studio.generation.llm import generate

__all__ = ["generate", "generate_inference"]
