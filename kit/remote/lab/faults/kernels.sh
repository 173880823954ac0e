# shellcheck shell=bash
# Pretends another kernel.

inject() { stand_in /proc/sys/kernel/osrelease <<<"${ARG:-5.4.0-42-generic}"; }
