#!/bin/sh
# Prints the names of a node, from its VM's /etc/hosts: own-names.sh ADDRESS NAME <HOSTS.
#
# NAME, the VM's own, stands for ADDRESS there. Debian gives a VM 127.0.1.1 for it, and other hosts then cannot reach
# what listens at its own name, such as JAX on CPUs. The other names of its lines move with it, localhost's do not.
set -euf

address=$1 own=$2 moved='' kept=''
tab=$(printf '\t')
while read -r line || [ -n "$line" ]; do
  # Words of the line, split at blanks.
  # shellcheck disable=SC2086
  set -- ${line%%#*}
  case " $* " in
    *" $own "*) ;;
    *)
      kept="$kept$line
"
      continue
      ;;
  esac
  stays=''
  at=$1
  shift
  for name; do
    case $name in
      localhost | localhost.* | localhost[46] | localhost[46].* | ip6-localhost | ip6-loopback) stays="$stays $name" ;;
      *) case " $moved " in *" $name "*) ;; *) moved="$moved $name" ;; esac ;;
    esac
  done
  [ -z "$stays" ] || kept="$kept$at$tab${stays# }
"
done
[ -n "$moved" ] || moved=" $own"
printf '%s\t%s\n%s' "$address" "${moved# }" "$kept"
