# Lists the ranks of a cluster on this VM, with a line 'RUN RANK PID' for each process of a run. Arguments: CLUSTER.
# A run's mark is in the environment of each of its processes, so nothing else can match. Workers that load data have it,
# too, so there may be thousands: this starts the same few programs for any number.
grep -lzsx "KIT_CLUSTER=$1" /proc/[0-9]*/environ 2>/dev/null |
  xargs -r grep -zsHE '^(KIT_RUN|KIT_AGENT|OMPI_COMM_WORLD_RANK|RANK)=' 2>/dev/null |
  tr '\0\n' '\n\1' |
  awk '
    function report() {
      # Under torchrun, the rank of Open MPI is that of the torchrun on the host.
      rank = ("KIT_AGENT" in value) ? value["RANK"] : value["OMPI_COMM_WORLD_RANK"]
      if (value["KIT_RUN"] != "" && rank != "") print value["KIT_RUN"], rank, pid
      split("", value)
    }
    # The name of a file, then NAME=VALUE. What a value has after a newline is no line: it could name another process.
    match($0, "^/proc/[0-9]+/environ:[A-Z_]+=") {
      split($0, parts, "/")
      if (parts[3] != pid) { report(); pid = parts[3] }
      name = substr($0, 1, RLENGTH - 1)
      sub(/^[^:]*:/, "", name)
      if (!(name in value)) value[name] = substr($0, RLENGTH + 1)
    }
    END { report() }'
exit 0
