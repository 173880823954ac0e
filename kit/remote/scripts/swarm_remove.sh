# On a manager, removes a cluster's services, secrets and node labels from its swarm, and waits until no task is left.
# Elsewhere it does nothing. Arguments: CLUSTER. Prints 'removed WHAT' for each thing, 'manager', 'stay ID' for each node
# that another kit cluster uses, and 'stay all' if other services exist.
# Needs update_node.sh before it.
cluster=$1
command -v docker >/dev/null 2>&1 || exit 0
[ "$(timeout 15 docker info --format '{{.Swarm.ControlAvailable}}' 2>/dev/null)" = true ] || exit 0
echo manager
services=$(docker service ls --quiet --filter "label=kit.cluster=$cluster") || exit 1
for service in $services; do
  name=$(docker service inspect --format '{{.Spec.Name}}' "$service")
  docker service rm "$service" >/dev/null || exit 1
  echo "removed service $name"
done
# Only its node reports the end of a task, so a lost node never reports it.
end=$(($(date +%s) + 30))
while [ -n "$services" ] && [ "$(date +%s)" -le "$end" ]; do
  tasks=$(docker ps --quiet --filter "label=kit.cluster=$cluster" --filter label=com.docker.swarm.task.id)
  [ -n "$tasks" ] || break
  sleep 0.2
done
for secret in $(docker secret ls --quiet --filter "label=kit.cluster=$cluster"); do
  name=$(docker secret inspect --format '{{.Spec.Name}}' "$secret")
  docker secret rm "$secret" >/dev/null || exit 1
  echo "removed secret $name"
done
for node in $(docker node ls --quiet); do
  labels=$(docker node inspect --format '{{range $key, $value := .Spec.Labels}}{{$key}} {{end}}' "$node") || continue
  for label in $labels; do
    case $label in
      "kit.$cluster") update_node --label-rm "$label" "$node" || exit 1 ;;
      kit.*) echo "stay $node" ;;
    esac
  done
done
# Services with kit's label belong to kit's clusters. All others belong to somebody else.
for service in $(docker service ls --quiet); do
  whose=$(docker service inspect --format '{{index .Spec.Labels "kit.cluster"}}' "$service" 2>/dev/null)
  [ -n "$whose" ] || { echo 'stay all'; break; }
done
exit 0
