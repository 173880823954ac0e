# A prefix for other scripts: hold_node FOLDER takes the lock under which this VM's node is started or removed, and keeps it
# until the script and its children end. It waits for up to 120 s, and fails then. A killed kit leaves such a script
# running, so a look waits for it, too. Only root can reach the lock: neither a user of the VM nor a container can hold it.
hold_node() {
  command -v flock >/dev/null 2>&1 || return 0
  node_lock=${1%/*}/.lock/${1##*/}.compose
  for _ in 1 2 3 4 5; do
    # The end of another lock may remove the folder at any moment.
    (umask 077 && mkdir -p "${node_lock%/*}" && chmod 700 "${node_lock%/*}")
    if command exec 9>>"$node_lock"; then
      flock -w 120 9
      return
    fi
    sleep 0.1
  done
  return 1
}
