# Installs packages; without any, lets dpkg finish what was interrupted. Arguments: LIMIT_S AREA [PACKAGE]...
# Prints lines `progress PERCENT TEXT`. On failure, prints the end of apt's log to standard error.
# apt goes on if the connection breaks: half an installation is worse than one that nobody watches. The same command
# waits for it then.
limit=$1
area=$2
shift 2
make_state
log=$state/apt.log
status=$state/apt.status.$$
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 APT_LISTCHANGES_FRONTEND=none

# await_lock: waits until nobody holds a lock, at most until `end`.
await_lock() {
  while held=$(holder) && [ -n "$held" ]; do
    echo "progress 0 waiting for apt's lock, which process ${held% *} (${held#* }) holds"
    if [ "$(uptime_s)" -ge "$end" ]; then
      fail "E: kit waited $limit s for apt's lock: It is held by process ${held% *} (${held#* })"
    fi
    sleep 1
  done
}

installed() { dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort; }
# What apt and dpkg print if another process has the lock.
taken='Could not get lock|Unable to (acquire|lock) |is another process using it|locked by another process'
# try COMMAND...: waits for the lock, and starts again if another program took it meanwhile: it takes it between
# two commands, too. Sets `code`, and `lines`, the length of the log before the last attempt.
try() {
  end=$(($(uptime_s) + limit))
  while :; do
    await_lock
    lines=$(wc -l <"$log")
    attempt "$@"
    [ "$code" = 0 ] && return 0
    words | grep -qE "$taken" && [ "$(uptime_s)" -lt "$end" ] || return 1
    echo "progress - waiting for apt's lock, which another program took"
    sleep 1
  done
}
# words: what the last attempt printed.
words() { tail -n "+$((lines + 1))" "$log"; }
# give_up: fails with standard input, the words of a command.
give_up() {
  tail -n 200 | tail -c 60000 >&2
  exit 1
}
# attempt COMMAND...: in another session, so that nothing interrupts it, with its progress. Sets `code`.
attempt() {
  : >"$status"
  printf '+ %s\n' "$*" >>"$log"
  setsid sh -c 'status=$1; log=$2; shift 2; "$@" </dev/null >>"$log" 2>&1 3>>"$status"; echo "$?" >"$status.code.new"; mv "$status.code.new" "$status.code"' \
    kit-apt "$status" "$log" "$@" &
  shown=
  while [ ! -e "$status.code" ]; do
    kill -0 $! 2>/dev/null || [ -e "$status.code" ] || break
    line=$(tail -n 1 "$status" | awk -F: '{print $3, $4}')
    if [ -n "$line" ] && [ "$line" != "$shown" ]; then echo "progress $line"; fi
    shown=$line
    sleep 0.3
  done
  code=$(cat "$status.code" 2>/dev/null || echo 1)
  rm -f "$status.code" "$status"
}

# A killed kit left a command that goes on, and says how it ended, perhaps while this program waits for it.
rm -f "$state"/apt.status*
: >"$log"
# A killed installation left this list: what was there before it.
if [ ! -e "$state/before" ]; then
  printf '%s\n' "$area" >"$state/before.area"
  installed >"$state/before.new" && mv "$state/before.new" "$state/before"
fi
# record: what is new is kit's. A package that was there before is not.
record() {
  area=$(cat "$state/before.area")
  installed | comm -13 "$state/before" - | while read -r package; do
    grep -qs "^$package " "$state/packages" || echo "$package ${area:-docker}"
  done >"$state/packages.more"
  cat "$state/packages.more" >>"$state/packages" && rm -f "$state/packages.more" "$state/before" "$state/before.area"
}
# dpkg may be in the middle of a module that dkms builds, and says nothing for minutes. Lines without a percentage are
# only for terminals.
# dpkg --audit also names packages that only lack a file of checksums.
if dpkg-query -W -f '${Package} ${db:Status-Status}\n' | grep -qE ' (half-|unpacked|triggers-)'; then echo 'progress 0 finishing an interrupted installation'; fi
try dpkg --force-confdef --force-confold --configure -a || words | give_up || exit 1
[ $# -gt 0 ] || { record; exit 0; }
echo 'progress - reading the lists of packages'
# An apt that does not know Lock::Timeout (before 2.0) ignores it.
# One repository that cannot be read must not prevent packages of the others. apt has their lists, perhaps older ones.
rm -f "$state/apt.update"
try apt-get -q -o APT::Status-Fd=3 -o DPkg::Lock::Timeout=30 -o APT::Update::Error-Mode=any update || words >"$state/apt.update"
if grep -qsE "$taken" "$state/apt.update"; then give_up <"$state/apt.update"; fi
# To make room for a package, apt would remove others, such as another engine with its containers.
try apt-get -q -y -o APT::Status-Fd=3 -o DPkg::Lock::Timeout=30 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
  --no-install-recommends --no-remove install -- "$@" || {
  # Without fresh lists, apt lacks packages, or looks for versions that are gone.
  if [ -e "$state/apt.update" ] && words | grep -qE 'Unable to locate|no installation candidate|Failed to fetch|unmet dependencies'; then
    give_up <"$state/apt.update"
  fi
  words | give_up || exit 1
}
rm -f "$state/apt.update"
record
