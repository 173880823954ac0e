# A prefix for other scripts: is_store PATH succeeds if rclone's mount of an object store is at PATH, also if its rclone has
# ended. is_dead PATH succeeds if that rclone has ended, or does not answer. unmount_store PATH removes such a mount, and
# all mounts below it there, from the VM and from its nodes. A rank that reads a file of it fails. store_origin PATH prints
# 'ro SOURCE' or 'rw SOURCE' of such a mount, or nothing; SOURCE has a space as \040, as in mountinfo.
#
# Prints the device of rclone's mount at a real path, of this VM or of the mountinfo of another process.
store_device() {
  fields=$(store_fields "$@")
  echo "${fields%% *}"
}
# Prints the device of such a mount, and what its line has after the path.
store_fields() {
  fields=
  while read -r _ _ number _ place rest; do
    case "$place $rest" in "$1 "*' - fuse.rclone '*) fields="$number $rest" ;; esac
  done <"${2:-/proc/self/mountinfo}"
  # The echo of some shells would replace \040.
  printf '%s\n' "$fields"
}
store_origin() {
  fields=$(store_fields "$(real_store "$1")")
  [ -n "$fields" ] || return 0
  fields=${fields#* }
  origin=${fields#* - fuse.rclone }
  printf '%s %s\n' "${fields%%[, ]*}" "${origin%% *}"
}
# A mount whose rclone has ended has no real path: that of the folder above it has to do.
real_store() { echo "$(cd "${1%/*}" 2>/dev/null && pwd -P)/${1##*/}"; }
is_store() { [ -n "$(store_device "$(real_store "$1")")" ]; }
# To open the folder is what the kernel never answers by itself, and what rclone answers without the store.
# shellcheck disable=SC2016  # the inner shell expands it
is_dead() { is_store "$1" && ! timeout 10 sh -c ': <"$1"' sh "$1" 2>/dev/null; }
unmount_store() {
  layers=0
  while is_store "$1"; do
    layers=$((layers + 1))
    if [ "$layers" -gt 20 ] || ! umount -l "$1"; then return 1; fi
  done
}
