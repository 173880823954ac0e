# A prefix for other scripts: data_places CLUSTER prints the folders below which data sets of a cluster may be on this VM, a
# line for each. note_place FOLDER remembers one on another disk (dir: in kit.yaml), so that kit finds what is there when
# kit.yaml does not name that disk any more. forget_places CLUSTER removes those that are empty, and the list of them if
# none is left. is_own_set FOLDER succeeds if the folder of a data set, and the two above it that kit makes, are root's: in
# /dev/shm, another user of the VM can put a link there before kit does, which leads root to any folder of the VM.
data_places() {
  for place in "/opt/kit/.data/$1" "/dev/shm/kit-data/$1"; do
    if is_own "${place%/*}" && is_own "$place"; then printf '%s\n' "$place"; fi
  done
  noted_places "$1"
}
# The list alone is no proof: the disk may be another one by now, and its folders another user's.
noted_places() {
  [ -f "/opt/kit/.data/$1/.dirs" ] || return 0
  while IFS= read -r place; do
    case $place in
      /*"/kit-data/$1") if is_own "${place%/*}" && is_own "$place"; then printf '%s\n' "$place"; fi ;;
    esac
  done <"/opt/kit/.data/$1/.dirs"
}
# shellcheck disable=SC3067  # sh has -O on all systems that kit supports
is_own() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }
is_own_set() { is_own "${1%/*/*}" && is_own "${1%/*}" && is_own "$1"; }
note_place() {
  list=/opt/kit/.data/${1##*/}/.dirs
  if [ -f "$list" ]; then
    while IFS= read -r place; do [ "$place" != "$1" ] || return 0; done <"$list"
  fi
  printf '%s\n' "$1" >>"$list"
}
forget_places() {
  [ -f "/opt/kit/.data/$1/.dirs" ] || return 0
  # A folder that is not empty stays.
  noted_places "$1" | while IFS= read -r place; do rmdir "$place" "${place%/*}" 2>/dev/null; done
  if [ -z "$(noted_places "$1")" ]; then
    rm -f -- "/opt/kit/.data/$1/.dirs"
    rmdir "/opt/kit/.data/$1" /opt/kit/.data 2>/dev/null
  fi
}
