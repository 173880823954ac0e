# shellcheck shell=bash
# Limits TCP's buffers to 208 KiB.

inject() {
  setting net.ipv4.tcp_rmem '4096 87380 212992'
  setting net.ipv4.tcp_wmem '4096 16384 212992'
}
