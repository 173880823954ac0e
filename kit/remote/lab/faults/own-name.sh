# shellcheck shell=bash
# Lets the host's name mean 127.0.1.1, as Debian's installer does.

inject() {
  local rest
  rest=$(sed -E "/[[:space:]]$(hostname)([[:space:]]|\$)/s/^/#kit-lab own-name#/" /etc/hosts)
  note edited /etc/hosts
  # In place, because the file is a mount.
  printf '%s\n' "$rest" >/etc/hosts
  first_line /etc/hosts "127.0.1.1 $(hostname)"
}
mend() {
  local rest
  rest=$(sed 's/^#kit-lab own-name#//' /etc/hosts)
  printf '%s\n' "$rest" >/etc/hosts
}
