# Restarts the host if it still has this boot id. Arguments: BOOT_ID.
[ "$(cat "$root/proc/sys/kernel/random/boot_id")" = "$1" ] || exit 0
# Somebody may have started them while other hosts rebooted.
[ "$(running)" = 0 ] || fail "containers run on this host now, and a reboot would end them"
# In another session, a moment later: this connection must end in order.
setsid sh -c 'sleep 1; systemctl reboot || shutdown -r now || reboot' </dev/null >/dev/null 2>&1 &
