# On a manager, removes a cluster's services, secrets and node labels from its swarm, and waits until no task is left.
# Elsewhere it does nothing. Arguments: CLUSTER FOLDER MEMBERS. FOLDER is the cluster's. MEMBERS has the IDs of nodes that the
# caller takes down, too, or all. Prints 'removed WHAT' for each thing, 'manager', 'stay ID' for each node that another kit
# cluster uses, and 'stay all' if other services exist.
# It removes nothing if this VM is a worker and runs the cluster's task: it prints 'worker' and the managers' addresses. It
# also removes nothing if nodes outside MEMBERS keep the cluster. For each it prints 'apart ROLE HOSTNAME', where ROLE is the
# label of this VM's node, or -.
# Needs update_node.sh and node_lock.sh before it.
cluster=$1
folder=$2
members=$3
command -v docker >/dev/null 2>&1 || exit 0
info=$(timeout 15 docker info --format '{{.Swarm.ControlAvailable}} {{.Swarm.LocalNodeState}} {{.Swarm.NodeID}}{{range .Swarm.RemoteManagers}} {{.Addr}}{{end}}' 2>/dev/null)
# A slow manager must not look like a host without a stack. Only a deploy with Swarm writes node.env.
if [ $? -eq 124 ] && [ -e "$folder/node.env" ]; then
  echo 'the engine did not answer within 15 s' >&2
  exit 1
fi
# shellcheck disable=SC2086  # words, in which nothing is a pattern
set -- $info
if [ "$1" != true ]; then
  [ "$1 $2" = 'false active' ] || exit 0
  shift 3
  # A host that left the cluster runs no task of it. Its last task may need 10 s to end.
  end=$(($(uptime_s) + 15))
  while [ -n "$(docker ps --quiet --filter "label=kit.cluster=$cluster" --filter label=com.docker.swarm.task.id)" ]; do
    [ "$(uptime_s)" -le "$end" ] || { echo "worker $*"; break; }
    sleep 0.5
  done
  exit 0
fi
own=$3
# A head that lives keeps its cluster. From a host that left the cluster, every node of it does, also one that restarts just
# now. The head itself, and a host whose head is lost, may take the cluster down.
apart() {
  form="{{.ID}} {{.Status.State}} {{or (index .Spec.Labels \"kit.$cluster\") \"-\"}} {{.Description.Hostname}}"
  # shellcheck disable=SC2046  # IDs
  nodes=$(docker node inspect --format "$form" $(docker node ls --quiet)) || return 1
  role=$(printf '%s\n' "$nodes" | while read -r node _ label _; do [ "$node" != "$own" ] || echo "$label"; done)
  [ "$role" != head ] || return 0
  printf '%s\n' "$nodes" | while read -r node state label name; do
    case " $own $members " in *" $node "*) continue ;; esac
    case "$role $state $label" in 'left '*' head' | 'left '*' node' | *' ready head') echo "apart ${role:--} $name" ;; esac
  done
}
if [ "$members" != all ]; then
  keepers=$(apart) || exit 1
  if [ -n "$keepers" ]; then
    printf '%s\n' "$keepers"
    exit 0
  fi
fi
echo manager
# A killed kit leaves this running. The next one must not find a service or a secret that is about to go.
if [ -d "$folder" ]; then hold_node "$folder" 2>/dev/null; fi
services=$(docker service ls --quiet --filter "label=kit.cluster=$cluster") || exit 1
for service in $services; do
  name=$(docker service inspect --format '{{.Spec.Name}}' "$service")
  docker service rm "$service" >/dev/null || exit 1
  echo "removed service $name"
done
# Only its node reports the end of a task, so a lost node never reports it.
end=$(($(uptime_s) + 30))
while [ -n "$services" ] && [ "$(uptime_s)" -le "$end" ]; do
  tasks=$(docker ps --quiet --filter "label=kit.cluster=$cluster" --filter label=com.docker.swarm.task.id)
  [ -n "$tasks" ] || break
  sleep 0.2
done
for secret in $(docker secret ls --quiet --filter "label=kit.cluster=$cluster"); do
  name=$(docker secret inspect --format '{{.Spec.Name}}' "$secret")
  docker secret rm "$secret" >/dev/null || exit 1
  echo "removed secret $name"
done
# Prints the ID and the keys of the labels of nodes, one node a line.
labels_of() {
  docker node inspect --format '{{.ID}}{{range $key, $value := .Spec.Labels}} {{$key}}{{end}}' "$@"
}
ids=$(docker node ls --quiet)
# One command for all nodes: one for each takes too long in a large swarm. A node that has just gone must not hide the others.
# shellcheck disable=SC2086  # IDs
nodes=$(labels_of $ids 2>/dev/null) || nodes=$(for node in $ids; do labels_of "$node"; done)
printf '%s\n' "$nodes" | while read -r node labels; do
  for label in $labels; do
    case $label in
      "kit.$cluster") update_node --label-rm "$label" "$node" || exit 1 ;;
      kit.*) echo "stay $node" ;;
    esac
  done
done || exit 1
# Services with kit's label belong to kit's clusters. All others belong to somebody else.
for service in $(docker service ls --quiet); do
  whose=$(docker service inspect --format '{{index .Spec.Labels "kit.cluster"}}' "$service" 2>/dev/null)
  [ -n "$whose" ] || { echo 'stay all'; break; }
done
exit 0
