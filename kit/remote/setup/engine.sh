# Writes standard input to daemon.json after dockerd has validated it. Arguments: AREA PATH SIZE restart|keep MODE.
# The first line is no part of it: the SHA-256 of the file that it was made from, or nothing without a file. A file
# with another one has settings that would be lost: exit code 3. No argument, because the file may have a password.
# A file that is there keeps its mode, and a new one gets MODE. With MODE 600 the file has a secret, and always gets 600.
# If the engine does not answer after the restart, the file gets its former bytes back.
path=$2
read -r seen || true
now=
if [ -L "$root$path" ]; then now="link"; elif [ -e "$root$path" ]; then now=$(sha256sum <"$root$path" | cut -c1-64); fi
[ "$now" = "$seen" ] || exit 3
save_original "$path" "$1"
before=$state/daemon.json.before
# A killed kit may have left the former file. It is of an engine that nobody saw answer.
if [ ! -e "$before" ] && [ ! -e "$before.absent" ]; then
  if [ -e "$root$path" ]; then cp -p -- "$root$path" "$before.new" && mv "$before.new" "$before"; else : >"$before.absent"; fi
fi
cat >"$state/daemon.json.wanted"
[ "$(wc -c <"$state/daemon.json.wanted")" -eq "$3" ] || fail "only a part of $path arrived"
forget() { rm -f "$before" "$before.absent" "$state/daemon.json.wanted"; }
# dockerd before 23 has no --validate.
if dockerd --help 2>/dev/null | grep -q -- --validate; then
  complaint=$(dockerd --validate --config-file "$state/daemon.json.wanted" 2>&1) || {
    forget
    fail "dockerd refuses the file, and nothing was changed: $(printf %s "$complaint" | tail -n 1)"
  }
fi
mode=$(stat -c %a "$root$path" 2>/dev/null || echo "$5")
[ "$5" != 600 ] || mode=600
put "$path" "$mode" "$3" <"$state/daemon.json.wanted"
if [ "$4" = restart ]; then
  engine_service restart >/dev/null 2>&1
  if ! await_engine 60; then
    words=$(engine_words)
    # mv, so that it is the same file again, with its mode and owner.
    if [ -e "$before" ]; then mv -fT "$before" "$root$path"; else rm -f "$root$path"; fi
    forget
    engine_service restart >/dev/null 2>&1
    if await_engine 60; then now='The engine runs with them'; else now='The engine does not answer with them, either'; fi
    printf '%s\n' "$words" >&2
    fail "the engine did not start with the new settings, so $path has its former ones again. $now"
  fi
  finish engine
fi
forget
