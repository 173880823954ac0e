# shellcheck shell=bash
# Fills the file system of /var/tmp.

inject() {
  small /var/tmp size=8m
  head -c 7500000 /dev/zero >/var/tmp/kit-lab-full
}
