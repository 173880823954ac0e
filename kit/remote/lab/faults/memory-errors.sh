# shellcheck shell=bash
# Pretends a memory error that nothing could correct.

inject() {
  local folder=/sys/devices/system/edac/mc/mc0
  stand_in "$folder/ue_count" <<<1
  stand_in "$folder/ce_count" <<<12
}
