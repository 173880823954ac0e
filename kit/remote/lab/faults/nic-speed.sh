# shellcheck shell=bash
# Pretends that the interface has 1 Gbit/s.

inject() { stand_in /sys/class/net/eth0/speed <<<"${ARG:-1000}"; }
