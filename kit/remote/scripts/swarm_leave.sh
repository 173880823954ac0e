# Leaves a swarm if kit added this VM to it and nobody else uses it. Arguments: FILE STAY GONE. FILE has the ID of this
# VM's node. STAY has the IDs of nodes that must stay, or all. GONE has the IDs of nodes that leave or have left.
# Prints 'left ID', or 'stays for HOSTNAME' if a member keeps its manager.
file=$1
[ -e "$file" ] || exit 0
member=$(cat "$file")
tidy() { rm -f -- "$file" && rmdir "${file%/*}" 2>/dev/null || true; }
read_info() { timeout 15 docker info --format "{{.Swarm.$1}}"; }
state=$(read_info LocalNodeState) && node=$(read_info NodeID) && manager=$(read_info ControlAvailable) || exit 1
# The VM is in no swarm, or in another one by now: do nothing.
if [ "$state" = inactive ] || { [ "$member" != "$node" ] && [ "$member" != pending ]; }; then tidy; exit 0; fi
case " $2 " in *' all '* | *" $node "*) exit 0 ;; esac
[ -z "$(docker ps --quiet --filter label=com.docker.swarm.task.id)" ] || exit 0
if [ "$manager" = true ]; then
  # The manager leaves last, and only if nobody needs it. It learns about 10 s late that a member left.
  [ -z "$(docker service ls --quiet)" ] || exit 0
  for other in $(docker node ls --format '{{.ID}} {{.Status}}' | grep -v ' Down$' | cut -d' ' -f1); do
    case " $node $3 " in *" $other "*) continue ;; esac
    echo "stays for $(docker node inspect --format '{{.Description.Hostname}}' "$other")"
    exit 0
  done
fi
docker swarm leave --force >/dev/null || exit 1
tidy
echo "left $node"
