#!/bin/sh
# Horovod on all nodes of the cluster, from a shell in the head: hvd-distribute.sh NP NPERNODE [command...].
set -eu

hosts=/etc/kit/hosts
# Names of interfaces and adapters. Each node has its own values in its environment (kit/plan/cluster/stack.py).
own='HOROVOD_GLOO_IFACE NCCL_SOCKET_IFNAME NCCL_IB_HCA NCCL_IB_GID_INDEX'
usage() {
  cat <<HELP
Usage: hvd-distribute.sh NP NPERNODE [command...]

Runs NP ranks, NPERNODE on each node of $hosts. Without a command: tf_benchmark --model resnet50.
Variables named HOROVOD_*, MXNET_*, NCCL_*, OMP_* and TF_* of this shell go to every rank, except for those of
which each node has its own: $own
HELP
}
wrong() {
  echo "hvd-distribute.sh: $1" >&2
  usage >&2
  exit 2
}

case ${1:-} in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] || wrong "the number of ranks, or of ranks on a node, is missing"
case $1$2 in *[!0-9]*) wrong "'$1 $2' are not two numbers" ;; esac
np=$1 npernode=$2
shift 2
[ "$np" -ge 1 ] && [ "$npernode" -ge 1 ] || wrong "at least 1 rank, and at least 1 on a node"
[ -s "$hosts" ] || wrong "$hosts is missing: only the head of a cluster has it ('kit deploy' writes it)"
nodes=$(grep -cE '^[^#[:space:]]' "$hosts")
[ $((nodes * npernode)) -ge "$np" ] || wrong "$nodes nodes x $npernode = $((nodes * npernode)) ranks, fewer than $np"
[ -n "${KIT_NETWORK:-}" ] || KIT_NETWORK=$(cat /etc/kit/network 2>/dev/null) || true
[ -n "${KIT_NETWORK:-}" ] || wrong "KIT_NETWORK is not set; set it to the nodes' network, such as 10.0.0.0/24"
[ $# -gt 0 ] || set -- tf_benchmark --model resnet50

for name in $(env | grep -oE "^(HOROVOD|MXNET|NCCL|OMP|TF)_[A-Za-z0-9_]*=" | tr -d =); do
  case " $own " in *" $name "*) ;; *) set -- -x "$name" "$@" ;; esac
done
idle=0
# nproc would print these variables in place of the cores.
[ "$npernode" -le "$(unset OMP_NUM_THREADS OMP_THREAD_LIMIT; nproc)" ] || idle=1
# Not -npernode with --map-by slot: Open MPI 4.1 heeds the later of the two and silently drops the other.
# mpirun is kit-mpirun here: `kit ps` counts these ranks, they hold their slots, and they end with the shell.
set -- mpirun --allow-run-as-root -np "$np" --hostfile "$hosts" --map-by "ppr:$npernode:node" --bind-to none \
  --mca pml ob1 --mca btl tcp,self,vader --mca btl_vader_single_copy_mechanism none \
  --mca btl_tcp_if_include "$KIT_NETWORK" --mca oob_tcp_if_include "$KIT_NETWORK" \
  --mca plm_rsh_no_tree_spawn 1 --mca mpi_yield_when_idle "$idle" "$@"
printf '+ %s\n' "$*" >&2
exec "$@"
