# Makes a folder that a mount needs. Arguments: PATH MODE. One that is there already is left as it is.
[ -e "$1" ] || { mkdir -p "$(dirname "$1")" && mkdir -m "$2" "$1"; }
