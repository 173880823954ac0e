# Stops a unit of systemd, now and at every start. Arguments: UNIT.
if has_systemd; then systemctl disable --now "$1" >/dev/null 2>&1; fi
rm -f "$state/values/unit+$(key_of "$1")"
exit 0
