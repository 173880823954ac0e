# shellcheck shell=bash
# Pretends that the host has the MAC address of another.

inject() {
  local other mac
  other=$(another_address)
  # A packet to it makes the kernel ask for its address.
  timeout 2 bash -c "exec 3<>/dev/tcp/$other/22" 2>/dev/null || true
  mac=$(ip neigh show to "$other" dev eth0 | awk '{ for (i = 1; i < NF; i++) if ($i == "lladdr") print $(i + 1) }')
  if [ -z "$mac" ]; then fail "$other does not answer"; fi
  stand_in /sys/class/net/eth0/address <<<"$mac"
}
