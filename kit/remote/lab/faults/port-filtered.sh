# shellcheck shell=bash
# Drops what other hosts send to open a connection to ports below 32768, or to one port.

inject() { filter "-p tcp --syn --dport ${ARG:-1:32767}"; }
