# Waits until something listens on ADDRESS:PORT. Arguments: HEX (as /proc/net/tcp writes it) SECONDS CONTAINER.
# On failure prints the container's state and last lines, exit 1.
end=$(($(date +%s) + $2))
while [ "$(date +%s)" -le "$end" ]; do
  if awk -v want="$1" 'FNR > 1 && $4 == "0A" && $2 == want {found = 1} END {exit !found}' /proc/net/tcp; then
    exit 0
  fi
  state=$(docker inspect --format '{{.State.Status}}:{{.RestartCount}}' "$3" 2>&1) || state=gone
  case $state in
    running:0 | created:0 | running:1 | restarting:1) sleep 0.2 ;;
    *) break ;;
  esac
done
echo "container $3: ${state:-unknown}"
docker logs --tail 15 "$3" 2>&1
exit 1
