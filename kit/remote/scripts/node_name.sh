# Before other scripts: node_of NAME prints the container of this VM's node, which plan/stack.py calls NAME.
# Compose gives it this name. Swarm gives each task a name of its own; there is a file for what a node has of its own then,
# and the container is found by label. A further argument is one for docker ps (--all: also one that has ended).
node_folder() {
  cluster=${1#kit-}
  echo "/opt/kit/${cluster%-mpi*}"
}
node_of() {
  folder=$(node_folder "$1")
  task=
  if [ -e "$folder/node.env" ]; then
    label="label=kit.cluster=${folder##*/}"
    task=$(docker ps ${2:+"$2"} --no-trunc --quiet --filter "$label" --filter label=com.docker.swarm.task.id | head -n 1)
  fi
  echo "${task:-$1}"
}
