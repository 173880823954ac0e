# Writes standard input to FOLDER/PATH with MODE, owned by root, completely or not at all. Arguments: FOLDER PATH MODE SIZE.
set -e
target=$1/$2
umask 077
mkdir -p "$1" "$(dirname "$target")"
# A rank can leave a program that makes its caller root where its node writes. So no other user of this VM may reach what
# is in this folder. No container mounts the folder itself, so no rank can change its mode.
chmod 700 "$(dirname "$1")"
# sshd and ssh refuse keys below a folder that others can write to.
chmod 755 "$1" "$(dirname "$target")"
temporary=$(mktemp "$target.XXXXXX")
trap 'rm -f "$temporary"' EXIT
cat >"$temporary"
# A broken connection looks like the end of the input, so compare the size.
[ "$(wc -c <"$temporary")" -eq "$4" ] || { echo "only a part of $2 arrived" >&2; exit 1; }
chmod "$3" "$temporary"
chown 0:0 "$temporary"
# Where a file to mount is missing, an engine that starts a container makes an empty folder.
if [ -d "$target" ] && [ ! -L "$target" ]; then rmdir "$target"; fi
mv -fT "$temporary" "$target"
