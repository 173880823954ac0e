# shellcheck shell=bash
# Leaves /tmp few inodes.

inject() { small /tmp nr_inodes=500,size=64m; }
