# Prints how busy a VM is while no benchmark runs. Arguments: FOLDER of the cluster. Changes nothing.
# Prints the kernel's clocks twice, half a second apart, and on a head its runs.
folder=$1
echo "cores $(nproc)"
echo "before $(head -n 1 /proc/stat)"
sleep 0.5
echo "after $(head -n 1 /proc/stat)"
for run in "$folder"/var/runs/*/; do
  [ -s "$run/record.json" ] || continue
  state=over
  if [ ! -e "$run/end.json" ] && ! flock --shared --nonblock "$run/lock" true 2>/dev/null; then state=living; fi
  echo "$state $(basename "$run")"
done
echo end
