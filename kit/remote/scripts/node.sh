# Runs `docker exec` or `docker logs` on this VM's node. Arguments: NAME exec|logs [OPTION]... -- [WORD]...
# Needs node_name.sh before it. For a terminal, node_terminal.sh has set end_exec_program and mark.
name=$1
verb=$2
shift 2
all=
[ "$verb" != logs ] || all=--all
node=$(node_of "$name" $all)
own="$(node_folder "$name")/node.env"
swarm=
# Under Swarm, the container's own environment is the same on all nodes.
if [ "$verb" = exec ] && [ -r "$own" ]; then
  swarm=yes
  set -- --env-file "$own" "$@"
fi
# Compose sets no_new_privs for a container, and `docker exec` takes it from there. Swarm cannot, so each command sets it.
# shellcheck disable=SC2016  # the container's shell expands it
confined='if [ -n "${KIT_NEW_PRIVILEGES:-}" ]; then exec "$@"; fi; exec setpriv --no-new-privs -- "$@"'
# The container replaces the first --.
left=$#
placed=
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  if [ -z "$placed" ] && [ "$word" = -- ]; then
    placed=yes
    set -- "$@" "$node"
    if [ -n "$swarm" ]; then set -- "$@" sh -c "$confined" kit-exec; fi
  else
    set -- "$@" "$word"
  fi
done
# sshd logs to stderr. The caller wants all of the log on stdout, as a pipe does. Only docker's own error stays on stderr,
# and a container that is missing is almost the only one.
if [ "$verb" = logs ]; then
  docker container inspect --format . "$node" >/dev/null || exit
  case " $* " in *" --follow "*) ;; *) exec docker logs "$@" 2>&1 ;; esac
  # Ends with standard input. A quiet log would not notice that nobody reads it any more.
  exec 3<&0
  docker logs "$@" </dev/null 2>&1 3<&- &
  log=$!
  (cat >/dev/null; kill "$log") <&3 3<&- >/dev/null 2>&1 &
  input=$!
  wait "$log"
  code=$?
  kill "$input" 2>/dev/null
  exit "$code"
fi
if [ -z "${end_exec_program:-}" ]; then exec docker "$verb" "$@"; fi
# A terminal: if it goes, the command must not stay. Docker's client ends then, but the command does not notice.
gone() {
  trap '' HUP TERM
  sh -c "$end_exec_program" kit-end_exec "${mark:-}" >/dev/null 2>&1
  exit 129
}
trap gone HUP TERM
# Keys are for the command. Docker's client gets them unchanged.
trap : INT QUIT
docker "$verb" "$@"
