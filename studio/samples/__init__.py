"""Samples that come with the package: jobs, each a zip of Chakra traces and their comm groups, and a recording of PyTorch.

Jobs are written by `scripts/make_samples.py`; the recording is of `examples/train.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from studio.errors import StudioError


@dataclass(frozen=True, slots=True)
class Sample:
    """A job to look at without having traces of one's own.

    Attributes:
        name: What commands and addresses call it.
        title: What people call it.
        description: What it shows.
        ranks: How many ranks it has.
        file: Name of its archive in this package.
    """

    name: str
    title: str
    description: str
    ranks: int
    file: str


SAMPLES: tuple[Sample, ...] = (
    Sample(
        name="transformer_8r",
        title="Transformer on 8 ranks",
        description="8 ranks · tensor 2 × data 2 × pipeline 2. Two training steps of two micro-batches; "
        "gradients are reduced while the backward pass goes on.",
        ranks=8,
        file="transformer_8r.zip",
    ),
    Sample(
        name="transformer_32r",
        title="Transformer on 32 ranks",
        description="32 ranks · tensor 4 × data 4 × pipeline 2. One training step of four micro-batches, one "
        "forward, one backward, with sequence parallelism.",
        ranks=32,
        file="transformer_32r.zip",
    ),
    Sample(
        name="imbalance_8r",
        title="Mixture of experts, out of balance",
        description="8 ranks · expert 8 × data 8. Rank 5 holds a hot expert: its all-to-alls carry 1.6 times the "
        "mean. Rank 2 computes 25 % slower. Find both.",
        ranks=8,
        file="imbalance_8r.zip",
    ),
)

RECORDING = Sample(
    name="training_2r",
    title="Recording of a training loop",
    description="Two processes that train a small network on a CPU, recorded by PyTorch 2.13 and not linked yet: "
    "an execution trace and a Kineto trace of each rank. What the tutorial begins with.",
    ranks=2,
    file="training_2r.zip",
)


def sample_path(name: str) -> Path:
    """Return the archive of a sample.

    Raises:
        StudioError: There is no sample of this name.

    Example:
        >>> sample_path("transformer_8r").name
        'transformer_8r.zip'
    """
    every = (*SAMPLES, RECORDING)
    for sample in every:
        if sample.name == name:
            return Path(str(files(__name__) / sample.file))
    names = [sample.name for sample in every]
    nearest = get_close_matches(name, names, n=1, cutoff=0)[0]
    raise StudioError(
        f"There is no sample {name!r}; the samples are {', '.join(names)}.", hint=f"Did you mean {nearest!r}?"
    )
