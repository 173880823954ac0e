# Starts a host's service, or recreates it. Arguments: FOLDER [OPTION]...
# A killed kit leaves this running, and nothing must interrupt Compose. So its output goes to this shell, and not into the
# broken connection. The next deploy's Compose waits for it through a lock. Only root can reach the lock: neither a user
# of the VM nor a container can hold it.
folder=$1
lock=${folder%/*}/.lock/${folder##*/}.compose
shift
up() { docker compose --file "$folder/compose.yaml" up --detach --remove-orphans "$@"; }
open_lock() {
  for _ in 1 2 3 4 5; do
    # The end of another lock may remove the folder at any moment.
    (umask 077 && mkdir -p "${lock%/*}" && chmod 700 "${lock%/*}")
    command exec 9>>"$lock" && return 0
    sleep 0.1
  done
  return 1
}
said=$(
  exec 2>&1
  if command -v flock >/dev/null 2>&1; then
    open_lock && flock -w 120 9 || { echo "an earlier docker compose still works in $folder"; exit 1; }
  fi
  # The engine would make what is missing of the folders that it mounts, and one that remaps users gives them to its own
  # root. If they cannot be made here, Compose says why.
  (umask 022 && mkdir -p "$folder/var" "$folder/tmp") 2>/dev/null
  up "$@"
)
code=$?
[ "$code" = 0 ] || printf '%s\n' "$said" >&2
exit "$code"
