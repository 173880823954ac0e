# Copies a folder out of an image. Arguments: CLUSTER IMAGE PATH FOLDER. plugin.py says what it refuses.
# shellcheck disable=SC2154  # kit.remote.scripts puts the program before this script
exec python3 -IS -c "$plugin_program" "$@"
