# shellcheck shell=bash
# Takes the Compose plugin from the docker command.

inject() {
  program docker <<'END'
if [ "${1:-}" = compose ]; then
  echo "docker: 'compose' is not a docker command." >&2
  exit 1
fi
END
  # docker info lists the plugins with their paths.
  local folder
  for folder in /usr/libexec/docker /usr/lib/docker /usr/local/lib/docker; do
    if [ -e "$folder/cli-plugins/docker-compose" ]; then
      mount --bind /dev/null "$folder/cli-plugins/docker-compose"
      note mounts "$folder/cli-plugins/docker-compose"
    fi
  done
}
