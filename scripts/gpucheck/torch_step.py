"""Trains a small network for 20 steps with PyTorch's DistributedDataParallel. gpu-check starts two of these.

Arguments: BACKEND (nccl or gloo) and GPU (its number, or cpu). Rank 0 prints JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

STEPS = 20


def main() -> int:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    backend, gpu = sys.argv[1], sys.argv[2]
    device = torch.device("cpu" if gpu == "cpu" else "cuda:" + gpu)
    if gpu != "cpu":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 30 * 30, 10)]
    model = DistributedDataParallel(
        torch.nn.Sequential(*layers).to(device), device_ids=None if gpu == "cpu" else [device.index]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # Each rank has its own data, so that only an exchange of gradients keeps the ranks equal.
    torch.manual_seed(1 + rank)
    images, labels = torch.randn(32, 3, 32, 32, device=device), torch.randint(10, (32,), device=device)
    losses, times = [], []
    for _ in range(STEPS):
        began = time.monotonic()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        # Waits for the GPU.
        losses.append(float(loss))
        times.append(time.monotonic() - began)
    total = torch.stack([parameter.detach().double().sum() for parameter in model.parameters()]).sum().reshape(1)
    sums = [torch.zeros_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(sums, total)
    equal = all(bool(torch.equal(one, sums[0])) for one in sums)
    if rank == 0:
        print(
            json.dumps(
                {
                    "backend": backend,
                    "ranks": dist.get_world_size(),
                    "device": device.type,
                    "torch": torch.__version__,
                    "cuda": torch.version.cuda,
                    "cudnn": torch.backends.cudnn.version() if gpu != "cpu" else None,
                    "step_s": sorted(times)[STEPS // 2],
                    "first_loss": losses[0],
                    "last_loss": losses[-1],
                    "equal": equal,
                }
            ),
            flush=True,
        )
    dist.barrier()
    dist.destroy_process_group()
    return 0 if equal and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    # The folder of this program must not hide a module of the same name.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != os.path.dirname(os.path.abspath(__file__))]
    sys.exit(main())
