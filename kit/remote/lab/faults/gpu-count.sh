# shellcheck shell=bash
# Pretends that the host has one GPU less.

# The first one is cut.
inject() { nvidia_smi '0,/<.gpu>/{/<gpu id=/,/<.gpu>/d}'; }
