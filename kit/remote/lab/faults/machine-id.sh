# shellcheck shell=bash
# Gives the host a machine ID that others may have: inject it on two hosts.

inject() {
  if [ ! -e /etc/machine-id ]; then note created yes; : >/etc/machine-id; fi
  note before "$(cat /etc/machine-id)"
  printf '%s\n' "${ARG:-0123456789abcdef0123456789abcdef}" >/etc/machine-id
}
mend() {
  if [ -n "$(noted created)" ]; then rm -f /etc/machine-id; else noted before >/etc/machine-id; fi
}
