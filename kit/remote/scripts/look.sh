# Between observe.sh, whose arguments it has, and ranks.sh: one command shows a VM's state, the processes on its GPUs, the
# slots that active runs hold (on the head), and the ranks on it.
if command -v nvidia-smi >/dev/null 2>&1; then
  section gpu_processes
  # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
  sh -c "$gpu_processes_program" kit-gpu_processes
fi
# shellcheck disable=SC2154  # observe.sh sets it
if [ -e "$folder/cluster.json" ] && [ -d "$folder/var/runs" ]; then
  section slots
  # shellcheck disable=SC2034  # read_runs.sh uses it
  patience=20
  read_runs "$folder" slots 2>/dev/null | head -c 8388608
  echo
fi
section ranks
# shellcheck disable=SC2154  # observe.sh sets it
set -- "$cluster"
