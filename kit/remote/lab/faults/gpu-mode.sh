# shellcheck shell=bash
# Pretends that the GPUs accept one process each.

inject() { nvidia_smi 's|<compute_mode>Default<|<compute_mode>Exclusive_Process<|'; }
