# shellcheck shell=bash
# What all faults of lab hosts use. kit sends this file, one of faults/ and the call of `main` to a host.
#
# A fault defines `inject` and may define `mend`. Both may use $ARG, what you gave after the fault's name. What the
# functions below change, `main` takes back by itself, so most faults need no `mend`. What they note is on the host, so
# any kit can take it back.
set -euo pipefail

KIT=/var/lib/kit-lab
# Mounts end with the host's run, and so does what is known of them.
RUN=/run/kit-lab
SBIN=/usr/local/sbin
FAULT=
ARG=
LOCK=

fail() { echo "$*" >&2; exit 1; }

# Two faults may change the same program or link, so the second one waits for the end of the first.
alone() {
  mkdir -p "$KIT"
  exec {LOCK}>"$KIT/lock"
  flock "$LOCK"
}

note() { printf '%s\n' "$2" >>"$KIT/faults/$FAULT/$1"; }
noted() { tac "$KIT/faults/$FAULT/$1" 2>/dev/null || true; }

network() { ip -4 route show dev eth0 scope link | awk '{ print $1; exit }'; }
gateway() { ip -4 route show default | awk '{ print $3; exit }'; }
# gpu1 has the address .11 in the lab's network, and so on. A fault of names must not disturb this.
another() { if [ "$(hostname)" = gpu1 ]; then echo gpu2; else echo gpu1; fi; }
another_address() {
  local here
  here=$(network)
  if [ "$(another)" = gpu1 ]; then echo "${here%.*}.11"; else echo "${here%.*}.12"; fi
}

# make_file PATH: write a new file, and note what goes with the fault: it, or the first folder that was missing.
make_file() {
  local top=$1
  while [ ! -e "$(dirname "$top")" ]; do top=$(dirname "$top"); done
  note made "$top"
  mkdir -p "$(dirname "$1")"
  cat >"$1"
}

# mount_fuse PROGRAM FOLDER: mount FOLDER as this program would by FUSE, and end it. With the value silent, it goes on, and
# never answers.
FUSE='import ctypes, os, sys
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions" % int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
program, folder = (word.encode() for word in sys.argv[1:3])
if libc.mount(program, folder, b"fuse." + program, ctypes.c_ulong(7), options):
    sys.exit("%s cannot be mounted: %s" % (sys.argv[1], os.strerror(ctypes.get_errno())))'
mount_fuse() {
  local kernel
  if ! [ -e /dev/fuse ]; then fail "this kernel has no FUSE"; fi
  note fuse "$2"
  mkdir -p "$2"
  # The kernel asks who has this file open. Nobody ever reads its questions.
  exec {kernel}<>/dev/fuse
  python3 -c "$FUSE" "$1" "$2" "$kernel"
  if [ "$ARG" = silent ]; then background sleep infinity; fi
  exec {kernel}>&-
}

# stand_in PATH: let the text on standard input stand for a file below /proc or /sys. If the path does not exist, a copy
# of its nearest folder gets it: the copy has all that the folder has, by bind mounts.
stand_in() {
  local path=$1 folder text
  text=$(cat)
  if [ -e "$path" ]; then
    mkdir -p "$RUN/files"
    printf '%s\n' "$text" >"$RUN/files/$FAULT-$(cksum <<<"$path" | cut -d' ' -f1)"
    mount --bind "$RUN/files/$FAULT-$(cksum <<<"$path" | cut -d' ' -f1)" "$path"
    note mounts "$path"
    return
  fi
  folder=$(dirname "$path")
  while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
  # A copy of all of /proc would hide the processes themselves.
  case $folder in / | /proc | /sys) fail "this kernel has nothing like $path" ;; esac
  if ! [ "$(stat -f -c %T "$folder")" = tmpfs ]; then extend "$folder"; fi
  make_file "$path" <<<"$text"
}

# The copy is writable, for more files.
extend() {
  local folder=$1 copy child
  copy=$RUN/copies/$(cksum <<<"$1" | cut -d' ' -f1)
  mkdir -p "$copy"
  mount -t tmpfs -o size=4m,mode=755 kit-lab "$copy"
  mount --make-private "$copy"
  for child in "$folder"/*; do
    if [ -L "$child" ]; then
      cp -P "$child" "$copy/"
    elif [ -d "$child" ]; then
      mkdir "$copy/${child##*/}"
      mount --rbind "$child" "$copy/${child##*/}"
      # What is unmounted in a copy goes away below it, too: a fault may be in the copy of a later one. The host's own
      # mounts must stay.
      if [ "$child" = /sys/fs/cgroup ]; then mount --make-rprivate "$copy/cgroup"; fi
    elif [ -e "$child" ]; then
      : >"$copy/${child##*/}"
      mount --bind "$child" "$copy/${child##*/}"
    fi
  done
  mount --rbind "$copy" "$folder"
  note copies "$folder $copy"
}

# program NAME: let the shell commands on standard input run before each call of a program. They may print and exit. Add
# options of sed to $edit, to change what the program prints. Several faults may change one program.
program() {
  local name=$1 real
  mkdir -p "$KIT/programs/$name"
  # The wrapper stays as long as the program has a fault.
  if ! grep -qs kit-lab-program "$SBIN/$name"; then
    real=$(command -v "$name" || true)
    printf '#!/bin/bash\n# kit-lab-program\nedit=()\nfor part in %q/*; do . "$part"; done\n' "$KIT/programs/$name" \
      >"$SBIN/$name.kit-lab"
    if [ -n "$real" ]; then
      cat >>"$SBIN/$name.kit-lab" <<END
if [ \${#edit[@]} -eq 0 ]; then exec $real "\$@"; fi
set -o pipefail
$real "\$@" | sed "\${edit[@]}"
END
    else
      printf 'exit 127\n' >>"$SBIN/$name.kit-lab"
    fi
    chmod 755 "$SBIN/$name.kit-lab"
    mv "$SBIN/$name.kit-lab" "$SBIN/$name"
  fi
  cat >"$KIT/programs/$name/$FAULT"
  note programs "$name"
}

unprogram() {
  rm -f "$KIT/programs/$1/$FAULT"
  if ! rmdir "$KIT/programs/$1" 2>/dev/null; then return; fi
  if grep -qs kit-lab-program "$SBIN/$1"; then rm -f "$SBIN/$1"; fi
}

# nvidia_smi SED: change what the pretended nvidia-smi prints.
nvidia_smi() {
  if ! command -v nvidia-smi >/dev/null; then fail "this host has no GPUs: kit lab up --gpus 2"; fi
  printf 'edit+=(-e %q)\n' "$1" | program nvidia-smi
}

# setting NAME VALUE: change a sysctl, and note what it was.
setting() {
  local path=/proc/sys/${1//.//}
  if [ ! -e "$path" ]; then fail "this kernel has no setting $1"; fi
  note settings "$path $(tr '\t' ' ' <"$path")"
  printf '%s\n' "$2" >"$path"
}

# first_line FILE TEXT: add a first line to a file, in place, because some are mounts. It ends with a mark.
first_line() {
  local rest
  rest=$(cat "$1")
  printf '%s # kit-lab %s\n%s\n' "$2" "$FAULT" "$rest" >"$1"
  note lines "$1"
}

# filter RULE...: drop packets of other hosts. Those of your machine, where kit runs, always pass. Each rule is one word.
filter() {
  local chain=KIT-LAB-$FAULT rule
  iptables -w -N "$chain"
  note chains "$chain"
  iptables -w -A "$chain" -s "$(gateway)" -j RETURN
  for rule; do
    # shellcheck disable=SC2086  # the words of a rule
    iptables -w -A "$chain" -s "$(network)" $rule -j DROP
  done
  iptables -w -I INPUT -i eth0 -j "$chain"
}

# small PATH OPTIONS: mount a small file system.
small() {
  mkdir -p "$1"
  mount -t tmpfs -o "mode=1777,$2" kit-lab "$1"
  note mounts "$1"
}

# background COMMAND...: leave a process behind.
background() {
  # It must not keep the lock.
  (if [ "$LOCK" ]; then exec {LOCK}>&-; fi; exec setsid "$@") >/dev/null 2>&1 </dev/null &
  note processes "$! $(cut -d' ' -f22 "/proc/$!/stat")"
}

# slow_link RATE: limit what the host sends. The faults slow-link and one-way share this limit.
slow_link() {
  local rate
  if [ ! -e "$KIT/rate" ]; then
    rate=$(tc qdisc show dev eth0 root | sed -n 's/.* rate \([^ ]*\) .*/\1/p')
    echo "${rate:-none}" >"$KIT/rate"
  fi
  /usr/local/sbin/link-rate "$1" eth0
}
usual_rate() { cat "$KIT/rate" 2>/dev/null || echo none; }
# far_end RATE: limit what arrives at the host, too. kit does that on your machine, and then says `shaped`.
far_end() { printf '%s\n' "$1" >"$KIT/far-end"; }
restore_link() {
  local other
  for other in slow-link one-way; do
    if [ "$other" != "$FAULT" ] && [ -d "$KIT/faults/$other" ]; then return; fi
  done
  /usr/local/sbin/link-rate "$(usual_rate)" eth0
  rm -f "$KIT/rate"
}

reload_sshd() { pkill -HUP -o -x sshd || true; }

take_back() {
  local path rest
  while read -r path; do umount "$path" 2>/dev/null || true; done < <(noted mounts)
  while read -r path; do
    umount -l "$path" 2>/dev/null || true
    # A folder with anything else stays, and so do those of the system.
    while [ "${path%/*}" ] && rmdir "$path" 2>/dev/null; do path=${path%/*}; done
  done < <(noted fuse)
  while read -r path; do rm -rf "${path:?}"; done < <(noted made)
  while read -r path rest; do
    umount -R "$path" 2>/dev/null || true
    umount -R "$rest" 2>/dev/null || true
  done < <(noted copies)
  while read -r path; do unprogram "$path"; done < <(noted programs)
  while read -r path rest; do printf '%s\n' "$rest" >"$path"; done < <(noted settings)
  while read -r path; do
    rest=$(sed "/ # kit-lab $FAULT\$/d" "$path")
    printf '%s\n' "$rest" >"$path"
  done < <(noted lines)
  while read -r path; do
    iptables -w -D INPUT -i eth0 -j "$path" 2>/dev/null || true
    iptables -w -F "$path" 2>/dev/null || true
    iptables -w -X "$path" 2>/dev/null || true
  done < <(noted chains)
  # Another process may have got the number since.
  while read -r path rest; do
    if [ "$(cut -d' ' -f22 "/proc/$path/stat" 2>/dev/null)" = "$rest" ]; then kill "$path" || true; fi
  done < <(noted processes)
}

mend() { :; }

repair() {
  if [ ! -d "$KIT/faults/$FAULT" ]; then return; fi
  mend
  take_back
  rm -rf "${KIT:?}/faults/$FAULT"
}

main() { # inject|mend|list|shaped FAULT [ARG]
  FAULT=${2:-}
  # shellcheck disable=SC2034  # faults use it
  ARG=${3:-}
  if [ ! -e /usr/lib/kit-lab/prepare ]; then fail "this is no host of a lab"; fi
  if [ "$1" != list ]; then alone; fi
  case $1 in
    list)
      ls "$KIT/faults" 2>/dev/null || true
      if [ -e "$KIT/far-end" ]; then echo "far-end $(cat "$KIT/far-end")"; fi
      ;;
    shaped) rm -f "$KIT/far-end" ;;
    mend) repair ;;
    inject)
      # Twice is once.
      repair
      mkdir -p "$KIT/faults/$FAULT"
      # If the rest is not possible, take back what began.
      trap 'repair' EXIT
      inject
      trap - EXIT
      ;;
  esac
  # A busy engine can lose what a command prints. Without this line, kit asks again.
  echo "kit-lab-fault ends"
}
