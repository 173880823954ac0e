# A prefix for other scripts: uptime_s prints how many seconds this VM has been up. A limit counts with it, and not with the
# clock: a VM that has just started may set that by hours.
uptime_s() { cut -d . -f 1 /proc/uptime; }
