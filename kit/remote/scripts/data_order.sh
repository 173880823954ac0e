# Passes an order on to the stager of a data set on this VM. Arguments: CLUSTER NAME FOLDER HOW [OPTION]...
# HOW is start: start the stager's container if none runs, with these further options of docker run; mount: start one
# that may mount, unless one runs; or running: fail if none runs. Standard input is the order. First prints lines that
# begin with kit-data, up to 'kit-data go'; kit reads them (kit/remote/data/order.py), and kitdata.relay in the container
# prints the last two. Then prints what the stager answers.
cluster=$1
name=$2
folder=$3
how=$4
shift 4
container=kit-$cluster-data-$name
refuse() {
  echo "kit-data refused $1"
  shift
  [ $# -eq 0 ] || printf '%s\n' "$*" >&2
  exit 1
}
node=
# Sets pid and options of the stager's container, or pid='' if it does not run; and image, that of the node if it has one.
look_at_stager() {
  pid=
  # Another data set's container has the same name where its cluster's name and its own make up the same words.
  # shellcheck disable=SC2086  # without a node, there is no such word
  about=$(docker inspect --format '{{.Image}} {{.State.Running}} {{index .Config.Labels "kit.data"}} {{.State.Pid}} {{index .Config.Labels "kit.data.options"}}' --type container $node "$container" 2>/dev/null)
  image=${about%% *}
  case $about in
    *" true $cluster/$name "*)
      about=${about##* true "$cluster/$name" }
      pid=${about%% *}
      options=${about#"$pid" }
      ;;
  esac
}
# Passes the order on to the stager. Returns if that does not take it, because it has just ended.
pass_on() {
  # Its standard output goes to kit at once. What comes on standard error begins with this word once it takes the order.
  exec 3>&1
  # To root, the stager's socket is a file of its process. A program in its container takes three times as long.
  socket=/proc/$pid/root/run/kit-data/socket
  if [ -n "$pid" ] && [ -S "$socket" ] && command -v python3 >/dev/null 2>&1; then
    code=0
    # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
    said=$(KIT_DATA_SOCKET=$socket python3 -IS -c "$relay_program" order hello 2>&1 >&3 3>&-) || code=$?
    is_taken
  fi
  code=0
  said=$(docker exec --interactive "$container" kit-data order hello 2>&1 >&3 3>&-) || code=$?
  is_taken
  case $said in
    *'usage: kit-data'*) refuse version ;;
    *kit-data*'not found'* | *'not found'*kit-data*) refuse no-stager "$said" ;;
  esac
}
# Ends this script if the stager has taken the order.
is_taken() {
  case $said in
    taken*)
      said=${said#taken}
      [ -z "$said" ] || printf '%s\n' "$said" >&2
      exit "$code"
      ;;
  esac
}
# Succeeds if the stager that runs has this folder, and not one that kit.yaml named earlier.
is_for_volume() {
  docker inspect --format '{{range .HostConfig.Binds}}{{println .}}{{end}}' --type container "$container" 2>/dev/null |
    grep -qxF -- "$volume"
}
# Starts the container. Options differ where the source or the folder was changed, and the image after a deploy.
start() {
  # One that mounts keeps the image of an earlier deploy.
  digest=mount
  while [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    look_at_stager
    [ -n "$image" ] || refuse engine
    if [ "$how" != mount ]; then digest=$(printf '%s\n' "$image" "$volume" "$@" | sha256sum | cut -c 1-32); fi
    if [ -n "$pid" ]; then
      # One that mounts has more capabilities than a stager needs, and does not end by itself.
      if [ "$how" = start ] && [ "$options" = mount ]; then refuse mounted; fi
      if [ "$how" = mount ] && [ "$options" != mount ] && [ "$tries" -ge 60 ]; then refuse staging; fi
      # A stager with other options ends by itself, unless it stages. One that stages elsewhere is of no use here.
      if [ "$options" = "$digest" ]; then return 0; fi
      if [ "$tries" -ge 60 ]; then
        if is_for_volume; then return 0; fi
        # It may have ended between the two looks.
        look_at_stager
        [ -z "$pid" ] || refuse staging
        continue
      fi
      sleep 0.3
      continue
    fi
    # A mounter that was killed has left a mount that fails every read.
    if [ "$how" = mount ]; then unmount_store "$folder/mount" || refuse engine "$folder/mount cannot be unmounted"; fi
    said=$(docker run --detach --rm --name "$container" --label "kit.data=$cluster/$name" \
      --label "kit.data.options=$digest" --network host --read-only --cap-drop ALL \
      --security-opt no-new-privileges --userns host --pids-limit 4096 --tmpfs /run/kit-data:mode=700 \
      --volume "$volume" "$@" "$image" kit-data serve 2>&1 9<&-) && return 0
    case $said in
      # One that has just ended, or that another kit is starting. A dead one stays after a crash of the engine.
      *'is already in use'*)
        look_at_stager
        if [ -z "$pid" ]; then docker rm --force "$container" >/dev/null 2>&1; fi
        sleep 0.3
        ;;
      *'bind source path does not exist'*) refuse no-source "$said" ;;
      *'/dev/fuse'*) refuse no-fuse "$said" ;;
      *'not a shared mount'*) refuse not-shared "$said" ;;
      *kit-data*'not found'* | *'not found'*kit-data*) refuse no-stager "$said" ;;
      *) refuse engine "$said" ;;
    esac
  done
  refuse engine "$said"
}

command -v docker >/dev/null 2>&1 || refuse engine 'docker is missing'
if [ -r "/opt/kit/$cluster/cluster.json" ]; then
  printf 'kit-data record %s\n' "$(tr -d '\n' <"/opt/kit/$cluster/cluster.json")"
fi
volume=$folder:/data
case $how in
  start | mount)
    node=$(docker ps --all --quiet --no-trunc --filter "label=kit.cluster=$cluster" --filter label=kit.service | head -n 1)
    [ -n "$node" ] || refuse no-node
    below=files
    if [ "$how" = mount ]; then
      below=mount
      volume=$volume:rshared
      set -- --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined
    fi
    tries=0
    while [ "$tries" -lt 100 ]; do
      # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
      said=$(sh -c "$make_data_folder_program" kit-make_data_folder "$folder/$below" 2>&1) || refuse folder "$said"
      # data_remove.sh holds this lock while it removes.
      exec 9<"$folder"
      if command -v flock >/dev/null 2>&1 && ! flock -w 60 9; then refuse removed; fi
      start "$@"
      exec 9<&-
      pass_on
      sleep 0.3
    done
    refuse engine "its stager ends again and again: $said"
    ;;
  *)
    tries=0
    while [ "$tries" -lt 40 ]; do
      look_at_stager
      [ -n "$pid" ] || break
      pass_on
      # One that has had nothing to do ends just now, and the engine still lists it for a moment.
      tries=$((tries + 1))
      sleep 0.25
    done
    refuse not-running
    ;;
esac
