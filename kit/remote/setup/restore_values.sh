# Gives values of the running system what they were. Arguments: sysctl|hugepages|mtu, then KEY VALUE pairs.
kind=$1
shift
while [ $# -gt 1 ]; do
  case $kind in
    mtu) file=$root/sys/class/net/$1/mtu ;;
    sysctl) file=$root/proc/sys/$(printf %s "$1" | tr . /) ;;
    *) file=$root/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages ;;
  esac
  # A value that the kernel no longer has is no failure.
  printf '%s\n' "$2" 2>/dev/null >"$file"
  rm -f "$state/values/$kind+$(key_of "$1")"
  shift 2
done
exit 0
