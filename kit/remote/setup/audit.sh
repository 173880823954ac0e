# Appends standard input to the record of what kit setup did to this host.
make_state
umask 077
# A full disk may have cut the last entry. This one must not continue its line.
[ ! -s "$state/audit" ] || [ -z "$(tail -c 1 "$state/audit")" ] || echo >>"$state/audit" || exit 1
cat >>"$state/audit"
