# shellcheck shell=bash
# Takes python3 from the PATH.

inject() {
  program python3 <<'END'
echo "sh: python3: not found" >&2
exit 127
END
}
