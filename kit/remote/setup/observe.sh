# Prints what kit setup must know of a host. Changes nothing. Arguments: KERNEL_SETTINGS FILE...
# Standard input is a line with a mark: only a line that begins with it starts a section.
settings=$1
shift
read -r mark || true
section() { echo "@@ $mark $1"; }

section system
if [ -r "$root/etc/os-release" ]; then
  (. "$root/etc/os-release" && echo "os ${ID:-}" && echo "version ${VERSION_ID:-}" && echo "codename ${VERSION_CODENAME:-}" &&
    echo "name ${PRETTY_NAME:-}")
fi
echo "arch $(dpkg --print-architecture 2>/dev/null || uname -m)"
echo "kernel $(uname -r)"
echo "boot_id $(cat "$root/proc/sys/kernel/random/boot_id" 2>/dev/null)"
echo "machine_id $(cat "$root/etc/machine-id" 2>/dev/null)"
if has_systemd; then echo 'systemd yes'; fi
if command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1; then echo 'apt yes'; fi
if [ -r "$root/etc/default/grub" ] && command -v update-grub >/dev/null 2>&1; then echo 'grub yes'; fi
# The variable has four bytes of attributes, and then 1 if the firmware accepts only signed code.
if [ "$(tail -c 1 "$root"/sys/firmware/efi/efivars/SecureBoot-* 2>/dev/null | tr '\001' y)" = y ]; then echo 'secure_boot yes'; fi
if grep -qs 'hugepagesz=1G' "$root/proc/cmdline"; then echo 'boot_pages yes'; fi
awk '/^MemTotal:/ {print "memory_kib", $2}' "$root/proc/meminfo" 2>/dev/null
# A newer result means that somebody else did it since.
unfinished() { [ -e "$state/unfinished/$1" ] && ! [ "$2" -nt "$state/unfinished/$1" ]; }
if unfinished grub "$root/boot/grub/grub.cfg"; then echo 'unfinished_grub yes'; fi
if unfinished engine "$root/run/docker.pid"; then echo 'unfinished_engine yes'; fi
pages=$(cat "$root/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages" 2>/dev/null) && echo "pages $pages"

section packages
dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\n' 2>/dev/null | awk '
  $3 ~ /^(half-installed|unpacked|half-configured|triggers-)/ {print "interrupted", $1; next}
  $3 == "installed" && $1 ~ /^(docker|containerd|moby|podman-docker|nvidia|libnvidia|cuda-drivers|linux-modules-nvidia|linux-headers-(cloud-|rt-)?(amd64|arm64)$|unattended-upgrades$)/ {print $1, $2}'
if ls "$root"/var/lib/dpkg/updates/* >/dev/null 2>&1; then echo 'interrupted dpkg'; fi
section sources
# Without ReleaseInfo, apt also names sources whose lists it has not fetched yet. With it, apt knows their origin.
# Prints `URI SUITE COMPONENT FILE ORIGIN [OPTION=VALUE]...`, and - for what there is not. apt has no name for options
# of a source, so they come from its file: they must be the same wherever the place is named, or apt stops.
{
  apt-get indextargets --format 'origin|$(REPO_URI)|$(RELEASE)|$(ORIGIN)' 'Created-By: Packages' 2>/dev/null | sort -u
  apt-get indextargets -o APT::Get::IndexTargets::ReleaseInfo=0 --format \
    'source|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SOURCESENTRY)' 'Created-By: Packages' 2>/dev/null | sort -u
} | awk -F '|' -v root="$root" '
  BEGIN {
    names = "signed-by trusted check-valid-until valid-until-min valid-until-max check-date date-max-future snapshot"
    count = split(names " allow-insecure allow-weak allow-downgrade-to-insecure", words, " ")
    for (i = 1; i <= count; i++) wanted[words[i]] = 1
  }
  function word(text) {
    gsub(/[ \t]+/, "_", text)
    return text == "" || text ~ /^\$\(/ ? "-" : text
  }
  function option(key, value) {
    key = tolower(key)
    if (!(key in wanted)) return ""
    if (value ~ /BEGIN PGP/) value = "inline"
    sub(/^[ \t]+/, "", value); sub(/[ \t]+$/, "", value)
    gsub(/[ \t]*,[ \t]*|[ \t]+/, ",", value)
    return " " key "=" value
  }
  # The entry of that number: a line of a .list, a paragraph of a .sources.
  function options(entry,    file, number, path, line, at, inside, key, value, parts, i, n, all) {
    n = match(entry, /:[0-9]+$/)
    file = substr(entry, 1, n - 1); number = substr(entry, n + 1) + 0; path = root file
    at = inside = 0; all = key = value = ""
    while ((getline line <path) > 0) {
      if (file !~ /\.sources$/) {
        if (++at != number || !match(line, /\[[^]]*\]/)) continue
        n = split(substr(line, RSTART + 1, RLENGTH - 2), parts, /[ \t]+/)
        for (i = 1; i <= n; i++) if ((at = index(parts[i], "=")) > 1) all = all option(substr(parts[i], 1, at - 1), substr(parts[i], at + 1))
        break
      }
      if (line ~ /^#/) continue
      if (line ~ /^[ \t]*$/) { inside = 0; continue }
      if (!inside) { inside = 1; at++ }
      if (at < number) continue
      if (at > number) break
      if (line ~ /^[ \t]/) { value = value " " line; continue }
      if (key != "") all = all option(key, value)
      n = index(line, ":"); key = substr(line, 1, n - 1); value = substr(line, n + 1)
    }
    close(path)
    if (key != "") all = all option(key, value)
    return all
  }
  $1 == "origin" {origin[$2, $3] = $4; next}
  {
    if (!($5 in known)) known[$5] = options($5)
    file = $5; sub(/:[0-9]+$/, "", file)
    print word($2), $3 == "" ? "/" : word($3), word($4), word(file), word(origin[$2, $3]) known[$5]
  }' | head -n 200

section docker
count=
if [ -e "$state/daemon.json.before" ] || [ -e "$state/daemon.json.before.absent" ]; then echo 'pending yes'; fi
if client=$(command -v docker); then
  echo "path $(readlink -f "$client")"
  case $(timeout 20 docker --version 2>/dev/null) in podman*) echo 'podman yes' ;; esac
  # Ask for one thing at a time: a client without an engine still answers.
  if version=$(timeout 20 docker version --format '{{.Server.Version}}' 2>&1); then
    # Before it, the client warns of its own settings.
    echo "engine $(printf %s "$version" | tail -n 1)"
    count=$(running)
    if has_systemd && is_stale docker; then echo 'stale yes'; fi
    echo "live_restore $(timeout 20 docker info --format '{{.LiveRestoreEnabled}}' 2>/dev/null)"
  elif [ $? = 124 ]; then
    echo 'fault it did not answer within 20 s'
  else
    echo "fault $(printf %s "$version" | tail -n 1)"
  fi
  if version=$(timeout 20 docker compose version --short 2>/dev/null); then echo "compose $version"; fi
fi
# Also without an answer: what would end containers needs their number.
echo "running ${count:-$(shims)}"

section files
for path in "$@" $(cat "$state"/files/*/path 2>/dev/null); do
  file=$root$path
  if [ -L "$file" ]; then
    echo "$path link -"
  elif [ -f "$file" ] && [ "$(stat -c %s "$file")" -le 262144 ]; then
    echo "$path $(stat -c %a "$file") $(base64 -w0 <"$file")"
  elif [ -e "$file" ]; then
    echo "$path other -"
  fi
done

section kernel
for key in $settings; do
  file=$root/proc/sys/$(printf %s "$key" | tr . /)
  # In a container, the kernel shows settings that only the machine may change.
  if [ -w "$file" ] && value=$(cat "$file" 2>/dev/null); then echo "$key" $value; fi
done
# Of each interface, because the kernel takes the larger one of its own value and that of "all".
for nic in "$root"/sys/class/net/*; do
  key=net.ipv4.conf.${nic##*/}.rp_filter
  if value=$(cat "$root/proc/sys/net/ipv4/conf/${nic##*/}/rp_filter" 2>/dev/null); then echo "$key $value"; fi
done

# What the next boot sets after kit's file: files with later names, also of the system. Of two with one name, that of /etc
# counts. Prints `PATH KEY VALUE`, the last one last.
section later_kernel
for folder in etc run usr/local/lib usr/lib lib; do
  for path in "$root/$folder"/sysctl.d/*.conf; do
    if [ -e "$path" ]; then echo "${path##*/} /$folder/sysctl.d/${path##*/}"; fi
  done
done | awk '$1 > "90-kit.conf" && !seen[$1]++ && NF == 2' | sort | while read -r _ path; do
  awk -v path="$path" -v settings="$settings" '
    BEGIN {count = split(settings, words, " "); for (i = 1; i <= count; i++) wanted[words[i]] = 1}
    !/^[ \t]*[#;]/ && (at = index($0, "=")) {
      key = substr($0, 1, at - 1); value = substr($0, at + 1)
      gsub(/^[ \t-]+|[ \t]+$/, "", key); gsub(/\//, ".", key); gsub(/^[ \t]+|[ \t]+$/, "", value); gsub(/[ \t]+/, " ", value)
      if (key in wanted) print path, key, value
    }' "$root$path" 2>/dev/null
done

section nics
for nic in "$root"/sys/class/net/*; do
  [ -r "$nic/mtu" ] || continue
  physical=no pending=no unit=
  if [ -e "$nic/device" ]; then physical=yes; fi
  if ls "$state/mtu/${nic##*/}"/* >/dev/null 2>&1; then pending=yes; fi
  unit=$(sed -n 's/^NETWORK_FILE=//p' "$root/run/systemd/netif/links/$(cat "$nic/ifindex" 2>/dev/null)" 2>/dev/null)
  echo "${nic##*/} $(cat "$nic/mtu") $physical $pending $unit"
done
section addresses
ip -4 -o addr show 2>/dev/null
section route
ip -4 route show default 2>/dev/null
section manager
if ls "$root"/etc/netplan/*.yaml >/dev/null 2>&1 && command -v netplan >/dev/null 2>&1; then
  echo netplan
elif has_systemd && systemctl is-active --quiet NetworkManager 2>/dev/null; then
  echo NetworkManager
elif has_systemd && systemctl is-active --quiet systemd-networkd 2>/dev/null; then
  echo networkd
elif [ -e "$root/etc/network/interfaces" ] && command -v ifup >/dev/null 2>&1; then
  echo ifupdown
fi

section gpu
for device in "$root"/sys/bus/pci/devices/*; do
  # Graphics and 3D controllers of NVIDIA, and NVSwitches; not its network cards and other bridges.
  case "$(cat "$device/vendor" 2>/dev/null) $(cat "$device/class" 2>/dev/null)" in
    '0x10de 0x03'*) echo "pci $(cat "$device/device" 2>/dev/null)" ;;
    '0x10de 0x0680'*) echo switch ;;
  esac
done
version=$(sed -n 's/^NVRM version:.*  \([0-9][0-9.]*\)  .*/\1/p' "$root/proc/driver/nvidia/version" 2>/dev/null)
if [ -n "$version" ]; then echo "driver $version"; fi
# The kernels for which dkms has built the driver's module. On Debian, its name is not nvidia.ko, but, for example,
# nvidia-current.ko or nvidia-tesla-535.ko. Other modules of NVIDIA are not the driver, such as nvidia-fs.ko.
for folder in "$root"/lib/modules/*/updates/dkms; do
  # shellcheck disable=SC2010  # kit looks for names that modules have, and a glob cannot leave out nvidia-fs.ko
  if ls "$folder" 2>/dev/null | grep -Eq '^nvidia(-(current|tesla|legacy)[a-z0-9-]*)?\.ko'; then folder=${folder%/updates/dkms} && echo "module ${folder##*/}"; fi
done
# Of any package, or of none: on other systems than Debian's, kit knows no packages.
if command -v nvidia-container-runtime-hook >/dev/null 2>&1 && command -v nvidia-container-runtime >/dev/null 2>&1; then echo 'toolkit yes'; fi
if command -v nv-fabricmanager >/dev/null 2>&1; then echo 'fabric_manager yes'; fi
# query FIELDS: sets `answer` and `code`. Without persistence mode, eight GPUs take half a minute.
query() {
  answer=$(timeout 60 nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>&1)
  code=$?
}
if command -v nvidia-smi >/dev/null 2>&1; then
  echo 'smi yes'
  query index,persistence_mode,clocks.applications.memory,clocks.applications.graphics,clocks.max.memory,clocks.max.graphics
  case $answer in
    *'not a valid field'*)
      # A driver that no longer has application clocks.
      query index,persistence_mode
      answer=$(printf '%s\n' "$answer" | sed -E 's/^[0-9]+, [^,]*$/&, -, -, -, -/')
      ;;
  esac
  # Other lines are warnings.
  rows=$(printf '%s\n' "$answer" | grep -E '^[0-9]+(, [^,]*){5}$')
  case "$code $rows" in
    # 14 means a damaged infoROM, with which a GPU works.
    '0 '?* | '14 '?*) printf '%s\n' "$rows" | sed 's/^/gpu /' ;;
    '124 '*) printf 'late yes\nfault nvidia-smi did not answer within 60 s\n' ;;
    *) echo "fault $(printf %s "$answer" | head -n 1)" ;;
  esac
fi

section saved
for saved in "$state"/files/*/; do
  [ -r "$saved/path" ] || continue
  path=$(cat "$saved/path") existed=absent now=changed
  if [ -e "$saved/original" ]; then existed=existed; fi
  if [ ! -e "$root$path" ]; then
    if [ "$existed" = absent ]; then now=original; else now=same; fi
  elif [ "$existed" = existed ] && cmp -s "$saved/original" "$root$path"; then
    now=original
  elif [ ! -e "$saved/mixed" ] && is_kits "${saved%/}" "$path"; then
    now=same
  fi
  echo "file $path $(tr '\n' , <"$saved/area") $existed $now"
done
for saved in "$state"/values/*+*; do
  [ -r "$saved" ] || continue
  { read -r kind; read -r key; read -r value; read -r area; } <"$saved"
  echo "value $kind $key $area $value"
done
if [ -r "$state/packages" ]; then sed 's/^/package /' "$state/packages"; fi
section end
