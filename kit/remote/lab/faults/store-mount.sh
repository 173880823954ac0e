# shellcheck shell=bash
# Leaves the mount of a store whose rclone has ended; with the value silent, of one that does not answer.

# The cluster kit-lab has no other data, and is not deployed.
STORE=/opt/kit/.data/kit-lab/store/mount
MOUNT='import ctypes, os, sys
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions" % int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"rclone", sys.argv[1].encode(), b"fuse.rclone", ctypes.c_ulong(7), options):
    sys.exit("the store cannot be mounted: " + os.strerror(ctypes.get_errno()))'

inject() {
  local rclone
  if ! [ -e /dev/fuse ]; then fail "this kernel has no FUSE"; fi
  note store "$STORE"
  mkdir -p "$STORE"
  # The kernel asks who has this file open. Nobody ever reads its questions.
  exec {rclone}<>/dev/fuse
  python3 -c "$MOUNT" "$STORE" "$rclone"
  if [ "$ARG" = silent ]; then background sleep infinity; fi
  exec {rclone}>&-
}
mend() {
  local place
  while read -r place; do
    umount -l "$place" 2>/dev/null || true
    # A folder with anything else stays.
    rmdir "$place" "${place%/*}" "${place%/*/*}" "${place%/*/*/*}" "${place%/*/*/*/*}" 2>/dev/null || true
  done < <(noted store)
}
