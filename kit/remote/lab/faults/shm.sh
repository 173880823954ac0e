# shellcheck shell=bash
# Makes the shared memory of the cluster's node small. It needs a deployed cluster.

remount() { nsenter -t "$1" -m mount -o "remount,size=$2" /dev/shm; }
inject() {
  local pid size
  pid=$(docker ps -q --filter label=kit.cluster | head -n 1 | xargs -r docker inspect --format '{{.State.Pid}}')
  if [ -z "$pid" ]; then fail "no node runs on this host: kit deploy"; fi
  size=$(nsenter -t "$pid" -m df -k --output=size /dev/shm | tail -n 1)
  note before "$pid ${size// /}k"
  remount "$pid" 8m
}
mend() {
  local pid size
  # The node may be gone, and its memory with it.
  while read -r pid size; do remount "$pid" "$size" 2>/dev/null || true; done < <(noted before)
}
