# Takes a cluster off this VM. Arguments: CLUSTER FOLDER [IMAGE]... Prints a line for each thing that it removed.
cluster=$1
folder=$2
shift 2
# A Compose that a killed deploy left behind would bring a container back.
if [ -d "$folder" ] && command -v flock >/dev/null 2>&1; then flock -w 120 "$folder" true; fi
# An engine that does not answer may hold containers that come back with it: then nothing is removed.
ids=
if command -v docker >/dev/null 2>&1; then
  ids=$(docker ps --all --quiet --filter "label=kit.cluster=$cluster") || exit 1
fi
for id in $ids; do
  name=$(docker inspect --format '{{.Name}}' "$id" 2>/dev/null)
  docker rm --force --volumes "$id" >/dev/null || exit 1
  echo "container ${name#/}"
done
case $folder in
  /opt/kit/?*)
    if [ -d "$folder" ]; then
      rm -rf -- "$folder" || exit 1
      echo "folder $folder"
    fi
    rmdir /opt/kit 2>/dev/null || true
    ;;
esac
for image in "$@"; do
  if docker image inspect "$image" >/dev/null 2>&1; then
    docker image rm "$image" >/dev/null && echo "image $image"
  fi
done
exit 0
