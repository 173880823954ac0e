# Sets a label on nodes. Runs on a manager. Arguments: KEY ID=VALUE...
# Needs update_node.sh before it.
key=$1
shift
for pair in "$@"; do
  update_node --label-add "$key=${pair#*=}" "${pair%%=*}" || exit 1
done
