# A prefix for other scripts: uptime_s prints for how many seconds this VM has been up. Limits count with it, and not with
# the clock, which a VM that has just started may set by hours.
uptime_s() { cut -d . -f 1 /proc/uptime; }
