# Takes a cluster's lock from its holder. Arguments: FILE PID, as lock_status told it.
# Says 'kit-lock released', or 'kit-lock changed' where the holder is another by now.
file=$1
holds() { [ "$(stat -Lc %d:%i "/proc/$1/fd/9" 2>/dev/null)" = "$(stat -c %d:%i "$file" 2>/dev/null)" ]; }
if [ -e "$file" ]; then
  [ "$(sed -n 's/^pid //p' "$file")" = "$2" ] || { echo 'kit-lock changed'; exit 0; }
  for sign in TERM TERM KILL; do
    # Only the process that really has the lock open: a number alone may be anybody's by now.
    holds "$2" || break
    kill -s "$sign" "$2" 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      holds "$2" || break
      sleep 0.1
    done
  done
  try=0
  until flock -n "$file" rm -f -- "$file"; do
    # A child that the holder had just begun has the lock open for a moment longer; or somebody else took it meanwhile.
    try=$((try + 1))
    [ "$try" -le 20 ] && [ "$(sed -n 's/^pid //p' "$file")" = "$2" ] || { echo 'kit-lock changed'; exit 0; }
    sleep 0.1
  done
  rmdir "${file%/*}" 2>/dev/null
fi
echo 'kit-lock released'
