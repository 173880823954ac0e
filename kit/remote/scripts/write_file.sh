# Writes standard input to FOLDER/PATH with MODE, owned by root, completely or not at all. Arguments: FOLDER PATH MODE SIZE.
set -e
target=$1/$2
umask 077
# sshd and ssh refuse keys below a folder that others can write to.
mkdir -p "$1" "$(dirname "$target")"
chmod 755 "$(dirname "$1")" "$1" "$(dirname "$target")"
temporary=$(mktemp "$target.XXXXXX")
trap 'rm -f "$temporary"' EXIT
cat >"$temporary"
# A broken connection looks like the end of the input, so compare the size.
[ "$(wc -c <"$temporary")" -eq "$4" ] || { echo "only a part of $2 arrived" >&2; exit 1; }
chmod "$3" "$temporary"
chown 0:0 "$temporary"
mv -fT "$temporary" "$target"
