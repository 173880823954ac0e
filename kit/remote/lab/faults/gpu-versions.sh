# shellcheck shell=bash
# Pretends another version of the driver.

inject() { nvidia_smi "s|<driver_version>[0-9.]*<|<driver_version>${ARG:-535.104.05}<|"; }
