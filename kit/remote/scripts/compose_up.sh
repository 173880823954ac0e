# Starts a host's service, or recreates it. Arguments: FOLDER [OPTION]...
# A killed kit leaves this running, and nothing must interrupt Compose. So its output goes to this shell, and not into the
# broken connection. The next deploy's Compose waits for it through a lock. Needs node_lock.sh before it.
folder=$1
shift
up() { docker compose --file "$folder/compose.yaml" up --detach --remove-orphans "$@"; }
said=$(
  exec 2>&1
  hold_node "$folder" || { echo "an earlier docker compose or kit down still works in $folder"; exit 1; }
  # The engine would make what is missing of the folders that it mounts, and one that remaps users gives them to its own
  # root. If they cannot be made here, Compose says why.
  (umask 022 && mkdir -p "$folder/var" "$folder/tmp") 2>/dev/null
  up "$@"
)
code=$?
# A look waits for a shorter time, so a killed kit down may have removed what this deploy found or wrote.
if [ "$code" != 0 ] && [ ! -e "$folder/compose.yaml" ]; then said="$folder was removed meanwhile, as by an earlier kit down"; fi
[ "$code" = 0 ] || printf '%s\n' "$said" >&2
exit "$code"
