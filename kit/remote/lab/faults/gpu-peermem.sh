# shellcheck shell=bash
# Pretends an RDMA adapter, and NVIDIA's driver without the module that lets the adapter read the GPUs' memory.

inject() {
  local adapter=/sys/class/infiniband/mlx5_0
  if ! command -v nvidia-smi >/dev/null; then fail "this host has no GPUs: kit lab up --gpus 2"; fi
  stand_in "$adapter/node_type" <<<'1: CA'
  mkdir -p "$adapter/device"
  ln -s /sys/bus/pci/drivers/mlx5_core "$adapter/device/driver"
  stand_in /proc/driver/nvidia/version \
    <<<'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024'
}
