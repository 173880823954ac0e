# Ends what is left of a run on this VM, and looks again. Arguments: RUN. Prints the number of processes still there.
# The mark is in the environment of every process of the run, and of no other.
left() {
  grep -lzsx "KIT_RUN=$1" /proc/[0-9]*/environ 2>/dev/null | while read -r environ; do
    pid=${environ#/proc/}
    pid=${pid%/environ}
    # A zombie is not a process that holds anything.
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
