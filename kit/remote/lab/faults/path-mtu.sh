# shellcheck shell=bash
# Drops packets larger than 1400 bytes and says nothing, like a tunnel that sends no ICMP.

inject() {
  local range=$((${ARG:-1400} + 1)):65535
  filter "-p udp -m length --length $range" "-p tcp -m length --length $range"
}
