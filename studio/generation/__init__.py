"""Generate jobs of named models: no trace needed, no rank was recorded.

`models.py` has the shapes of models, `configs.py` reads others, `layout.py` says how a job divides one among its ranks,
`transformer.py` what a step computes, `volumes.py` what it sends and `memory.py` what an NPU holds, each as a closed form;
`schedule.py`, `passes.py` and `job.py` make the graphs.
"""

from studio.generation.llm import generate

__all__ = ["generate"]
