# Runs a command of kit exec in this VM's node, with this terminal. Arguments: MARK, then those of node.sh, which follows.
# shellcheck disable=SC2034  # node.sh uses it
mark=$1
shift
