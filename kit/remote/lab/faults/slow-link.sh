# shellcheck shell=bash
# Makes the link slow in both directions. kit limits the far end.

inject() { slow_link "${ARG:-100mbit}"; far_end "${ARG:-100mbit}"; }
mend() { far_end "$(usual_rate)"; restore_link; }
