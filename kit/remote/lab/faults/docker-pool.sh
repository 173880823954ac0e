# shellcheck shell=bash
# Gives a bridge the route to another host, as a network of the engine does that contains it.

inject() {
  ip link add br-0000000fa017 type bridge
  note link br-0000000fa017
  ip link set br-0000000fa017 up
  ip route add "$(another_address)/32" dev br-0000000fa017
}
mend() { ip link delete br-0000000fa017 2>/dev/null || true; }
