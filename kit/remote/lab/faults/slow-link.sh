# shellcheck shell=bash
# Makes the link slow in both directions. kit limits the far end.

inject() { slow_link "${ARG:-100mbit}"; echo "far-end ${ARG:-100mbit}"; }
mend() { echo "far-end $(usual_rate)"; restore_link; }
