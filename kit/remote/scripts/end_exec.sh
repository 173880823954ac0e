# Ends a command of kit exec on this VM, in its container, and waits for its end. Arguments: ID.
# Prints the number of processes that were ended, and the number of those that are still there.
# The command's processes have KIT_EXEC=ID in their environment, or descend from one that has it.
family() {
  {
    grep -lzsx "KIT_EXEC=$1" /proc/[0-9]*/environ 2>/dev/null | sed 's|^/proc/\([0-9]*\)/environ$|marked \1|'
    cat /proc/[0-9]*/stat 2>/dev/null | sed -n 's/^\([0-9]*\) (.*) \([A-Za-z]\) \([0-9]*\) .*/process \1 \2 \3/p'
  } | awk '
    $1 == "marked" { own[$2] = 1 }
    # A zombie holds no resources.
    $1 == "process" && $3 != "Z" && $3 != "X" { parent[$2] = $4 }
    END {
      do {
        more = 0
        for (pid in parent) if (!(pid in own) && (parent[pid] in own)) { own[pid] = 1; more = 1 }
      } while (more)
      for (pid in own) if (pid in parent) print pid
    }'
}
# `docker exec` has it as an argument. While it runs, the command may be about to start.
starts() { grep -qzsx "KIT_EXEC=$1" /proc/[0-9]*/cmdline 2>/dev/null; }
known=' '
count=0
for sign in TERM KILL; do
  # 5 s for the command to end by itself, then 5 s for the kernel.
  end=$(($(uptime_s) + 5))
  while [ "$(uptime_s)" -le "$end" ]; do
    # In this order: a command that starts in between is seen.
    soon=
    starts "$1" && soon=yes
    pids=$(family "$1")
    [ -n "$pids$soon" ] || break 2
    for pid in $pids; do
      case $known in
        *" $pid "*) [ "$sign" = KILL ] || continue ;;
        *) known="$known$pid " count=$((count + 1)) ;;
      esac
      kill -s "$sign" "$pid" 2>/dev/null
    done
    sleep 0.2
  done
done
left=$(family "$1" | wc -l)
echo "$((count - left)) $((left))"
