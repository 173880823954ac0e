#!/bin/sh
# What a node runs: writes sshd's configuration from the template and the container's environment, then becomes sshd.
set -eu

template=/opt/kit/etc/sshd_config
folder=/etc/kit/ssh
config=/run/kit/sshd_config
# Under Swarm all nodes share one definition. What differs between nodes is in a file in the node's folder, and has to be
# in the environment from the start. The host key is a secret.
node=/etc/kit/node.env
if [ -r "$node" ] && [ "${1:-}" != again ]; then
  set --
  while IFS= read -r line; do set -- "$@" "$line"; done <"$node"
  exec env "$@" "$0" again
fi
# Compose sets no_new_privs, and Swarm cannot. All that sshd starts inherits it.
if [ -z "${KIT_NEW_PRIVILEGES:-}" ] && grep -q '^NoNewPrivs:.*0$' /proc/self/status; then
  exec setpriv --no-new-privs "$0" again
fi
key=/run/secrets/host_ed25519
[ -e "$key" ] || key=$folder/host_ed25519
: "${SSH_PORT:=33}" "${KIT_ADDRESS:=127.0.0.1}"

fail() {
  echo "start.sh: $1" >&2
  [ $# -lt 2 ] || echo "start.sh: $2" >&2
  exit 78
}

# others_write FILE: succeeds if anybody but the owner may write to it.
others_write() { [ -n "$(find "$1" -maxdepth 0 -perm /022)" ]; }

case $SSH_PORT in
  '' | *[!0-9]*) fail "SSH_PORT is '$SSH_PORT', which is not a port" "set it to a number such as 33" ;;
esac
case $KIT_ADDRESS in
  *[!0-9A-Fa-f.:]*) fail "KIT_ADDRESS is '$KIT_ADDRESS', which is not an address" "set it to this node's IP" ;;
esac
for file in "$key" "$folder/authorized_keys"; do
  [ -s "$file" ] || fail "$file is missing: this container has no keys of a cluster" \
    "'kit deploy' makes them and mounts their folder at /etc/kit; run it again"
  [ "$(stat -L -c %u "$file")" = 0 ] || fail "$file is not root's" \
    "on the VM: chown root:root the file; or run 'kit deploy' again"
done
[ -z "$(find -L "$key" -maxdepth 0 -perm /077)" ] || fail "$key can be read by others" \
  "on the VM: chmod 600 the file; or run 'kit deploy' again"
for path in /etc/kit "$folder" "$folder/authorized_keys"; do
  ! others_write "$path" || fail "$path can be written by others, so sshd would refuse every key" \
    "on the VM: chmod go-w it; or run 'kit deploy' again"
done

# An engine with userns-remap stores the image's files as those of another user of the VM. The node has the VM's users,
# without which it could not have its network. sshd would refuse every key there, because / is not root's. So the folders
# of the keys are checked here, and no rank may be that user.
strict=yes
owner=$(stat -c %u /)
if [ "$owner" != 0 ]; then
  strict=no
  case ${KIT_USER:-} in
    "$owner" | "$owner":*) fail "the image's files belong to the user of the ranks, $owner" "set another user: in kit.yaml" ;;
  esac
  for path in /etc/kit "$folder"; do
    [ "$(stat -L -c %u "$path")" = 0 ] || fail "$path is not root's" \
      "on the VM: chown root:root the folder; or run 'kit deploy' again"
  done
  for path in / /etc; do
    ! others_write "$path" || fail "$path can be written by others, so no key in it is safe" "use another image"
  done
fi

# An ssh session starts with an empty environment, but ranks need those of the image and of Compose. sshd reads only the
# first SetEnv line. It cannot hold a value of several lines, so such values are left out, as are those of one shell.
# Up to OpenSSH 8.6, quoted text cannot contain escapes.
session='PWD|OLDPWD|TERM|HOSTNAME|SHLVL|_|USER|LOGNAME|SHELL|MAIL|SSH_[A-Z]*'
environment() {
  # /proc/$$ is this shell. /proc/self would be the pipe's process, which loses its environment when it becomes tr.
  tr '\n\000' '\001\n' <"/proc/$$/environ" | grep -v "$(printf '\001')" | grep -E '^[A-Za-z_][A-Za-z0-9_]*=' |
    grep -vE "^($session)=" | grep -v '^SSH_PORT=' || true
  echo "SSH_PORT=$SSH_PORT"
}
version=$(ssh -V 2>&1 | sed -n 's/^OpenSSH_\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
old() { [ "${version% *}" -lt 8 ] || { [ "${version% *}" -eq 8 ] && [ "${version#* }" -lt 7 ]; }; }
quoted() {
  if old; then grep -v '"' | sed 's/.*/"&"/'; else sed 's/[\\"]/\\&/g; s/.*/"&"/'; fi
}
# Nobody would notice the loss before a rank misses its variable.
name_lost() {
  lost=
  if old; then lost=$(environment | sed -n 's/=.*".*//p' | tr '\n' ' '); fi
  [ -z "$lost" ] || {
    echo "start.sh: SSH sessions, in which ranks start, do not get these variables: $lost" >&2
    echo "start.sh: OpenSSH ${version% *}.${version#* } cannot pass on values with a double quote; use a base with" \
      "OpenSSH 8.7 or newer, or pass the values to each run: kit run -x NAME=VALUE" >&2
  }
}

umask 077
mkdir -p /run/kit /run/sshd
chmod 755 /run /run/sshd
state=/var/lib/kit
# The folder of the VM behind /tmp, without what an earlier container left. What is mounted below it belongs to the user,
# and stays. Other users of the VM may not enter the folder.
group=${KIT_USER:-0:0} group=${group#*:}
if [ /tmp -ef /etc/kit/tmp ]; then
  python3 -IS /opt/kit/bin/kit-scratch /tmp || echo "start.sh: /tmp still has what an earlier container left" >&2
  chgrp "$group" /tmp
  chmod 1770 /tmp
fi
# Open MPI 4 keeps its sessions in a folder that each mpirun and its daemons remove when it seems to be empty, even if
# another mpirun has just made it for itself and then fails: "orte_session_dir failed". It does not remove a folder in it.
node_name=$(uname -n)
mkdir -p "/tmp/ompi.$node_name.0/kit" "/tmp/ompi.${node_name%%.*}.0/kit" || true
# A node of kit deploy has its own file for names. It is made again at each start, as the engine does it.
if [ -r /opt/kit/etc/vm-hosts ]; then
  /opt/kit/bin/own-names.sh "$KIT_ADDRESS" "$node_name" </opt/kit/etc/vm-hosts >/etc/hosts ||
    echo "start.sh: cannot write /etc/hosts: this node does not know the names that its VM knows" >&2
fi
# The image's home folder is read-only, so there is another one. What it lacks comes from the image.
case ${HOME:-} in
  $state/home/*) python3 -IS /opt/kit/bin/kit-home "$HOME" ;;
esac
# Ranks that are not root have their own home folder, and folders for their stacks and terminals. Their group may pass
# through the folders above them, and other users of the VM may not.
if [ -n "${KIT_USER:-}" ]; then
  [ ! -L $state/home/ranks ] || fail "$state/home/ranks is a link, so it cannot be the home folder of ranks" \
    "a job that was root left it; on the VM: rm /opt/kit/<cluster>/var/home/ranks, and run 'kit deploy' again"
  mkdir -p /run/kit/stacks /run/kit/terminals $state/home/ranks
  chgrp "$group" /run/kit $state $state/home
  chmod 710 /run/kit $state $state/home
  # A job that was root may have left a link, which kit down keeps with the rest.
  chown -h "$KIT_USER" /run/kit/stacks /run/kit/terminals $state/home/ranks
  # Ranks can pass through folders of runs, and earlier versions of kit made these files readable.
  [ ! -d $state/runs ] || find $state/runs -mindepth 2 -maxdepth 2 -path "$state/runs/[!.]*" -type f -perm /077 \
    -exec chmod go-rwx {} + || echo "start.sh: ranks may still be able to read records and logs of earlier runs" >&2
fi
name_lost
{
  sed -e "s/@SSH_PORT@/$SSH_PORT/" -e "s/@KIT_ADDRESS@/$KIT_ADDRESS/" -e "s|@HOST_KEY@|$key|" \
    -e "s/^StrictModes yes$/StrictModes $strict/" "$template"
  # dash's echo would interpret backslashes.
  printf 'SetEnv %s\n' "$(environment | quoted | tr '\n' ' ')"
} >"$config"
/usr/sbin/sshd -t -f "$config" || fail "sshd refuses its configuration ($config)" "the line above says why"
# The line of waiting runs goes on after a restart of the head.
for file in "$state"/runs/.queue/*.json; do
  [ ! -e "$file" ] || python3 -IS /opt/kit/bin/kit-launch tend ||
    echo "start.sh: runs in line do not start before somebody calls 'kit queue'" >&2
  break
done
exec /usr/sbin/sshd -D -e -f "$config"
