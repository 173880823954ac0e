# Makes a swarm with this VM as its manager. Arguments: ADDRESS PORT FILE BEAT. Prints the node's id.
# FILE says that kit did this: first that it is about to, so that it is known of a kit that was killed, too.
umask 022
mkdir -p "${3%/*}" && echo pending >"$3" || exit 1
# A node is given up after three beats, and whatever runs there ends when it is back: a run bears a link that is cut for
# 20 s, and so must its nodes. What init says on success has the token to join in it.
if ! said=$(docker swarm init --advertise-addr "$1" --listen-addr "$1:$2" --data-path-addr "$1" \
  --dispatcher-heartbeat "$4" 2>&1); then
  rm -f "$3"
  printf '%s\n' "$said" >&2
  exit 1
fi
docker info --format '{{.Swarm.NodeID}}' >"$3" && cat "$3"
