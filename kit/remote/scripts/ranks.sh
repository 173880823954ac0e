# Lists the ranks of a cluster on this VM, with a line 'RUN RANK PID' for each process of a run. Arguments: CLUSTER.
# A run's mark is in the environment of each of its processes, so nothing else can match.
for environ in $(grep -lzsx "KIT_CLUSTER=$1" /proc/[0-9]*/environ 2>/dev/null); do
  run=$(tr '\0' '\n' <"$environ" 2>/dev/null | sed -n 's/^KIT_RUN=//p')
  # Under torchrun, Open MPI's rank is that of the host's torchrun.
  name=OMPI_COMM_WORLD_RANK
  ! grep -qz '^KIT_AGENT=' "$environ" 2>/dev/null || name=RANK
  rank=$(tr '\0' '\n' <"$environ" 2>/dev/null | sed -n "s/^$name=//p")
  if [ -n "$run" ] && [ -n "$rank" ]; then
    pid=${environ#/proc/}
    echo "$run $rank ${pid%/environ}"
  fi
done
exit 0
