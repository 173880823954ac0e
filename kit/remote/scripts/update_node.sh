# A prefix for other scripts: update_node OPTION... NODE, on a manager. The docker command reads a node, then changes it.
# Swarm refuses the change if the node has changed in between, as a new member does. Then this tries again.
update_node() {
  for pause in 0.2 0.4 0.8 1.6 3 0; do
    said=$(docker node update "$@" 2>&1) && return 0
    case $said in *'out of sequence'*) sleep "$pause" ;; *) break ;; esac
  done
  printf '%s\n' "$said" >&2
  return 1
}
