# shellcheck shell=bash
# Pretends that the kernel allows few processes.

inject() { stand_in /proc/sys/kernel/pid_max <<<4096; }
