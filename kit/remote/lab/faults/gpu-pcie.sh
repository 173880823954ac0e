# shellcheck shell=bash
# Pretends that the GPUs use 4 of 16 PCIe lanes.

inject() { nvidia_smi 's|<current_link_width>16x<|<current_link_width>4x<|'; }
