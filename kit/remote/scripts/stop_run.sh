# Ends what is left of a run on this VM. Arguments: RUN. Prints the number of processes that are still there.
# Every process of the run has the mark in its environment, and no other process has it.
left() {
  grep -lzsx "KIT_RUN=$1" /proc/[0-9]*/environ 2>/dev/null | while read -r environ; do
    pid=${environ#/proc/}
    pid=${pid%/environ}
    # A zombie holds no resources.
    case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null) in Z* | '') ;; *) echo "$pid" ;; esac
  done
}
for sign in TERM TERM KILL; do
  pids=$(left "$1")
  [ -n "$pids" ] || break
  for pid in $pids; do kill -s "$sign" "$pid" 2>/dev/null; done
  sleep 1
done
left "$1" | wc -l
