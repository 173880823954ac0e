# Compares what this VM's node has at TO with what is mounted at FOLDER/mount. A node that started while an earlier mount was
# there still has that one. Arguments: NAME (of the node) FOLDER TO HOW. HOW is look: then prints 'stale' for such a
# node; or restart: then restarts it. Needs node_name.sh and stores.sh before it.
node=$(node_of "$1")
pid=$(docker inspect --format '{{.State.Pid}}' "$node" 2>/dev/null) || exit 0
[ "${pid:-0}" -gt 0 ] || exit 0
[ "$(store_device "$3" "/proc/$pid/mountinfo")" != "$(store_device "$(real_store "$2/mount")")" ] || exit 0
echo stale
[ "$4" = restart ] || exit 0
# Swarm replaces a task that ends.
if [ "$node" = "$1" ]; then docker restart "$node" >/dev/null; else docker stop "$node" >/dev/null; fi
