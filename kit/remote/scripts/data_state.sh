# Prints the data sets that are on this VM. Changes nothing. Arguments: CLUSTER FOLDER...
# FOLDER is the folder of a data set of kit.yaml. Prints others of the cluster, too: in the usual places, and on disks that
# kit.yaml named earlier. For each prints 'set FOLDER', and then what is there: 'staged JSON', 'coming', 'running',
# 'mounted ro SOURCE' or 'mounted rw SOURCE' (store_origin in stores.sh), or 'dead' for a mount whose rclone has ended. On
# the head also prints 'record JSON'. The first line is 'now SECONDS', the time by this VM's clock, and the last one 'end'.
# Needs stores.sh and data_places.sh before it.
cluster=$1
shift
echo "now $(date +%s)"
if [ -r "/opt/kit/$cluster/cluster.json" ]; then
  printf 'record %s\n' "$(tr -d '\n' <"/opt/kit/$cluster/cluster.json")"
fi
labels=
if command -v docker >/dev/null 2>&1; then
  labels=$(docker ps --filter label=kit.data --filter status=running --format '{{.Label "kit.data"}}' 2>/dev/null)
fi
show() {
  echo "set $1"
  # A folder that somebody else could have made is not read.
  is_own_set "$1" || return 0
  if [ -f "$1/staged.json" ] && [ ! -L "$1/staged.json" ]; then
    printf 'staged %s\n' "$(head -c 65536 "$1/staged.json" | tr -d '\n')"
  fi
  if is_dead "$1/mount"; then
    echo dead
  else
    origin=$(store_origin "$1/mount")
    if [ -n "$origin" ]; then printf 'mounted %s\n' "$origin"; fi
  fi
  if [ -n "$(find "$1/coming" -mindepth 1 -print 2>/dev/null | head -n 1)" ]; then echo coming; fi
  case "
$labels
" in
    *"
$cluster/${1##*/}
"*) echo running ;;
  esac
}
for folder in "$@"; do show "$folder"; done
data_places "$cluster" | while IFS= read -r place; do
  for folder in "$place"/*; do
    [ -d "$folder" ] || continue
    known=
    # kit.yaml may spell a disk otherwise than before, or name it by a link.
    # shellcheck disable=SC3013  # sh has -ef on all systems that kit supports
    for one in "$@"; do if [ "$one" = "$folder" ] || [ "$one" -ef "$folder" ]; then known=yes; fi; done
    [ "$known" ] || show "$folder" </dev/null
  done
done
echo end
