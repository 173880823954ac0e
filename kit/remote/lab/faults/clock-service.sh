# shellcheck shell=bash
# Pretends that no time service synchronizes the clock.

inject() { printf 'printf "NTP=no\\nNTPSynchronized=no\\n"; exit 0\n' | program timedatectl; }
