"""A small training loop on as many processes as torchrun starts: what the tutorial records.

torchrun --nproc-per-node 2 -m studio.collect -o recorded examples/train.py
"""

from __future__ import annotations

import torch
import torch.distributed
from torch import nn

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())

blocks = [nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*blocks), bucket_cap_mb=4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    batch = torch.randn(128, 512)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()

torch.distributed.destroy_process_group()
