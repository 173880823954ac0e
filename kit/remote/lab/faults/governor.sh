# shellcheck shell=bash
# Pretends that CPU 0 saves power.

inject() {
  local folder=/sys/devices/system/cpu/cpu0/cpufreq
  stand_in "$folder/scaling_governor" <<<powersave
  stand_in "$folder/scaling_driver" <<<acpi-cpufreq
}
