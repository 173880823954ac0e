# Writes standard input to a file of the system. Arguments: AREA PATH MODE SIZE.
save_original "$2" "$1"
begin "$2"
put "$2" "$3" "$4"
