# Reads the runs that this VM keeps as the head of a cluster. Changes nothing. Arguments: FOLDER OPERATION [WORD]...
# FOLDER is the cluster's. runs.py has the operations. Needs read_runs.sh before it.
if [ ! -d "$1/var" ]; then
  [ "$2" != list ] || echo '{"end": true, "more": 0}'
  exit 0
fi
if ! command -v python3 >/dev/null 2>&1 && ! docker inspect "$(node_of "kit-${1##*/}-mpihead")" >/dev/null 2>&1; then
  echo 'this VM has no python3 to read its runs, and the container of the head is missing' >&2
  exit 1
fi
# Only a log may take as long as it takes.
# shellcheck disable=SC2034  # read_runs.sh uses it
[ "$2" = read ] || patience=60
read_runs "$@"
