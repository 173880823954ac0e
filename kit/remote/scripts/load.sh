# Prints how busy a VM is while no benchmark runs. Arguments: FOLDER of the cluster. Changes nothing.
# Prints the kernel's clocks twice, half a second apart, and on a head its runs. Needs read_runs.sh before it.
folder=$1
# nproc would print these variables of the login in place of the CPUs.
unset OMP_NUM_THREADS OMP_THREAD_LIMIT
echo "cores $(nproc)"
echo "before $(head -n 1 /proc/stat)"
sleep 0.5
echo "after $(head -n 1 /proc/stat)"
# shellcheck disable=SC2034  # read_runs reads it
patience=10
if [ -d "$folder/var" ]; then read_runs "$folder" states 2>/dev/null | head -n 10000; fi
echo end
