# shellcheck shell=bash
# Pretends that the kernel compacts memory at every page fault.

inject() {
  stand_in /sys/kernel/mm/transparent_hugepage/defrag <<<'[always] defer defer+madvise madvise never'
  stand_in /sys/kernel/mm/transparent_hugepage/enabled <<<'[always] madvise never'
}
