# Reserves huge pages of 1 GiB in the running kernel, as many as it has room for. Arguments: AREA COUNT.
file=$root/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
[ -w "$file" ] || fail "this kernel has no huge pages of 1 GiB"
save_value hugepages nr_hugepages "$(cat "$file")" "$1"
printf '%s\n' "$2" >"$file" 2>/dev/null
echo "pages $(cat "$file")"
