# Lists the runs that this VM keeps as the head of a cluster. Changes nothing. Arguments: FOLDER (of runs).
# Prints for each run a line '@@ LIVE', its record and how it ended, each as a line of JSON. LIVE is yes while its
# supervisor holds the lock. The kernel knows this, so no file can be wrong about it.
cd "$1" 2>/dev/null || exit 0
for run in */; do
  [ -s "$run/record.json" ] || continue
  live=yes
  if flock --shared --nonblock "$run/lock" true 2>/dev/null; then live=no; fi
  echo "@@ $live"
  cat "$run/record.json"
  echo
  cat "$run/end.json" 2>/dev/null
  echo
done
exit 0
