# shellcheck shell=bash
# Listens on the port of the node's sshd, before the cluster is deployed.

inject() {
  local listen='import socket, sys, time; s = socket.create_server(("", int(sys.argv[1]))); time.sleep(10**8)'
  background python3 -c "$listen" "${ARG:-33}"
  for _ in $(seq 50); do
    if ss -Hltn "sport = :${ARG:-33}" | grep -q .; then return; fi
    sleep 0.1
  done
  fail "the port ${ARG:-33} is taken already"
}
