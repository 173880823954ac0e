# shellcheck shell=bash
# Gives a bridge an address of the lab's network, so that another host cannot be reached.

inject() {
  local other
  other=$(another_address)
  ip link add br-kitfault type bridge
  note link br-kitfault
  ip address add "$other/32" dev br-kitfault
  ip link set br-kitfault up
}
mend() { ip link delete br-kitfault 2>/dev/null || true; }
