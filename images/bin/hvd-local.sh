#!/bin/sh
# Horovod on this node alone: hvd-local.sh N [command...].
set -eu

usage() {
  cat <<'HELP'
Usage: hvd-local.sh N [command...]

Runs N ranks on this node (one for each GPU or core). Without a command: tf_benchmark --model resnet50.
HELP
}
wrong() {
  echo "hvd-local.sh: $1" >&2
  usage >&2
  exit 2
}

case ${1:-} in
  -h | --help) usage; exit 0 ;;
  '') wrong "the number of ranks is missing" ;;
  *[!0-9]*) wrong "'$1' is not a number of ranks" ;;
esac
np=$1
[ "$np" -ge 1 ] || wrong "at least 1 rank"
shift
[ $# -gt 0 ] || set -- tf_benchmark --model resnet50

# Ranks that wait for each other spin; with more of them than cores that starves those that work.
idle=0
# nproc would print these variables in place of the cores.
[ "$np" -le "$(unset OMP_NUM_THREADS OMP_THREAD_LIMIT; nproc)" ] || idle=1
set -- mpirun --allow-run-as-root -np "$np" --host "localhost:$np" --bind-to none --map-by slot \
  --mca pml ob1 --mca btl tcp,self,vader --mca btl_vader_single_copy_mechanism none \
  --mca btl_tcp_if_include 127.0.0.0/8 --mca oob_tcp_if_include 127.0.0.0/8 --mca mpi_yield_when_idle "$idle" "$@"
printf '+ %s\n' "$*" >&2
exec "$@"
