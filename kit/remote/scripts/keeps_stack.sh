# Defines keeps_stack CLUSTER: it succeeds if this VM is the head of the cluster in a swarm that it manages, and services of
# the cluster still run there. A manager that is not the head does not keep them.
keeps_stack() {
  [ "$(timeout 15 docker node inspect --format "{{index .Spec.Labels \"kit.$1\"}}" self 2>/dev/null)" = head ] &&
    [ -n "$(timeout 15 docker service ls --quiet --filter "label=kit.cluster=$1" 2>/dev/null)" ]
}
