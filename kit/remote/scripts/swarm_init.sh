# Creates a swarm with this VM as its manager. Arguments: ADDRESS PORT FILE BEAT. Prints the node's ID.
# FILE records that kit did this. It is written before the swarm, so that it also exists if kit is killed.
umask 022
mkdir -p "${3%/*}" && echo pending >"$3" || exit 1
# Swarm gives up a node after three heartbeats, and ends its tasks when it is back. A run survives a link that is cut for
# 20 s, so its nodes must, too. Do not print init's output: it contains the join token.
if ! said=$(docker swarm init --advertise-addr "$1" --listen-addr "$1:$2" --data-path-addr "$1" \
  --dispatcher-heartbeat "$4" 2>&1); then
  rm -f "$3"
  printf '%s\n' "$said" >&2
  exit 1
fi
docker info --format '{{.Swarm.NodeID}}' >"$3" && cat "$3"
