# Creates the folder of a data set from which nodes mount it. Argument: PATH, which is BASE/TOP/CLUSTER/NAME/files, or
# …/mount for a store. Removes a mount there whose rclone has ended: no container could start with it. Does not change an
# existing folder. Notes a CLUSTER on another disk than usual. Needs stores.sh and data_places.sh before it. /dev/shm is open to all
# users of the VM, and so may BASE be: what is there must be root's, or ranks would see whatever another user has put there.
files=$1
folder=${files%/*}
cluster=${folder%/*}
top=${cluster%/*}
base=${top%/*}
case $files in
  */mount) if is_dead "$files"; then unmount_store "$files" || exit 1; fi ;;
esac
# shellcheck disable=SC2174  # /opt itself is for all users
make_base() { [ -d /opt/kit/ ] || mkdir -p -m 700 /opt/kit; }
case $base in
  /opt/kit) make_base || exit 1 ;;
  *) [ -d "$base/" ] || { echo "there is no folder $base on this host" >&2; exit 1; } ;;
esac
# Makes each of these folders in the one before. Other users of the VM do not see what is in the first.
make() {
  mode=700
  for one in "$@"; do
    # Most often they are all there, and then no program has to start.
    [ -d "$one" ] || mkdir -m "$mode" "$one" 2>/dev/null || [ -d "$one" ] || mkdir -m "$mode" "$one" || exit 1
    mode=755
    # shellcheck disable=SC3067  # sh has -O on all systems that kit supports
    if [ -L "$one" ] || ! [ -O "$one" ]; then
      echo "$one is a link, or another user's: remove it first" >&2
      exit 1
    fi
  done
}
make "$top" "$cluster" "$folder" "$files"
case $top in
  /opt/kit/.data | /dev/shm/kit-data) ;;
  *)
    make_base || exit 1
    make /opt/kit/.data "/opt/kit/.data/${cluster##*/}"
    note_place "$cluster" || exit 1
    ;;
esac
