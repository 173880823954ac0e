# A prefix for other scripts: end_stagers CLUSTER. Removes the stagers of a cluster's data sets on this VM and what they have
# mounted, and prints a line for each. What they have brought stays. Needs remove_container.sh and stores.sh before it.
end_stagers() {
  command -v docker >/dev/null 2>&1 || return 0
  # An engine that does not answer may have stagers.
  stagers=$(docker ps --all --filter label=kit.data --format '{{.ID}} {{.Label "kit.data"}}') || return 1
  for id in $(printf '%s\n' "$stagers" | sed -n "s|^\([0-9a-f]*\) $1/.*|\1|p"); do
    name=$(docker inspect --format '{{.Name}}' "$id" 2>/dev/null)
    remove_container "$id" || return 1
    echo "container ${name#/}"
  done
  # A pattern never matches a mount whose container has ended: the shell could not look at it.
  for folder_of_data in "/opt/kit/.data/$1"/*; do
    if is_store "$folder_of_data/mount"; then
      unmount_store "$folder_of_data/mount" || return 1
      echo "mount $folder_of_data/mount"
    fi
  done
}
