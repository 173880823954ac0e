# shellcheck shell=bash
# Pretends that the GPUs are not in the fabric yet.

inject() { nvidia_smi '/<fabric>/,/<.fabric>/s|<state>Completed<|<state>In Progress<|'; }
