# shellcheck shell=bash
# Gives a bridge the route to another host, as a network of the engine does that contains it.

inject() {
  ip link add br-kitfault type bridge
  note link br-kitfault
  ip link set br-kitfault up
  ip route add "$(another_address)/32" dev br-kitfault
}
mend() { ip link delete br-kitfault 2>/dev/null || true; }
