# Gives a file its original bytes, mode and owner, or removes it if it did not exist, with a folder that kit made for it.
# Arguments: PATH.
saved=$state/files/$(key_of "$1")
[ -d "$saved" ] || exit 0
if [ -e "$saved/original" ]; then
  cmp -s "$saved/original" "$root$1" || begin "$1"
  # A later write removes this name if the host stops now.
  temporary=$root${1%/*}/.kit-setup-undo00
  cp -p -- "$saved/original" "$temporary" && mv -fT "$temporary" "$root$1" || fail "$1 cannot be restored; is the disk full?"
else
  [ ! -e "$root$1" ] || begin "$1"
  rm -f -- "$root$1" || fail "$1 cannot be removed"
  # A folder that is not empty stays. If kit has another file in it, the folder goes with that one.
  if [ -e "$saved/folder" ] && ! rmdir "$root${1%/*}" 2>/dev/null; then
    for path in "$state"/files/*/path; do
      other=$(cat "$path")
      if [ "${other%/*}" = "${1%/*}" ]; then : >"${path%/path}/folder"; fi
    done
  fi
fi
rm -rf "$saved"
