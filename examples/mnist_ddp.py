"""From a training loop to a simulated step time, on two processes of this machine.

    pip install "chakra-studio[torch]"
    python examples/mnist_ddp.py [FOLDER]

A small convolutional network for pictures of 28 × 28 trains on random data, on two ranks that exchange gradients by gloo.
Three steps are recorded into FOLDER, both sides of both ranks linked to one job, and the job simulated on a network of two
NPUs. With the speed of the machine's own memory as the network's, the simulated step takes about as long as the recorded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import get_args

try:
    import torch
    import torch.distributed
    from torch import nn
except ImportError as error:
    sys.exit(f'{error}: this example trains with PyTorch. Install it: pip install "chakra-studio[torch]"')

import studio
from studio.collect import recorder
from studio.sim.config import Algorithm, CollectiveKind, Dimension, SystemConfig, Topology
from studio.sim.extensions import Extensions
from studio.timeline import recorded
from studio.units import format_ns

RANKS, BATCH, STEPS = 2, 64, 3


def network() -> nn.Module:
    """Return two convolutions and two layers on top of them."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(dim=1),
    )  # fmt: skip


def train(rank: int, folder: str, meeting: str) -> None:
    """Train one rank, and record it."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.Adadelta(model.parameters())
    with recorder(folder, wait=1, warmup=1, active=STEPS) as recording:
        for _ in range(2 + STEPS):
            pictures, digits = torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))
            optimizer.zero_grad()
            nn.functional.nll_loss(model(pictures), digits).backward()
            optimizer.step()
            recording.step()
    torch.distributed.destroy_process_group()


def main() -> None:
    """Record, link, simulate, and print both step times."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="mnist-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        torch.multiprocessing.spawn(train, (str(folder), f"{scratch}/meeting"), RANKS)

    trace = studio.link(folder)
    # 4 GB/s and 20 µs: two processes that exchange gradients through the memory they share.
    system = SystemConfig(
        Topology((Dimension("fully_connected", RANKS, 4.0, 20_000.0),)),
        algorithms={kind: (Algorithm("direct"),) for kind in get_args(CollectiveKind)},
        extensions=Extensions(),
    )
    result = studio.simulate(trace, system)

    timeline = recorded(trace)
    recorded_ns = int(timeline.end_ns.max() - timeline.start_ns.min())
    print(f"recorded in {folder}: {RANKS} ranks, {STEPS} steps, {trace.node_count:,} nodes")
    print(f"a step took      {format_ns(recorded_ns // STEPS)}")
    print(f"simulated it has {format_ns(result.makespan_ns // STEPS)}")


if __name__ == "__main__":
    main()
