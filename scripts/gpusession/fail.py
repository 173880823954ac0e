"""Fails on a GPU in one of these ways: memory, cublas, none, number, interface, assert, shared."""

import os
import sys

if sys.argv[1] == "none":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
import torch.distributed as dist


def memory() -> None:
    blocks = []
    while True:
        blocks.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))


def cublas() -> None:
    free, _ = torch.cuda.mem_get_info()
    block = torch.empty(free - (64 << 20), dtype=torch.uint8, device="cuda")
    matrix = torch.randn(64, 64, device="cuda")
    print((matrix @ matrix).sum().item(), block[0].item())


def none() -> None:
    torch.zeros(8).cuda()


def number() -> None:
    torch.cuda.set_device(torch.cuda.device_count())


def interface() -> None:
    os.environ["NCCL_SOCKET_IFNAME"] = "=missing9"
    shared()


def check() -> None:
    print(torch.arange(4, device="cuda")[torch.tensor([9], device="cuda")].sum().item())


def shared() -> None:
    """With two ranks on one GPU, NCCL refuses."""
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    dist.all_reduce(torch.ones(4, device="cuda"))
    torch.cuda.synchronize()


WAYS = {
    "memory": memory,
    "cublas": cublas,
    "none": none,
    "number": number,
    "interface": interface,
    "assert": check,
    "shared": shared,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
