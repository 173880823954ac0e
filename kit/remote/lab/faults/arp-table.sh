# shellcheck shell=bash
# Pretends that the kernel knows at most two neighbors.

inject() { stand_in /proc/sys/net/ipv4/neigh/default/gc_thresh3 <<<2; }
