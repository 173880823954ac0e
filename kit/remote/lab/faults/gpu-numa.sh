# shellcheck shell=bash
# Pretends that the network interface is far from all GPUs.

inject() {
  if ! command -v nvidia-smi >/dev/null; then fail "this host has no GPUs: kit lab up --gpus 2"; fi
  program nvidia-smi <<'END'
if [ "${1:-} ${2:-}" = "topo -m" ]; then
  printf '\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n'
  printf 'GPU0\t X \tSYS\t0-15\t0\tN/A\nNIC0\tSYS\t X \t\t\t\n'
  printf '\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n\n'
  exit 0
fi
END
}
