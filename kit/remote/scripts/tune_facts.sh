# Prints the facts that kit tune needs. Arguments: ADDRESS of the host in the cluster's network.
# Prints lines of `word value`, and leaves out what the system does not report.
address=$1
# nproc would print these variables of the login in place of the CPUs.
unset OMP_NUM_THREADS OMP_THREAD_LIMIT
echo "threads $(nproc 2>/dev/null || echo 0)"
# Only the CPUs that programs may use count: /sys of a container, or with isolated CPUs, has more.
sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' '\n' \
  | awk -F- '{ for (n = $1; n <= (NF > 1 ? $2 : $1); n++) print n }' | while read -r number; do
    cpu=/sys/devices/system/cpu/cpu$number
    socket=$(cat "$cpu/topology/physical_package_id" 2>/dev/null)
    # Count each core once, however many threads it has.
    [ -r "$cpu/topology/core_id" ] && echo "core ${socket:-0}:$(cat "$cpu/topology/core_id")"
    [ -n "$socket" ] && echo "socket $socket"
    # A NUMA node with only memory has no CPUs to bind to.
    for node in "$cpu"/node[0-9]*; do
      [ -e "$node" ] && echo "numa ${node##*/node}"
    done
  done | sort -u
# Same format and order as in kit deploy, which uses the first of several addresses in a network.
ip -o -4 address show 2>/dev/null | sed 's/^/address /'
own=$(ip -o -4 address show 2>/dev/null | awk -v want="$address" '{ split($4, a, "/"); if (a[1] == want) { print $2; exit } }')
for path in /sys/class/net/*; do
  name=${path##*/}
  # Skip bridges, tunnels and the loopback: they are not real links.
  [ "$name" != lo ] && [ "$(cat "$path/operstate" 2>/dev/null)" = up ] || continue
  case $name in docker* | br-* | veth*) [ "$name" = "$own" ] || continue ;; esac
  mark=other
  [ "$name" != "$own" ] || mark=nic
  echo "$mark $name $(cat "$path/speed" 2>/dev/null || echo -1) $(cat "$path/mtu" 2>/dev/null || echo 0)"
done
# The route to the cluster's network overrides the system's default.
control=$(ip -o -4 route show dev "$own" src "$address" 2>/dev/null \
  | awk '{ for (i = 1; i < NF; i++) if ($i == "congctl") { print ($(i + 1) == "lock") ? $(i + 2) : $(i + 1); exit } }')
echo "congestion ${control:-$(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null)}"
if command -v nvidia-smi >/dev/null 2>&1; then
  # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
  smi() { sh -c "$smi_program" kit-smi "$@"; }
  # Its complaints come on standard output, too. A row of a GPU begins with its UUID.
  text=$(smi --query-gpu=uuid,name --format=csv,noheader)
  printf '%s\n' "$text" | sed -n 's/^GPU-[A-Za-z0-9-]*, */gpu /p'
  # One that was late is late again.
  case $text in
    *'did not answer within'*) ;;
    *) smi topo -m | sed 's/^/topo /' ;;
  esac
fi
echo "end"
