# shellcheck shell=bash
# Pretends that other VMs took a tenth of the CPUs' time.

inject() {
  local rest
  rest=$(tail -n +2 /proc/stat)
  stand_in /proc/stat <<<"cpu  1000 0 1000 7000 0 0 0 1000 0 0
$rest"
}
