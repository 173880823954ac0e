# Changes an interface's MTU, and changes it back after SECONDS if no confirmation comes. Arguments: AREA INTERFACE MTU SECONDS TOKEN.
make_state
before=$(cat "$root/sys/class/net/$2/mtu") || fail "there is no interface $2"
pending=$state/mtu/$2
(umask 077 && mkdir -p "$pending") || fail "$pending cannot be made"
# A change that nobody has confirmed yet is this one's beginning: the way back leads to the MTU before it. Who moves its
# file away first wins, so its timer does nothing any more.
for earlier in "$pending"/*; do
  if mv "$earlier" "$state/mtu.earlier" 2>/dev/null; then read -r before <"$state/mtu.earlier" || true; fi
done
rm -f "$state/mtu.earlier"
save_value mtu "$2" "$before" "$1"
(umask 077 && printf '%s\n' "$before" >"$pending/$5") || fail "$pending/$5 cannot be written; is the disk full?"
# In another session: the way back must not depend on the connection that the change may cut.
setsid sh -c '
  sleep "$1"
  mv "$2" "$2.over" 2>/dev/null || exit 0
  ip link set dev "$3" mtu "$4"
  rm -f "$2.over"
' kit-mtu "$4" "$pending/$5" "$2" "$before" </dev/null >/dev/null 2>&1 &
ip link set dev "$2" mtu "$3" || {
  rm -f "$pending/$5"
  fail "the kernel or the card refuses an MTU of $3 on $2"
}
echo "before $before"
