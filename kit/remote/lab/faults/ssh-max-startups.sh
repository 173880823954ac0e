# shellcheck shell=bash
# Lets sshd accept two connections at a time.

inject() {
  first_line /etc/ssh/sshd_config "MaxStartups ${ARG:-2}"
  reload_sshd
}
mend() {
  # `main` removes the line, but sshd must read the file after that.
  take_back
  reload_sshd
}
