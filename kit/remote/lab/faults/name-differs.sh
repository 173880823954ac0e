# shellcheck shell=bash
# Lets the name of another host mean a wrong address.

inject() { first_line /etc/hosts "192.0.2.99 ${ARG:-$(another)}"; }
