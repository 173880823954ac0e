# Creates a folder that a mount needs. Arguments: PATH MODE. Does not change an existing folder.
[ -e "$1" ] || { mkdir -p "$(dirname "$1")" && mkdir -m "$2" "$1"; }
