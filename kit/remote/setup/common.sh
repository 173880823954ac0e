# What the scripts of kit setup share. KIT_SETUP_ROOT is a folder in place of /, for tests.
root=${KIT_SETUP_ROOT:-}
state=$root/opt/kit/.setup
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

fail() { printf '%s\n' "$*" >&2; exit 1; }
key_of() { printf %s "$1" | tr / +; }

# Only root may read what a file was before: it may have a password in it.
make_state() {
  (umask 077 && mkdir -p "$state/files" "$state/values") && chmod 700 "${state%/*}" "$state" || fail "$state cannot be made"
}

# is_kits SAVED PATH: whether the file has the bytes that kit wrote, this time or an earlier one.
is_kits() { grep -qxF "$(sha256sum <"$root$2" | cut -c1-64)" "$1/written"; }

# save_original PATH AREA: keeps the original of a file that kit is about to change, once, and the areas that change it, one
# per line. Keeps also what somebody else made of the file since then, and with it that an undo must not replace what is a
# mixture from now on. The mark `folder` means that the file's folder is new, too.
save_original() {
  make_state
  saved=$state/files/$(key_of "$1")
  if [ -d "$saved" ]; then
    # Two areas may write daemon.json. An undo of one of them must not take what the other one wrote.
    grep -qxF -- "$2" "$saved/area" || {
      (umask 077 && { cat "$saved/area" && printf '%s\n' "$2"; } >"$saved/area.new") && mv "$saved/area.new" "$saved/area" ||
        fail "the area of $1 cannot be kept; is the disk full?"
    }
    if [ ! -e "$root$1" ] || [ -e "$saved/mixed" ] || cmp -s "$saved/original" "$root$1" || is_kits "$saved" "$1"; then return 0; fi
    (umask 077 && cp -p -- "$root$1" "$saved/mixed.new" && mv -T "$saved/mixed.new" "$saved/mixed") ||
      fail "your version of $1 cannot be kept; is the disk full?"
    return 0
  fi
  rm -rf "$saved.new"
  (
    umask 077
    mkdir "$saved.new" && printf '%s\n' "$1" >"$saved.new/path" && printf '%s\n' "$2" >"$saved.new/area" &&
      : >"$saved.new/written" && { [ -d "$root${1%/*}" ] || : >"$saved.new/folder"; } &&
      if [ -e "$root$1" ]; then cp -p -- "$root$1" "$saved.new/original"; fi
  ) && mv -T "$saved.new" "$saved" || fail "the original of $1 cannot be kept; is the disk full?"
}

# save_value KIND KEY VALUE AREA: keeps a value of the running system, once.
save_value() {
  make_state
  [ -e "$state/values/$1+$(key_of "$2")" ] && return 0
  (umask 077 && printf '%s\n%s\n%s\n%s\n' "$1" "$2" "$3" "$4" >"$state/values/new") &&
    mv -f "$state/values/new" "$state/values/$1+$(key_of "$2")" || fail "the value of $2 cannot be kept; is the disk full?"
}

# put PATH MODE SIZE: writes standard input to a file, completely or not at all. Call save_original before.
put() {
  folder=$root${1%/*}
  saved=$state/files/$(key_of "$1")
  (umask 022 && mkdir -p "$folder") || fail "$folder cannot be made"
  # A killed kit leaves such files.
  rm -f "$folder"/.kit-setup-??????
  temporary=$(mktemp "$folder/.kit-setup-XXXXXX") || fail "$1 cannot be written"
  trap 'rm -f "$temporary"' EXIT
  cat >"$temporary" || fail "$1 cannot be written; is the disk full?"
  # A broken connection looks like the end of the input, so compare the size.
  [ "$(wc -c <"$temporary")" -eq "$3" ] || fail "only a part of $1 arrived"
  chmod "$2" "$temporary" && { [ "$(id -u)" != 0 ] || chown 0:0 "$temporary"; } || fail "$1 cannot be written"
  # Before the file itself, so that an undo knows it as kit's in any case.
  sha256sum <"$temporary" | cut -c1-64 >>"$saved/written" || fail "$1 cannot be written; is the disk full?"
  mv -fT "$temporary" "$root$1" || fail "$1 cannot be written"
  trap - EXIT
}

# begin PATH: remembers that a program has to read this file, before the file changes. A killed kit leaves the mark, and
# the program's own script removes it.
begin() {
  case $1 in
    /etc/default/grub.d/*) program=grub ;;
    /etc/docker/daemon.json | /etc/systemd/system/docker.service.d/*) program=engine ;;
    *) return 0 ;;
  esac
  (umask 077 && mkdir -p "$state/unfinished" && : >"$state/unfinished/$program") || fail "$state/unfinished cannot be written"
}
finish() { rm -f "$state/unfinished/$1"; }

has_systemd() { [ -d "$root/run/systemd/system" ]; }

engine_answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# shims: counts the processes of containerd that each hold a container, whatever the engine says. The kernel cuts their
# name to 15 characters. Those of a rootless engine count, too.
shims() { cat "$root"/proc/[0-9]*/comm 2>/dev/null | grep -cx containerd-shim; }

# running: prints how many containers run. An engine that fails or hangs has answered nothing, and its containers live on.
running() {
  if ids=$(timeout 20 docker ps --quiet 2>/dev/null); then printf %s "$ids" | grep -c .; else shims; fi
}

# await_engine SECONDS
await_engine() {
  end=$(($(uptime_s) + $1))
  until engine_answers; do
    [ "$(uptime_s)" -lt "$end" ] || return 1
    # systemd has given up. Waiting longer does not help.
    if has_systemd && systemctl is-failed --quiet docker; then return 1; fi
    sleep 0.5
  done
}

# is_stale UNIT: whether systemd has an old version of this unit. daemon-reload takes the GPUs from running containers
# that got them by NVIDIA's hook, so kit reloads only then, and enables and disables units with --no-reload.
is_stale() {
  case $(systemctl show --property=LoadState --property=NeedDaemonReload "$1" 2>/dev/null) in
    *NeedDaemonReload=yes* | *LoadState=not-found*) return 0 ;;
  esac
  return 1
}

# The last lines that the engine wrote, for an error.
engine_words() {
  if has_systemd; then
    journalctl -u docker --no-pager -n 15 -o cat 2>/dev/null
  else
    tail -n 15 "$root/var/log/docker.log" 2>/dev/null || tail -n 15 "$root/var/log/dockerd.log" 2>/dev/null
  fi
}

# engine_service start|restart: the way of this host.
engine_service() {
  if has_systemd; then
    if is_stale docker; then systemctl daemon-reload; fi
    systemctl reset-failed docker 2>/dev/null
    systemctl enable --no-reload docker >/dev/null 2>&1
    timeout 90 systemctl "$1" docker
    return
  fi
  pid=$(cat "$root/run/docker.pid" 2>/dev/null)
  own=$(cat "$root/run/docker-ssd.pid" 2>/dev/null)
  # A dockerd that no service of the host has started: who started it also restarts it.
  if [ -n "$pid" ] && [ "$pid" != "$own" ] && kill -0 "$pid" 2>/dev/null; then
    [ "$1" = start ] && return 0
    kill "$pid"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.5
    done
    sleep 2
    engine_answers && return 0
  fi
  [ -x "$root/etc/init.d/docker" ] || fail "this host has neither systemd nor /etc/init.d/docker, which start the engine"
  "$root/etc/init.d/docker" "$1"
}

# holder: prints `PID NAME` of the process that holds a lock of apt or dpkg.
holder() {
  for lock in "$root/var/lib/dpkg/lock-frontend" "$root/var/lib/dpkg/lock" "$root/var/lib/apt/lists/lock" "$root/var/cache/apt/archives/lock"; do
    inode=$(stat -c %i "$lock" 2>/dev/null) || continue
    pid=$(awk -v inode="$inode" '$2 == "POSIX" && $4 == "WRITE" {n = split($6, part, ":"); if (part[n] == inode) {print $5; exit}}' \
      "$root/proc/locks" 2>/dev/null)
    if [ -n "$pid" ]; then echo "$pid $(cat "$root/proc/$pid/comm" 2>/dev/null)"; return; fi
  done
}
