# A prefix for other scripts: remove_container ID. If Swarm is removing it, too, this waits until it is gone.
remove_container() {
  patience=$(($(uptime_s) + 60))
  while :; do
    said=$(docker rm --force --volumes "$1" 2>&1) && return 0
    case $said in
      *'already in progress'* | *'o such container'*) docker inspect "$1" >/dev/null 2>&1 || return 0 ;;
      # A busy engine notices late that the processes have ended, or that the files are no longer used.
      *'did not receive an exit event'* | *'resource busy'*) ;;
      *) break ;;
    esac
    [ "$(uptime_s)" -le "$patience" ] || break
    sleep 0.4
  done
  printf '%s\n' "$said" >&2
  return 1
}
