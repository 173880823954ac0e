# Before other scripts: update_node OPTION... NODE, on a manager. The docker command looks at a node, and Swarm refuses what
# it then asks for where the node changed meanwhile, as one does that has just joined: the same is asked again.
update_node() {
  for pause in 0.2 0.4 0.8 1.6 3 0; do
    said=$(docker node update "$@" 2>&1) && return 0
    case $said in *'out of sequence'*) sleep "$pause" ;; *) break ;; esac
  done
  printf '%s\n' "$said" >&2
  return 1
}
