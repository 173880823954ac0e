# Prints which GPUs and MIG devices this VM's node of a cluster sees: 'sees UUID' for each, or 'says TEXT' if it sees
# none. Arguments: CLUSTER. Prints nothing if no node runs, or if its image has no nvidia-smi and it has devices of NVIDIA.
# Only a process in the container shows that the engine took its GPUs away: a daemon-reload changes its device cgroup.
export LC_ALL=C
node=$(timeout 10 docker ps --no-trunc --quiet --filter "label=kit.cluster=$1" --filter label=kit.service \
  --filter status=running 2>/dev/null | head -n 1)
if [ -n "$node" ]; then
  text=$(timeout -k 2 20 docker exec "$node" nvidia-smi -L 2>&1 </dev/null | head -c 65536)
  rows=$(printf '%s\n' "$text" | sed -nE 's,^ *(GPU [0-9]+:|MIG ).*\(UUID: ((GPU|MIG)-[A-Za-z0-9/-]+)\)$,\2,p')
  if [ -n "$rows" ]; then
    printf '%s\n' "$rows" | sed 's/^/sees /'
  else
    case $text in
      *'not found'*)
        devices=$(timeout 10 docker exec "$node" sh -c 'ls -d /dev/nvidia[0-9]*' 2>/dev/null </dev/null | grep '^/dev/')
        ;;
      *) devices= ;;
    esac
    text=$(printf '%s\n' "$text" | head -n 1 | tr -cd '[:print:]' | cut -c 1-200)
    if [ -n "$text" ] && [ -z "$devices" ]; then echo "says $text"; fi
  fi
fi
exit 0
