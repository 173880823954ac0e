# Reads one VM's state; changes nothing. Arguments: FOLDER IMAGE. Each section begins with a line '@@ NAME'.
# kit.remote.observe reads this output. The time limits together stay below its own.
folder=$1
image=$2
export LC_ALL=C

# While Compose makes a node anew, be it for a kit that was killed, its port and its container do not fit together.
if [ -d "$folder" ] && command -v flock >/dev/null 2>&1; then flock -s -w 15 "$folder" true; fi

echo '@@ system'
echo "arch $(uname -m)"
echo "cores $(nproc)"
awk '/^MemTotal:/ {print "memory_kib", $2}' /proc/meminfo
if [ -r /etc/os-release ]; then (. /etc/os-release && echo "os ${PRETTY_NAME:-unknown}"); fi
free=$(df -Pk /var/lib/docker 2>/dev/null || df -Pk /var 2>/dev/null || df -Pk /)
echo "$free" | awk 'NR==2 {print "disk_free_kib", $4}'

echo '@@ addresses'
ip -4 -o addr show 2>/dev/null
echo '@@ route'
ip -4 route show default 2>/dev/null
echo '@@ listening'
awk 'FNR > 1 && $4 == "0A" {print $2}' /proc/net/tcp 2>/dev/null

echo '@@ gpus'
if command -v nvidia-smi >/dev/null 2>&1; then
  timeout 20 nvidia-smi --query-gpu=name,memory.total,uuid --format=csv,noheader,nounits 2>&1
fi

echo '@@ engine'
if command -v docker >/dev/null 2>&1; then
  timeout 15 docker info --format '{{json .}}' 2>&1
else
  echo 'no docker on the PATH'
fi
echo '@@ image'
timeout 10 docker image inspect --format '{{.Id}}' "$image" 2>/dev/null
echo '@@ containers'
timeout 10 docker ps --all --no-trunc --filter label=kit.cluster --format '{{json .}}' 2>/dev/null

echo '@@ files'
if [ -d "$folder" ]; then
  cd "$folder" || exit 1
  # Only where kit itself writes: a volume of the user's may lie below, and is none of our business.
  find . ssh -maxdepth 1 -type f -exec stat -c '%a %n' {} + 2>/dev/null
  echo '@@ digests'
  find . ssh -maxdepth 1 -type f -exec sha256sum {} + 2>/dev/null
  echo '@@ host_key'
  [ -s ssh/host_ed25519 ] && cat ssh/host_ed25519.pub 2>/dev/null
  echo '@@ client_key'
  [ -s ssh/id_ed25519 ] && cat ssh/id_ed25519.pub 2>/dev/null
  echo '@@ record'
  cat cluster.json 2>/dev/null
fi
# Runs that go on: their supervisor holds the lock, and they have not ended.
echo '@@ living'
for run in "$folder"/var/runs/*/; do
  if [ -s "$run/record.json" ] && [ ! -e "$run/end.json" ] && ! flock --shared --nonblock "$run/lock" true 2>/dev/null; then
    basename "$run"
  fi
done
echo '@@ end'
