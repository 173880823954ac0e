# Changes an interface's MTU, and changes it back after SECONDS if no confirmation comes. Arguments: AREA INTERFACE MTU SECONDS TOKEN.
make_state
before=$(cat "$root/sys/class/net/$2/mtu") || fail "there is no interface $2"
pending=$state/mtu/$2
(umask 077 && mkdir -p "$pending") || fail "$pending cannot be made"
# A change that nobody has confirmed yet is this one's beginning: the way back leads to the MTU before it.
for earlier in "$pending"/*; do
  read -r line 2>/dev/null <"$earlier" && before=$line
done
save_value mtu "$2" "$before" "$1"
(umask 077 && printf '%s\n' "$before" >"$pending/$5") || {
  rm -f "$pending/$5"
  fail "$pending/$5 cannot be written; is the disk full?"
}
# In another session: the way back must not depend on the connection that the change may cut.
setsid sh -c '
  sleep "$1"
  mv "$2" "$2.over" 2>/dev/null || exit 0
  ip link set dev "$3" mtu "$4"
  rm -f "$2.over"
' kit-mtu "$4" "$pending/$5" "$2" "$before" </dev/null >/dev/null 2>&1 &
# Only now, so that there is a way back at any moment. Who moves the earlier file away first wins: its timer does nothing
# any more.
for earlier in "$pending"/*; do
  [ "$earlier" = "$pending/$5" ] || mv "$earlier" "$state/mtu.earlier" 2>/dev/null
done
rm -f "$state/mtu.earlier"
ip link set dev "$2" mtu "$3" || {
  # The timer of an earlier change is gone, and nobody has confirmed its MTU. If this fails, the own timer goes on.
  now=$(cat "$root/sys/class/net/$2/mtu")
  if [ "$now" = "$before" ] || ip link set dev "$2" mtu "$before"; then rm -f "$pending/$5"; fi
  fail "the kernel or the card refuses an MTU of $3 on $2"
}
echo "before $before"
