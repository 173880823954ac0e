# Stops a unit of systemd, now and at every start. Arguments: UNIT.
if has_systemd; then
  systemctl stop "$1" >/dev/null 2>&1
  # A reload would take the GPUs from running containers (see is_stale).
  systemctl disable --no-reload "$1" >/dev/null 2>&1
fi
rm -f "$state/values/unit+$(key_of "$1")"
exit 0
