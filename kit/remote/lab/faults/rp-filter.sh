# shellcheck shell=bash
# Adds a second interface in the lab's network, with strict reverse-path filtering.

inject() {
  local network
  network=$(network)
  ip link add kitnic1 type bridge
  note link kitnic1
  ip address add "${network%.*}.250/${network#*/}" dev kitnic1
  ip link set kitnic1 up
  setting net.ipv4.conf.all.rp_filter 1
}
mend() { ip link delete kitnic1 2>/dev/null || true; }
