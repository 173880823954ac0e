# shellcheck shell=bash
# Lets the docker command say that no engine answers.

inject() {
  program docker <<'END'
echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2
exit 1
END
}
