# Holds a cluster's lock while standard input brings a line now and then, and prints each line back.
# Arguments: FILE SILENCE WHO WHAT. Prints 'kit-lock held', or 'kit-lock taken' and the holder, or 'kit-lock no-flock'.
file=$1
folder=${file%/*}
umask 077
# A broken connection must not end this before it has cleaned up.
trap '' PIPE
command -v flock >/dev/null 2>&1 || { echo 'kit-lock no-flock'; exit 1; }

# Returns whether the open file is still the one at this path.
same() { holds "$$"; }
holds() { [ "$(stat -Lc %d:%i "/proc/$1/fd/9" 2>/dev/null)" = "$(stat -c %d:%i "$file" 2>/dev/null)" ]; }

try=0
waited=0
while :; do
  # An earlier holder may remove file and folders at any moment. Then try again.
  try=$((try + 1))
  [ "$try" -le 20 ] || { echo "$file cannot be made" >&2; exit 1; }
  (umask 022 && mkdir -p "${folder%/*}") && mkdir -p "$folder" && chmod 700 "$folder" || { sleep 0.1; continue; }
  command exec 9>>"$file" || { sleep 0.1; continue; }
  if flock -n 9; then
    same && break
  elif same; then
    # The holder may not have written its name yet. Or it was killed when it started a child, which keeps the lock open
    # for a moment; after that, nobody holds it.
    pid=$(sed -n 's/^pid //p' "$file" 2>/dev/null)
    if [ "$waited" -lt 10 ] && ! { [ -n "$pid" ] && holds "$pid"; }; then
      waited=$((waited + 1)) try=0
      sleep 0.1
      continue
    fi
    echo 'kit-lock taken'
    echo "now $(date +%s)"
    cat "$file"
    exit 1
  fi
done

printf 'pid %s\nsince %s\nwho %s\nwhat %s\n' "$$" "$(date +%s)" "$3" "$4" >"$file"
echo 'kit-lock held'
# No child may keep the lock open, so that the lock ends with this process.
while beat=$(exec 9>&- 2>/dev/null; exec timeout "$2" head -n 1) && [ -n "$beat" ]; do
  echo "$beat" 2>/dev/null
done
rm -f -- "$file"
rmdir "$folder" "${folder%/*}" 2>/dev/null
exit 0
