# Prints the state of a cluster's lock: 'kit-lock free', 'held' or 'stale', then what its holder wrote. Arguments: FILE.
# Trying the lock would hold it for a moment, and might refuse a deploy. So this looks at the holder's process instead.
[ -e "$1" ] || { echo 'kit-lock free'; exit 0; }
pid=$(sed -n 's/^pid //p' "$1")
if [ "$(stat -Lc %d:%i "/proc/${pid:-0}/fd/9" 2>/dev/null)" = "$(stat -c %d:%i "$1")" ]; then
  echo 'kit-lock held'
else
  echo 'kit-lock stale'
fi
echo "now $(date +%s)"
cat "$1"
