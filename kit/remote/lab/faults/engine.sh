# shellcheck shell=bash
# Hides the engine's socket, so that no engine answers.

inject() {
  mv /run/docker.sock /run/docker.sock.kit-lab-fault
  note moved yes
}
mend() { if [ -n "$(noted moved)" ]; then mv /run/docker.sock.kit-lab-fault /run/docker.sock; fi; }
