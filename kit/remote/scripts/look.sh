# Between observe.sh, whose arguments it has, and ranks.sh: one command shows a VM's state and the ranks on it.
section ranks
# shellcheck disable=SC2154  # observe.sh sets it
set -- "$cluster"
