# Takes a cluster's lock from its holder. Arguments: FILE PID, as lock_status printed it.
# Prints 'kit-lock released', or 'kit-lock changed' if the lock has another holder by now.
file=$1
holds() { [ "$(stat -Lc %d:%i "/proc/$1/fd/9" 2>/dev/null)" = "$(stat -c %d:%i "$file" 2>/dev/null)" ]; }
if [ -e "$file" ]; then
  [ "$(sed -n 's/^pid //p' "$file")" = "$2" ] || { echo 'kit-lock changed'; exit 0; }
  for sign in TERM TERM KILL; do
    # End only a process that has the lock open: another process may have this number by now.
    holds "$2" || break
    kill -s "$sign" "$2" 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      holds "$2" || break
      sleep 0.1
    done
  done
  try=0
  until flock -n "$file" rm -f -- "$file"; do
    # A child of the holder may keep the lock open for a moment, or somebody else has taken it.
    try=$((try + 1))
    [ "$try" -le 20 ] && [ "$(sed -n 's/^pid //p' "$file")" = "$2" ] || { echo 'kit-lock changed'; exit 0; }
    sleep 0.1
  done
  rmdir "${file%/*}" 2>/dev/null
fi
echo 'kit-lock released'
