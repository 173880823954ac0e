# Between observe.sh, whose arguments it has, and ranks.sh: one command shows a VM's state, the processes on its GPUs and
# the ranks on it.
if command -v nvidia-smi >/dev/null 2>&1; then
  section gpu_processes
  # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
  sh -c "$gpu_processes_program" kit-gpu_processes
fi
section ranks
# shellcheck disable=SC2154  # observe.sh sets it
set -- "$cluster"
