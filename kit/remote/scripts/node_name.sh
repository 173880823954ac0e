# A prefix for other scripts: node_of NAME prints the container of this VM's node, which kit/model/names.py calls NAME.
# Compose uses this name. Swarm names each task itself. Then the cluster's folder has a node.env, and this finds the
# container by label. The service counts, as in Compose's names: a node has neither the runs nor the line, and a hosts file
# may begin with a node. A further argument goes to docker ps (--all: include ended containers).
node_folder() {
  cluster=${1#kit-}
  echo "/opt/kit/${cluster%-mpi*}"
}
node_of() {
  folder=$(node_folder "$1")
  task=
  if [ -e "$folder/node.env" ]; then
    task=$(docker ps ${2:+"$2"} --no-trunc --quiet --filter "label=kit.cluster=${folder##*/}" \
      --filter "label=kit.service=${1##*-}" --filter label=com.docker.swarm.task.id | head -n 1)
  fi
  echo "${task:-$1}"
}
