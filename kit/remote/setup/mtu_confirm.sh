# Confirms an MTU over a new connection. Arguments: INTERFACE MTU TOKEN. Prints standard input back: large packets must
# come through in both directions before the MTU stays.
data=$(cat)
now=$(cat "$root/sys/class/net/$1/mtu")
[ "$now" = "$2" ] || fail "the MTU of $1 is $now again: the confirmation came too late"
printf '%s\n' "$data"
# The timer of this change moves the same file: one of them is first.
mv "$state/mtu/$1/$3" "$state/mtu.confirmed" 2>/dev/null || fail "another change of the MTU of $1 began, or its time was over"
rm -f "$state/mtu.confirmed"
