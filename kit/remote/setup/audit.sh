# Appends standard input to the record of what kit setup did to this host.
make_state
umask 077
# A full disk or a power loss may have cut the last entry, or left zeros. This one must not continue its line.
[ ! -s "$state/audit" ] || [ "$(tail -c 1 "$state/audit" | wc -l)" -eq 1 ] || echo >>"$state/audit" || exit 1
cat >>"$state/audit"
