# shellcheck shell=bash
# Pretends that the host reserves huge pages.

inject() { stand_in /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages <<<64; }
