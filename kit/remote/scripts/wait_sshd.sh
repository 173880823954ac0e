# Waits until something listens on ADDRESS:PORT. Arguments: HEX (as /proc/net/tcp writes it) SECONDS NAME (of the node).
# On failure, prints the container's state and last lines, and exits with 1. Needs node_name.sh before it.
end=$(($(uptime_s) + $2))
# Read the clock after each look, so that at least one look happens.
while :; do
  if awk -v want="$1" 'FNR > 1 && $4 == "0A" && $2 == want {found = 1} END {exit !found}' /proc/net/tcp; then
    exit 0
  fi
  node=$(node_of "$3")
  state=$(docker inspect --format '{{.State.Status}}:{{.RestartCount}}' "$node" 2>&1) || state=gone
  case $state in
    running:0 | created:0 | running:1 | restarting:1) sleep 0.2 ;;
    # Swarm starts a new task in a moment.
    gone) [ -e "$(node_folder "$3")/node.env" ] || break; sleep 0.2 ;;
    *) break ;;
  esac
  [ "$(uptime_s)" -le "$end" ] || break
done
echo "container $3: ${state:-unknown}"
docker logs --tail 15 "$(node_of "$3" --all)" 2>&1
exit 1
