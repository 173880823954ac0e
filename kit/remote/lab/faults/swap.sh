# shellcheck shell=bash
# Pretends that 6 GiB are swapped out.

inject() {
  printf 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n%s\n' \
    '/swapfile                               file		8388604		6291456		-2' | stand_in /proc/swaps
}
