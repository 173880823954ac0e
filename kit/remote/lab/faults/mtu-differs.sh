# shellcheck shell=bash
# Sets another MTU.

inject() {
  note before "$(cat /sys/class/net/eth0/mtu)"
  ip link set dev eth0 mtu "${ARG:-1400}"
}
mend() { ip link set dev eth0 mtu "$(noted before)"; }
