# shellcheck shell=bash
# Makes what the host sends slow.

inject() { slow_link "${ARG:-100mbit}"; }
mend() { restore_link; }
