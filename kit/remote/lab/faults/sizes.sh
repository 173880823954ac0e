# shellcheck shell=bash
# Pretends that the host has one CPU.

inject() { stand_in /sys/devices/system/cpu/online <<<0; }
