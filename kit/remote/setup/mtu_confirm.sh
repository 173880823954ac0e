# Confirms an MTU over a new connection. Arguments: INTERFACE MTU TOKEN. Prints standard input back: large packets must
# come through in both directions before the MTU stays.
data=$(cat)
now=$(cat "$root/sys/class/net/$1/mtu")
[ "$now" = "$2" ] || fail "the MTU of $1 is $now again: the confirmation came too late"
printf '%s\n' "$data"
(umask 077 && printf '%s\n' "$3" >"$state/mtu.$1")
