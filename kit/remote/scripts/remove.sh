# Removes a cluster from this VM. Arguments: CLUSTER FOLDER WHAT [IMAGE]... -- [DATA]... Prints a line for each thing that
# it removed, 'kept NAME' for each data set that stays, and 'home stays'. WHAT is all, or keep: then the folders of runs
# that made something stay, and the home folders into which somebody wrote. With an IMAGE, all images of kit go that no
# container uses. DATA is the folder of a data set; others are found in the usual places, and on disks that kit.yaml named
# earlier. It removes nothing if Swarm would start the containers again. Needs end_stagers.sh, data_places.sh, node_lock.sh and
# keeps_stack.sh before it.
cluster=$1
folder=$2
what=$3
shift 3

# Succeeds if a run has a file other than a folder in its output, checkpoints or working folder. What cannot be read
# counts: the message of find is not empty.
made() {
  [ ! -L "$1" ] || return 1
  for kind in output checkpoints work; do
    [ -d "$1/$kind" ] && [ ! -L "$1/$kind" ] && [ -n "$(find "$1/$kind" ! -type d -print 2>&1 | head -n 1)" ] && return 0
  done
  return 1
}
# Succeeds if this is a folder in var, and no link. Ranks could write to var, but no rank is left: what is checked here
# does not change any more.
in_var() { [ -d "$folder/var" ] && [ ! -L "$folder/var" ] && [ -d "$folder/var/$1" ] && [ ! -L "$folder/var/$1" ]; }
# Succeeds if a run made something.
runs_stay() {
  in_var runs || return 1
  for run in "$folder/var/runs"/* "$folder/var/runs"/.[!.]*; do
    if made "$run"; then return 0; fi
  done
  return 1
}
# Succeeds if somebody wrote into a home folder: if it has a file that kit-home did not list as one of the image. A rank
# may have written that list, too, and then loses only what is its own. What cannot be read counts.
home_stays() {
  in_var home || return 1
  list=$folder/var/home/.of-image
  if [ -L "$list" ] || ! [ -f "$list" ] || ! [ -s "$list" ] || [ -n "$(find "$list" -size +2048)" ]; then list=; fi
  [ -n "$(
    cd "$folder/var/home" || { echo unreadable && exit; }
    # shellcheck disable=SC2185  # the folder is .
    find . ! -type d ! -path './.of-image*' -exec stat -c '%s %Y %n' {} + 2>&1 |
      if [ "$list" ]; then grep -Fxv -f .of-image; else cat; fi | head -n 1
  )" ]
}
# Removes all but the folders of runs that made something, and home folders if $homes says so. Fails if something else
# could not be removed.
remove_rest() {
  failed=
  others=$(find "$folder" -mindepth 1 -maxdepth 1 ! -name var -print | head -n 1)
  if [ "$runs" ]; then
    for run in "$folder/var/runs"/* "$folder/var/runs"/.[!.]*; do
      made "$run" || rm -rf -- "$run" || failed=yes
    done
  fi
  find "$folder" -mindepth 1 -maxdepth 1 ! -name var -exec rm -rf -- {} + || failed=yes
  # Nothing has the name of an empty word.
  find "$folder/var" -mindepth 1 -maxdepth 1 ! -name "$runs" ! -name "$homes" -exec rm -rf -- {} + || failed=yes
  [ ! "$failed" ] || return 1
  if [ "$others" ]; then echo "folder $folder, except what runs made"; fi
}
# What somebody mounted below the folder is not the cluster's. busybox's rm has no --one-file-system.
real=$(readlink -f -- "$folder")
while [ "$real" ] && read -r _ _ _ _ place _; do
  case $place in
    "$real"/*)
      echo "$place is mounted below $folder: unmount it first; nothing was removed" >&2
      exit 1
      ;;
  esac
done </proc/self/mountinfo
# A Compose process of a killed deploy would bring a container back. So wait for it. And what a killed kit down still
# removes must not be what the next deploy writes.
lock=${folder%/*}/.lock/$cluster.compose
if [ -d "$folder" ] || [ -e "$lock" ]; then hold_node "$folder" 2>/dev/null; fi
# Only a head in a swarm has this file. Without it, the next kit down would not know that the stack is here.
if [ -e "$folder/stack.yaml" ] && keeps_stack "$cluster"; then
  echo "Swarm still runs the stack of $cluster, which this host manages" >&2
  exit 1
fi
# An engine that does not answer may have containers that come back with it. Then remove nothing.
ids=
if command -v docker >/dev/null 2>&1; then
  # A busy engine answers within a minute, and one that hangs never does.
  ids=$(timeout 60 docker ps --all --quiet --filter "label=kit.cluster=$cluster")
  code=$?
  # The second code is that of busybox's timeout.
  case $code in 124 | 143) echo 'the engine did not answer within 60 s' >&2 ;; esac
  [ "$code" -eq 0 ] || exit 1
fi
end_stagers "$cluster" || exit 1
for id in $ids; do
  name=$(docker inspect --format '{{.Name}}' "$id" 2>/dev/null)
  remove_container "$id" || exit 1
  echo "container ${name#/}"
done
# The mounts of file systems (stage: none). Such a volume holds no data: the data is on its server.
if command -v docker >/dev/null 2>&1; then
  for volume in $(docker volume ls --quiet --filter "label=kit.cluster=$cluster"); do
    docker volume rm "$volume" >/dev/null && echo "volume $volume"
  done
fi
# What a killed copy of NCCL's plugin has left: a container that never started, and kit's name for the image.
if command -v docker >/dev/null 2>&1; then
  for id in $(docker ps --all --quiet --filter "label=kit.plugin=$cluster"); do
    docker rm --force --volumes "$id" >/dev/null && echo "container $id"
  done
  for image in $(docker image ls --filter "reference=kit-$cluster-nccl-plugin" --format '{{.Repository}}:{{.Tag}}'); do
    docker image rm "$image" >/dev/null && echo "image $image"
  done
fi
# What a killed network probe has left.
if command -v docker >/dev/null 2>&1; then
  for id in $(docker network ls --quiet --filter "label=kit.cluster=$cluster"); do
    docker network rm "$id" >/dev/null 2>&1 && echo "network $id"
  done
fi
# Staged data stays: bringing it may have taken hours. What a deploy made for it goes if nothing was brought.
images=
while [ $# -gt 0 ]; do
  [ "$1" != -- ] || { shift; break; }
  images="$images $1"
  shift
done
keep_data() {
  is_own_set "$1" || return 0
  if [ -n "$(find "$1" -mindepth 1 ! -path "$1/files" ! -path "$1/mount" -print 2>/dev/null | head -n 1)" ]; then
    echo "kept ${1##*/}"
  else
    rmdir "$1/files" "$1/mount" 2>/dev/null
    # A folder that is not empty stays.
    rmdir "$1" "${1%/*}" "${1%/*/*}" 2>/dev/null
  fi
}
for data in "$@"; do keep_data "$data"; done
data_places "$cluster" | while IFS= read -r place; do
  for data in "$place"/*; do keep_data "$data" </dev/null; done
done
forget_places "$cluster"
case $folder in
  /opt/kit/?*)
    # A failure is no reason to remove what runs made.
    runs='' homes=''
    if [ "$what" = keep ]; then
      if runs_stay; then runs=runs; fi
      if home_stays; then homes=home; fi
    fi
    if [ "$runs$homes" ]; then
      remove_rest || exit 1
      [ ! "$homes" ] || echo 'home stays'
    elif [ -d "$folder" ]; then
      rm -rf -- "$folder" || exit 1
      echo "folder $folder"
    fi
    rm -f -- "$lock"
    rmdir "${lock%/*}" /opt/kit 2>/dev/null || true
    ;;
esac
# What an interrupted copy of the image left for the next one.
root=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null)
if [ -n "$root" ]; then
  parts=$(docker image ls --all --quiet --filter "label=kit.ship.part=$cluster" 2>/dev/null | sort -u)
  for part in $parts; do docker image rm --force "$part" >/dev/null 2>&1; done
  if [ -d "$root/kit-ship/$cluster" ]; then
    rm -rf -- "$root/kit-ship/$cluster"
    echo "layers in $root/kit-ship/$cluster"
  fi
  rmdir "$root/kit-ship" 2>/dev/null || true
fi
for image in $images; do
  if docker image inspect "$image" >/dev/null 2>&1; then
    docker image rm "$image" >/dev/null && echo "image $image"
  fi
done
# Earlier deploys left images under other tags of kit. The engine keeps those of another cluster's containers.
if [ "$images" ]; then
  docker image ls --filter 'reference=kit:*' --format '{{.Repository}}:{{.Tag}}' 2>/dev/null |
    grep -x 'kit:[a-z-]*-[0-9a-f]\{12\}' | while IFS= read -r image; do
      docker image rm "$image" </dev/null >/dev/null 2>&1 && echo "image $image"
    done
fi
exit 0
