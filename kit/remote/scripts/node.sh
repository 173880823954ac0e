# Runs `docker exec` or `docker logs` on this VM's node. Arguments: NAME exec|logs [OPTION]... -- [WORD]...
# Needs node_name.sh before it.
name=$1
verb=$2
shift 2
all=
[ "$verb" != logs ] || all=--all
node=$(node_of "$name" $all)
own="$(node_folder "$name")/node.env"
# The container's own environment is the same on all nodes.
if [ "$verb" = exec ] && [ -r "$own" ]; then set -- --env-file "$own" "$@"; fi
# The container replaces the first --.
left=$#
placed=
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  if [ -z "$placed" ] && [ "$word" = -- ]; then
    word=$node
    placed=yes
  fi
  set -- "$@" "$word"
done
exec docker "$verb" "$@"
