# shellcheck shell=bash
# Hides the engine's socket, so that no engine answers.

SOCKET=/run/docker.sock
inject() { mv "$SOCKET" "$SOCKET.kit-lab-fault"; }
# If the host or its engine has restarted since, there is a new socket, or will be one.
mend() {
  if [ -e "$SOCKET" ]; then
    rm -f "$SOCKET.kit-lab-fault"
  elif [ -e "$SOCKET.kit-lab-fault" ]; then
    mv "$SOCKET.kit-lab-fault" "$SOCKET"
  fi
}
