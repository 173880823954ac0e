# Removes a cluster's containers from this VM, and nothing else. Arguments: CLUSTER.
# Needs remove_container.sh before it.
ids=$(docker ps --all --quiet --filter "label=kit.cluster=$1") || exit 1
for id in $ids; do remove_container "$id" || exit 1; done
