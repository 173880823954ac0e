# Leaves a swarm if kit added this VM to it and nobody else uses it. Arguments: FILE STAY GONE CLUSTER. FILE has the ID of
# this VM's node. STAY has the IDs of nodes that must stay, or all. GONE has the IDs of nodes that leave or have left.
# It fails if this VM is the head of CLUSTER and still has its stack. Needs keeps_stack.sh before it.
# Prints 'left ID', 'stays for HOSTNAME' if a member keeps its manager, or 'keeps KIND NAME' for each thing that would
# be lost and that kit did not make.
file=$1
[ -e "$file" ] || exit 0
member=$(cat "$file")
tidy() { rm -f -- "$file" && rmdir "${file%/*}" 2>/dev/null || true; }
read_info() { timeout 15 docker info --format "{{.Swarm.$1}}"; }
state=$(read_info LocalNodeState) && node=$(read_info NodeID) && manager=$(read_info ControlAvailable) || exit 1
# The VM is in no swarm, or in another one by now: do nothing.
if [ "$state" = inactive ] || { [ "$member" != "$node" ] && [ "$member" != pending ]; }; then tidy; exit 0; fi
if [ "$manager" = true ] && keeps_stack "$4"; then
  echo "Swarm still runs the stack of $4, which this host manages" >&2
  exit 1
fi
case " $2 " in *' all '* | *" $node "*) exit 0 ;; esac
[ -z "$(docker ps --quiet --filter label=com.docker.swarm.task.id)" ] || exit 0
# Services keep their swarm, as a task here does. Nobody is advised to leave it by force: another manager may need this one.
if [ "$manager" = true ] && [ -n "$(docker service ls --quiet)" ]; then exit 0; fi
# Lists overlay networks that containers of this VM use, and, on a manager, all that the swarm stores. kit makes no such
# networks, and no configs. Its secrets have a label.
belongings() {
  networks=$(docker network ls --quiet --filter scope=swarm) || return 1
  printf '%s\n' "$networks" |
    xargs -r docker network inspect --format '{{if not .Ingress}}keeps network {{.Name}}{{end}}' || return 1
  [ "$manager" = true ] || return 0
  docker secret ls --format '{{if not (.Label "kit.cluster")}}keeps secret {{.Name}}{{end}}' &&
    docker config ls --format 'keeps config {{.Name}}'
}
kept=$(belongings) || exit 1
if printf '%s\n' "$kept" | grep '^keeps '; then exit 0; fi
if [ "$manager" = true ]; then
  # The manager leaves last, and only if nobody needs it. It learns about 10 s late that a member left.
  for other in $(docker node ls --format '{{.ID}} {{.Status}}' | grep -v ' Down$' | cut -d' ' -f1); do
    case " $node $3 " in *" $other "*) continue ;; esac
    echo "stays for $(docker node inspect --format '{{.Description.Hostname}}' "$other")"
    exit 0
  done
fi
docker swarm leave --force >/dev/null || exit 1
tidy
echo "left $node"
