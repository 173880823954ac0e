# Prints the boot id.
cat "$root/proc/sys/kernel/random/boot_id"
