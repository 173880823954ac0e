# shellcheck shell=bash
# Lets TCP use reno.

inject() { setting net.ipv4.tcp_congestion_control "${ARG:-reno}"; }
