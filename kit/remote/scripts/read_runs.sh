# A prefix for other scripts: read_runs FOLDER OPERATION [WORD]... runs runs.py on the runs of a cluster.
# Ranks can write where the runs are. A shell cannot open a file there without the risk of following a link, so Python
# does. If the VM has no Python, that of the head's container does: there, a rank gains nothing by a link.
# `patience` limits the time in seconds, if it is set: a rank can replace the Python of its container.
# Needs node_name.sh before it. kit.remote.scripts sets folder_program and runs_program.
# shellcheck disable=SC2154
read_runs() {
  of=$1
  shift
  if command -v python3 >/dev/null 2>&1; then
    python3 -IS -c "$folder_program$runs_program" "$of" var/runs "$@"
  else
    ${patience:+timeout "$patience"} docker exec "$(node_of "kit-${of##*/}-mpihead")" \
      python3 -IS -c "$folder_program$runs_program" /var/lib/kit runs "$@"
  fi
}
