# Prints this VM's tables of sockets, then `end`. Ends with its standard input.
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
echo end
exec cat >/dev/null
