# shellcheck shell=bash
# Pretends that the interface received broken packets and lost its link.

inject() {
  stand_in /sys/class/net/eth0/statistics/rx_errors <<<5000
  stand_in /sys/class/net/eth0/statistics/rx_packets <<<1000000
  stand_in /sys/class/net/eth0/carrier_changes <<<80
}
