# Prints one VM's state. Changes nothing. Arguments: FOLDER IMAGE WANTED [PATH]...
# Standard input is a line with a mark that nobody else knows, so it is no argument: all users of a VM see arguments. Each
# section starts with '@@ MARK NAME'. Text of others, such as a label or a file's name, cannot start a section.
# IMAGE is a tag, or several with spaces between them. WANTED is what a deploy needs to know of Docker, compose or swarm, or otherwise state.
# kit.remote.cluster.observe reads this output. Its time limit is longer than the limits here together.
folder=$1
image=$2
cluster=${folder##*/}
lock=${folder%/*}/.lock/$cluster.compose
export LC_ALL=C
# nproc would print these variables of the login in place of the CPUs.
unset OMP_NUM_THREADS OMP_THREAD_LIMIT
mark=
read -r mark || true
section() { echo "@@ ${mark:+$mark }$1"; }

by_client() {
  # While a node is recreated or removed, perhaps for a killed kit, its port, its container and its files do not match. So
  # wait. Only node_lock.sh creates the lock.
  if command -v flock >/dev/null 2>&1; then (exec 9<"$lock" && flock -s -w 15 9) 2>/dev/null; fi

  section system
  echo "arch $(uname -m)"
  echo "cores $(nproc)"
  if command -v python3 >/dev/null 2>&1; then python3 --version 2>&1 | tr 'P' 'p'; fi
  awk '/^MemTotal:/ {print "memory_kib", $2}' /proc/meminfo
  huge=0
  huge_free=0
  for pages in /sys/kernel/mm/hugepages/hugepages-*kB; do
    [ -r "$pages/nr_hugepages" ] || continue
    size=${pages##*-}
    count=0
    unused=0
    read -r count <"$pages/nr_hugepages"
    read -r unused <"$pages/free_hugepages"
    case ${size%kB}$count$unused in *[!0-9]*) continue ;; esac
    huge=$((huge + ${size%kB} * count))
    huge_free=$((huge_free + ${size%kB} * unused))
  done
  if [ "$huge" -gt 0 ]; then printf 'hugepages_kib %d\nhugepages_free_kib %d\n' "$huge" "$huge_free"; fi
  if [ -r /etc/os-release ]; then (. /etc/os-release && echo "os ${PRETTY_NAME:-unknown}"); fi
  # Where the engine keeps images if its settings name a place.
  data=$(cat /etc/docker/daemon.json 2>/dev/null | tr '\n\t' '  ' | sed -n 's/.*"data-root" *: *"\(\/[^"\\]*\)".*/\1/p')
  free=$(df -Pk "${data:-/var/lib/docker}" 2>/dev/null || df -Pk /var/lib/docker 2>/dev/null || df -Pk /var 2>/dev/null || df -Pk /)
  echo "$free" | awk 'NR==2 {print "disk_free_kib", $4}'

  section addresses
  ip -4 -o addr show 2>/dev/null
  section route
  ip -4 route show default 2>/dev/null
  section listening
  awk 'FNR > 1 && $4 == "0A" {print $2}' /proc/net/tcp 2>/dev/null
  section udp
  awk 'FNR > 1 {print $2}' /proc/net/udp 2>/dev/null
  section absent
  # In the last part of a path, * is a pattern, as in observe.py.
  for path in "$@"; do
    (
      IFS=
      [ -e "$path" ] && exit
      # shellcheck disable=SC2231  # the pattern, in which nothing is split
      for one in "${path%/*}"/${path##*/}; do [ -e "$one" ] && exit; done
      exit 1
    ) || echo "$path"
  done

  if [ -d /dev/infiniband ] || [ -d /sys/class/infiniband ]; then
    section rdma
    for device in /dev/infiniband/*; do [ ! -e "$device" ] || echo "device ${device##*/}"; done
    for port in /sys/class/infiniband/*/ports/*; do
      [ -d "$port" ] || continue
      layer=$(head -n 1 "$port/link_layer" 2>/dev/null)
      place=${port#/sys/class/infiniband/}
      place="${place%%/*} ${port##*/}"
      echo "port $place $(head -n 1 "$port/state" 2>/dev/null)|$layer"
      [ "$layer" = Ethernet ] || continue
      # Of the 256 entries of a table, few are in use.
      index=-1
      while [ "$index" -lt 31 ]; do
        index=$((index + 1))
        gid=$(head -n 1 "$port/gids/$index" 2>/dev/null)
        kind=$(head -n 1 "$port/gid_attrs/types/$index" 2>/dev/null)
        if [ -z "$gid" ] || [ -z "$kind" ]; then continue; fi
        echo "gid $place $index $(head -n 1 "$port/gid_attrs/ndevs/$index" 2>/dev/null)|$kind|$gid"
      done
    done
  fi

  section gpus
  if command -v nvidia-smi >/dev/null 2>&1; then
    # shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
    smi() { sh -c "$smi_program" kit-smi "$@"; }
    query() { smi --query-gpu="$1" --format=csv,noheader,nounits; }
    fields=name,memory.total,uuid,index,pci.bus_id,driver_version
    rows=$(query "$fields,mig.mode.current,compute_cap")
    # nvidia-smi refuses all fields if its driver does not know one: before 510 compute_cap, before 450 MIG.
    case $rows in *'not a valid field'*) rows=$(query "$fields,mig.mode.current") ;; esac
    case $rows in *'not a valid field'*) rows=$(query "$fields") ;; esac
    printf '%s\n' "$rows"
    case $rows in *', Enabled'*) smi -L ;; esac
    section gpu_engine
    # shellcheck disable=SC2154
    sh -c "$gpu_engine_program"
    section gpu_node
    # shellcheck disable=SC2154
    if command -v docker >/dev/null 2>&1; then sh -c "$gpu_node_program" kit-gpu_node "$cluster"; fi
  fi

  section engine
  if command -v docker >/dev/null 2>&1; then
    info=$(timeout 15 docker info --format '{{json .}}' 2>&1)
    if [ $? -eq 124 ]; then section slow && echo engine && section engine; fi
  else
    info='no docker on the PATH'
  fi
  printf '%s\n' "$info"
  # Only a manager knows the members, the services of all stacks and this cluster's secrets.
  case $info in
    *'"ControlAvailable":true'*)
      inspect() { timeout 10 xargs -r docker "$1" inspect --format "$2" 2>/dev/null; }
      section nodes
      docker node ls --quiet | inspect node '[{{json .ID}},{{json .Spec}},{{json .Description.Hostname}},{{json .Status}}]'
      section services
      docker service ls --quiet | inspect service '[{{json .Spec.Name}},{{json .Spec.Labels}}]'
      section secrets
      docker secret ls --quiet --filter "label=kit.cluster=$cluster" |
        inspect secret '[{{json .Spec.Name}},{{json .Spec.Labels}}]'
      ;;
  esac
  # Ports that the engine keeps from an earlier swarm. It listens for a while, or until it joins the next one.
  section engine_ports
  if grep -qE ':(0949|1F0A|12B5) ' /proc/net/tcp /proc/net/udp 2>/dev/null; then
    ss -Hltunp 2>/dev/null | awk '/"dockerd"/ {print $5}'
  fi
  # If kit added this VM to a swarm, this file has the ID of the member.
  section member
  cat "${folder%/*}/.swarm" 2>/dev/null
  # answered CODE WHAT: a slow engine must not look like an engine without WHAT. 75 means slow.
  answered() {
    case $1:$info in 124:'{'*) echo "the engine did not report its $2 within 10 s" >&2; exit 75 ;; esac
  }
  section image
  for tag in $image; do
    id=$(timeout 10 docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null)
    answered $? images
    if [ -n "$id" ]; then echo "$id $tag"; fi
  done
  section containers
  timeout 10 docker ps --all --no-trunc --filter label=kit.cluster --format '{{json .}}' 2>/dev/null
  answered $? containers

  section files
  if [ -d "$folder" ]; then
    cd "$folder" || exit 1
    # Read only what kit writes. The user may mount a volume below this folder.
    find . ssh -maxdepth 1 -type f -exec stat -c '%a %n' {} + 2>/dev/null
    section digests
    find . ssh -maxdepth 1 -type f -exec sha256sum {} + 2>/dev/null
    # A power loss can leave zeros in place of a private key, which ssh cannot load. Without its end, a deploy replaces it.
    section host_key
    grep -qs '^-----END ' ssh/host_ed25519 && cat ssh/host_ed25519.pub 2>/dev/null
    section client_key
    grep -qs '^-----END ' ssh/id_ed25519 && cat ssh/id_ed25519.pub 2>/dev/null
    section record
    cat cluster.json 2>/dev/null
    section plugins
    for one in plugins/*; do [ ! -d "$one" ] || [ -L "$one" ] || echo "${one##*/}"; done
  fi
  # shellcheck disable=SC2034  # read_runs reads it
  patience=10
  section cordoned
  if [ -d "$folder/var" ]; then
    read_runs "$folder" cordoned 2>/dev/null | head -c 64 | grep -x yes | head -n 1
  fi
  # A run leaves the line when it is active: one that starts now must not be in neither.
  section waiting
  if [ -d "$folder/var" ]; then
    read_runs "$folder" waiting 2>/dev/null | head -c 65536 | grep -E '^[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$' | head -n 1000
  fi
  # The active runs. Only their ids may come from where ranks can write, even if a container prints them.
  section living
  if [ -d "$folder/var" ]; then
    # A line without an end would fill the VM's memory: grep keeps a whole line.
    read_runs "$folder" living 2>/dev/null | head -c 65536 |
      grep -E '^([0-9]{8}-[0-9]{6}-[0-9a-f]{4}|by-hand-[0-9]{1,10})$' | head -n 1000
  fi
  section end
}

# One process of Python, observe.py, reads all this in a third of the time that these programs need. It exits with 3, and
# prints nothing, if only Docker's client can answer.
code=3
if command -v docker >/dev/null 2>&1 && command -v python3 >/dev/null 2>&1; then
  # shellcheck disable=SC2154  # kit.remote.scripts puts the programs before this script
  KIT_LOOK=$mark KIT_GPU_ENGINE=$gpu_engine_program KIT_GPU_NODE=$gpu_node_program KIT_SMI=$smi_program python3 -IS -c "$kernel_program$folder_program$sections_program$command_program$engine_program$observe_program" "$@"
  code=$?
fi
if [ "$code" -eq 75 ]; then exit 75; fi
if [ "$code" -ne 0 ]; then
  shift 3
  by_client "$@"
fi
