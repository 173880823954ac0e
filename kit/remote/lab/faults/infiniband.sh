# shellcheck shell=bash
# Pretends an RDMA adapter whose port is down.

inject() {
  local port=/sys/class/infiniband/mlx5_0/ports/1
  stand_in "$port/state" <<<'1: DOWN'
  stand_in "$port/link_layer" <<<InfiniBand
  stand_in "$port/rate" <<<'100 Gb/sec (4X EDR)'
}
