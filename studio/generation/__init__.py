"""Generate jobs of named models: no trace needed, no rank was recorded.

`models.py` has the shapes of models, `layout.py` how a job divides one among its ranks, `transformer.py` what a step computes,
`volumes.py` what it sends and `memory.py` what an NPU holds, each as a closed form; `schedule.py` and `job.py` make the graphs.
"""

from studio.generation.job import generate
from studio.generation.layout import Layout
from studio.generation.models import Model, find_model

__all__ = ["Layout", "Model", "find_model", "generate"]
