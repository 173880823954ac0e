# Prints what decides whether this VM's engine can give GPUs to a container: lines of a word and a value. Changes nothing.
# kit.remote.cluster.gpus reads it. It runs only on VMs with nvidia-smi.
export LC_ALL=C
set -f
pid=$(cat /run/docker.pid 2>/dev/null)
if [ "$(cat "/proc/${pid:-none}/comm" 2>/dev/null)" != dockerd ]; then
  set +f
  pid=$(grep -lx dockerd /proc/[0-9]*/comm 2>/dev/null | head -n 1 | cut -d / -f 3)
  set -f
fi
path='' root=''
if [ -n "$pid" ]; then
  path=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^PATH=//p' | head -n 1)
  # A snap has other files.
  if [ -d "/proc/$pid/root/" ]; then root=/proc/$pid/root; fi
  echo "program $(readlink "/proc/$pid/exe" 2>/dev/null)"
  # Since the boot, in hundredths of a second. The name of a program may contain spaces.
  ticks=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 20)
  boot=$(sed -n 's/^btime //p' /proc/stat 2>/dev/null)
  if [ -n "$ticks" ] && [ -n "$boot" ]; then echo "started $((boot + ticks / 100))"; fi
fi
# found NAME: prints the program's path, as dockerd would find it.
found() {
  before=$IFS
  IFS=:
  for place in ${path:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}; do
    case $place in
      /*) if [ -f "$root$place/$1" ] && [ -x "$root$place/$1" ]; then echo "$place/$1" && break; fi ;;
    esac
  done
  IFS=$before
}
hook=$(found nvidia-container-runtime-hook)
if [ -n "$hook" ]; then
  echo "hook $hook"
  # A link may be newer than its target.
  echo "hook_changed $({ stat -c %Z "$root$hook"; stat -L -c %Z "$root$hook"; } 2>/dev/null | sort -n | tail -n 1)"
  echo "now $(date +%s)"
fi
echo "runtime $(found nvidia-container-runtime)"
# Only the lines of CDI files that matter: a file has a line for each library of the driver. libcuda.so.1.1 of WSL is no
# version of a driver.
set +f
for file in /etc/cdi/*.yaml /etc/cdi/*.json /run/cdi/*.yaml /run/cdi/*.json; do
  if [ -f "$root$file" ]; then
    rows=$(head -c 1048576 "$root$file" |
      grep -oE '(^|[^A-Za-z])(kind|name)[^A-Za-z0-9]?: *[^A-Za-z0-9]?[A-Za-z0-9./:_-]+|libcuda\.so\.[0-9]{3,}\.[0-9.]*[0-9]')
    if printf '%s\n' "$rows" | grep -qE 'kind[^A-Za-z0-9]?: *[^A-Za-z0-9]?nvidia\.com/gpu$'; then
      printf '%s\n' "$rows" | sed -nE "s|.*name[^A-Za-z0-9]?: *[^A-Za-z0-9]?|cdi ${file%/*} |p; s|libcuda\.so\.|cdi_driver ${file%/*} |p" |
        head -n 300
    fi
  fi
done
exit 0
