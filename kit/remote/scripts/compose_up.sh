# Starts a host's service, or recreates it. Arguments: FOLDER [OPTION]...
# A killed kit leaves this running, and nothing must interrupt Compose. So its output goes to this shell, and not into the
# broken connection. The next deploy's Compose waits for it through a lock on the folder.
folder=$1
shift
up() { docker compose --file "$folder/compose.yaml" up --detach --remove-orphans "$@"; }
said=$(
  exec 2>&1
  if command -v flock >/dev/null 2>&1; then
    exec 9<"$folder" && flock -w 120 9 || { echo "an earlier docker compose still works in $folder"; exit 1; }
  fi
  up "$@"
)
code=$?
[ "$code" = 0 ] || printf '%s\n' "$said" >&2
exit "$code"
