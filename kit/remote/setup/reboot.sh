# Restarts the host if it still has this boot id. Arguments: BOOT_ID LOCK LIMIT_S.
[ "$(cat "$root/proc/sys/kernel/random/boot_id")" = "$1" ] || exit 0
# A reboot in the middle of an installation may leave a host that does not start.
end=$(($(uptime_s) + $3))
while held=$(holder) && [ -n "$held" ]; do
  [ "$(uptime_s)" -lt "$end" ] || fail "process ${held% *} (${held#* }) holds apt's lock, and a reboot could break what it installs"
  sleep 1
done
# Another operator's kit may be between two packages. A lock whose holder has ended is free, whatever its file says.
if [ -e "$root$2" ] && command -v flock >/dev/null 2>&1 && ! (flock -n 9) 9<"$root$2"; then
  who=$(sed -n 's/^who //p' "$root$2" 2>/dev/null)
  fail "${who:-somebody} holds this host's lock of kit setup"
fi
# Somebody may have started them while other hosts rebooted.
[ "$(running)" = 0 ] || fail "containers run on this host now, and a reboot would end them"
# In another session, a moment later: this connection must end in order.
setsid sh -c 'sleep 1; systemctl reboot || shutdown -r now || reboot' </dev/null >/dev/null 2>&1 &
