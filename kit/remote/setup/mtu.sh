# Changes an interface's MTU, and changes it back after SECONDS if no confirmation comes. Arguments: AREA INTERFACE MTU SECONDS TOKEN.
make_state
file=$root/sys/class/net/$2/mtu
before=$(cat "$file") || fail "there is no interface $2"
save_value mtu "$2" "$before" "$1"
rm -f "$state/mtu.$2"
# In another session: the way back must not depend on the connection that the change may cut.
setsid sh -c '
  sleep "$1"
  [ "$(cat "$2" 2>/dev/null)" = "$3" ] || { ip link set dev "$4" mtu "$5"; : >"$2.back"; }
' kit-mtu "$4" "$state/mtu.$2" "$5" "$2" "$before" </dev/null >/dev/null 2>&1 &
rm -f "$state/mtu.$2.back"
ip link set dev "$2" mtu "$3" || fail "the kernel or the card refuses an MTU of $3 on $2"
echo "before $before"
