# shellcheck shell=bash
# Pretends that the kernel's table of connections is full.

inject() {
  stand_in /proc/sys/net/netfilter/nf_conntrack_count <<<262000
  stand_in /proc/sys/net/netfilter/nf_conntrack_max <<<262144
}
