# shellcheck shell=bash
# Pretends a machine that is no VM, with a PCIe bridge that sends the GPUs' traffic through the CPU.

inject() {
  if ! command -v nvidia-smi >/dev/null; then fail "this host has no GPUs: kit lab up --gpus 2"; fi
  sed 's/ hypervisor\b//' /proc/cpuinfo | stand_in /proc/cpuinfo
  program lspci <<'END'
printf '00:01.0 PCI bridge: (PRETENDED)\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+\n'
exit 0
END
}
