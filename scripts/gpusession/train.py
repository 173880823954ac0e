"""Trains by DistributedDataParallel with NCCL and half precision for some seconds.

Argument: the seconds. Each rank prints its GPU, its steps and its loss.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    seconds = float(sys.argv[1])
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layers = nn.Sequential(nn.Linear(4096, 16384), nn.ReLU(), nn.Linear(16384, 4096)).to(device)
    model = nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8192, 4096, device=device)
    losses, began = [], time.monotonic()
    while time.monotonic() - began < seconds:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.mse_loss(model(inputs).float(), inputs.roll(1, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    took, name = time.monotonic() - began, torch.cuda.get_device_name(device)
    steps = f"{len(losses)} steps in {took:.1f} s, loss {losses[0]:.4f} to {losses[-1]:.4f}"
    print(f"rank {rank} of {size} on {name}: {steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
