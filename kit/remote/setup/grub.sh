# Lets GRUB read its settings.
output=$(update-grub 2>&1) || { printf '%s\n' "$output" | tail -n 15 >&2; fail "update-grub failed"; }
finish grub
