# shellcheck shell=bash
# Takes the cluster's key from the node, so that the head cannot log in. It needs a deployed cluster.

inject() {
  local file
  for file in /opt/kit/*/ssh/authorized_keys; do
    if [ ! -e "$file" ]; then fail "no cluster is deployed on this host: kit deploy"; fi
    mv "$file" "$file.kit-lab-fault"
    note moved "$file"
  done
}
mend() {
  local file
  while read -r file; do
    if [ -e "$file.kit-lab-fault" ]; then mv "$file.kit-lab-fault" "$file"; fi
  done < <(noted moved)
}
