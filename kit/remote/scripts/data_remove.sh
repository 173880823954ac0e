# Removes a staged or mounted data set from this VM. Arguments: CLUSTER NAME FOLDER...
# Prints 'removed FOLDER' for each folder that had something, or 'staging' if the data set is being staged: then removes
# nothing. Keeps FOLDER/files and FOLDER/mount themselves, which nodes have mounted, unless the VM has no node of the
# cluster. Needs stores.sh and data_places.sh before it.
cluster=$1
name=$2
shift 2
# Ends a stager that only waits for an order. Fails if it stages, or if it runs and does not say.
end_stager() {
  command -v docker >/dev/null 2>&1 || return 0
  tries=0
  while :; do
    # An engine that does not answer may have a stager.
    stager=$(docker ps --quiet --filter "label=kit.data=$cluster/$name" --filter status=running) || exit 1
    [ -n "$stager" ] || return 0
    code=0
    said=$(echo '{"op": "hello"}' | timeout 20 docker exec --interactive "$stager" kit-data order 2>/dev/null) || code=$?
    case $said in
      *'"staging": null'*)
        docker rm --force "$stager" >/dev/null 2>&1 || true
        return 0
        ;;
      *'"staging":'*) return 1 ;;
    esac
    # One that has had nothing to do ends just now, and the engine still lists it for a moment.
    tries=$((tries + 1))
    if [ "$code" -eq 124 ] || [ "$tries" -ge 40 ]; then return 1; fi
    sleep 0.25
  done
}
node=
if command -v docker >/dev/null 2>&1; then
  node=$(docker ps --all --quiet --filter "label=kit.cluster=$cluster" --filter label=kit.service) || exit 1
fi
for folder in "$@"; do
  [ -d "$folder" ] || continue
  # Who may rename folders in dir: can put a link there at any time. Nobody can exchange the folder in which this shell is.
  cd -P "$folder" || exit 1
  real=$(pwd -P)
  base=${folder%/*/*/*}
  case $real in *"${folder#"$base"}") own=yes ;; *) own= ;; esac
  if ! { [ "$own" ] && is_own ../.. && is_own .. && is_own . && { [ ! -e files ] || is_own files; }; }; then
    echo "$folder, or a folder above or in it, is a link, or another user's; nothing was removed" >&2
    exit 1
  fi
  # What somebody mounted below the folder is not kit's.
  while read -r _ _ _ _ place _; do
    case $place in
      "$real/mount") is_store "$place" || { echo "$place is not kit's mount: unmount it first; nothing was removed" >&2; exit 1; } ;;
      "$real"/*)
        echo "$place is mounted below $folder: unmount it first; nothing was removed" >&2
        exit 1
        ;;
    esac
  done </proc/self/mountinfo
  # data_order.sh takes this lock before it starts a stager.
  exec 9<.
  if command -v flock >/dev/null 2>&1; then flock -w 60 9 || { echo "$folder is in use" >&2; exit 1; }; fi
  end_stager || { echo staging; exit 0; }
  something=
  if is_store "$real/mount"; then
    unmount_store "$real/mount" || exit 1
    something=mount
  fi
  something=$something$(find . -mindepth 1 ! -path ./files ! -path ./mount -print 2>/dev/null | head -n 1)
  # The summary first: what is left of a removal that was killed is not staged.
  rm -f staged.json manifest.json || exit 1
  find . -mindepth 1 -maxdepth 1 ! -name files ! -name mount -exec rm -rf -- {} + || exit 1
  # rm and find never follow a link.
  if [ -d files ]; then find files -mindepth 1 -delete || exit 1; fi
  [ -z "$something" ] || echo "removed $folder"
  if [ -z "$node" ]; then
    # A folder that is not empty stays.
    rmdir files mount 2>/dev/null
    for one in "$folder" "${folder%/*}" "${folder%/*/*}"; do cd -P .. && rmdir "${one##*/}" 2>/dev/null || break; done
  fi
  cd /
  exec 9<&-
done
[ -n "$node" ] || forget_places "$cluster"
exit 0
