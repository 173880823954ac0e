# shellcheck shell=bash
# Lets each login print a line.

inject() { first_line /etc/bash.bashrc "echo Welcome to $(hostname)"; }
