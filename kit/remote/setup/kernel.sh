# Sets values below /proc/sys. Arguments: AREA, then KEY VALUE pairs.
area=$1
shift
bad=
while [ $# -gt 1 ]; do
  file=$root/proc/sys/$(printf %s "$1" | tr . /)
  before=$(cat "$file" 2>/dev/null | tr '\t' ' ')
  save_value sysctl "$1" "$before" "$area"
  printf '%s\n' "$2" 2>/dev/null >"$file" || bad="$bad $1"
  shift 2
done
[ -z "$bad" ] || fail "the kernel refuses to set:$bad"
