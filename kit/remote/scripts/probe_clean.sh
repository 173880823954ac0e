# Removes what a network probe created on this VM. Arguments: MARK. Its containers end with their processes.
mark=$1
for environ in $(grep -lzsx "KIT_RUN=$mark" /proc/[0-9]*/environ 2>/dev/null); do
  pid=${environ#/proc/}
  kill -s KILL "${pid%/environ}" 2>/dev/null
done
command -v docker >/dev/null 2>&1 || exit 0
ids=$(docker ps --all --quiet --filter "label=kit.bench=$mark") || exit 1
for id in $ids; do remove_container "$id" || exit 1; done
# Swarm removes an overlay network only after its last container on any host. A worker reports that with a delay.
for id in $(docker network ls --quiet --filter "label=kit.bench=$mark"); do
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    said=$(docker network rm "$id" 2>&1) && break
    docker network inspect "$id" >/dev/null 2>&1 || { said=; break; }
    sleep 0.5
  done
  if docker network inspect "$id" >/dev/null 2>&1; then printf '%s\n' "$said" >&2; exit 1; fi
done
exit 0
