# Fetches a key that signs a repository, and writes it only if it has this fingerprint. Arguments: AREA URL PATH FINGERPRINT.
# apt's own program fetches it, so apt's proxy and certificates apply.
command -v gpg >/dev/null 2>&1 || fail "gpg is missing, which reads the fingerprint of $2"
make_state
helper=$root/usr/lib/apt/apt-helper
rm -f "$state/key"
words=$("$helper" -o APT::Sandbox::User=root download-file "$2" "$state/key" 2>&1) || {
  printf '%s\n' "$words" | tail -n 20 >&2
  fail "$2 could not be fetched"
}
# apt trusts every key in the file, so the wanted one must be alone in it. Its subkeys are signed by it.
print=$(gpg --batch --homedir "$state" --show-keys --with-colons "$state/key" 2>/dev/null |
  awk -F: '$1 == "pub" {primary = 1} $1 == "fpr" && primary {all = all sep $10; sep = " and "; primary = 0} END {print all}')
[ "$print" = "$4" ] || fail "the key of $2 has the fingerprint ${print:-of nothing}, not $4: it was replaced, or somebody changed it on its way"
# gpg gives no fingerprint of a version 6 key, and a secret key is no pub. The programs that check for apt may use them.
packets=$(gpg --batch --homedir "$state" --list-packets "$state/key" 2>/dev/null | grep -c '^# off=.* tag=[56] ')
[ "$packets" -le 1 ] || fail "the file at $2 has another key beside $4, which apt would trust: somebody changed it on its way"
save_original "$3" "$1"
put "$3" 644 "$(wc -c <"$state/key")" <"$state/key"
rm -f "$state/key"
