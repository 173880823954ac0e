# Starts a unit of systemd, now and at every start of the host. Arguments: AREA UNIT.
has_systemd || fail "this host has no systemd, which starts $2"
# Before the value is kept, which means that kit has started the unit.
if is_stale "$2"; then
  [ "$(running)" = 0 ] ||
    fail "containers run, and systemd must reload to read the new $2, which can take their GPUs: stop them, then repeat"
  systemctl daemon-reload
fi
save_value unit "$2" "$(systemctl is-enabled "$2" 2>/dev/null || true)" "$1"
systemctl enable --no-reload "$2" >/dev/null 2>&1 || fail "systemctl enable $2 failed"
systemctl restart "$2" || {
  journalctl -u "$2" --no-pager -n 15 -o cat >&2
  fail "$2 does not start"
}
