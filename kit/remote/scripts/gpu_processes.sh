# Lists the processes that compute on this VM's GPUs, with a line 'GPU PID MIB USER CLUSTER COMMAND' for each. CLUSTER is
# that of kit's container that the process is in, or -. Changes nothing. Without nvidia-smi it prints nothing.
# Arguments: [CLUSTER]. With it, 'has LINE' for each line of `nvidia-smi -L`, and the lines of gpu_node.sh follow.
export LC_ALL=C
if command -v nvidia-smi >/dev/null 2>&1; then
  # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
  smi() { sh -c "$smi_program" kit-smi "$@"; }
  text=$(smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits)
  rows=$(printf '%s\n' "$text" | grep -E '^(GPU|MIG)-[A-Za-z0-9-]+, [0-9]+, ' | head -n 1000)
  containers=
  if [ -n "$rows" ]; then
    containers=$(timeout 10 docker ps --no-trunc --filter label=kit.cluster --format '{{.ID}} {{.Label "kit.cluster"}}' 2>/dev/null)
  fi
  printf '%s\n' "$rows" | while IFS=', ' read -r gpu pid size _; do
    # A process that ended since then is of no interest.
    if [ -d "/proc/${pid:-none}" ]; then
      user=$(stat -c %U "/proc/$pid" 2>/dev/null)
      if [ "${user:-UNKNOWN}" = UNKNOWN ]; then user=$(stat -c %u "/proc/$pid" 2>/dev/null); fi
      id=$(grep -oE '[0-9a-f]{64}' "/proc/$pid/cgroup" 2>/dev/null | head -n 1)
      cluster=$(printf '%s\n' "$containers" | sed -n "s/^${id:-none} //p" | head -n 1)
      echo "$gpu $pid $size ${user:--} ${cluster:--} $(tr -cd '[:print:]' <"/proc/$pid/comm" 2>/dev/null)"
    fi
  done
  if [ -n "$1" ]; then
    # One that was late is late again.
    case $text in
      *'did not answer within'*) ;;
      *) smi -L | head -n 1000 | sed 's/^/has /' ;;
    esac
    # shellcheck disable=SC2154
    sh -c "$gpu_node_program" kit-gpu_node "$1"
  fi
fi
exit 0
