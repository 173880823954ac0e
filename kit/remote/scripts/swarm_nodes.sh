# On a manager: puts a label on nodes. Arguments: KEY ID=VALUE...
# update_node.sh comes before this.
key=$1
shift
for pair in "$@"; do
  update_node --label-add "$key=${pair#*=}" "${pair%%=*}" || exit 1
done
