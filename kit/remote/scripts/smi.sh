# Runs nvidia-smi, for at most 20 s, and prints its output with its errors. Arguments: those of nvidia-smi.
# If it is late, a line reports that: otherwise, a VM whose nvidia-smi hangs would look like one without GPUs.
# nvidia-smi usually hangs in the driver, where no signal ends it, so that `timeout` waits for it without end. So this
# waits for the last line or for a timer, and not for the end of these processes. They hold no output of this script.
late='nvidia-smi did not answer within 20 s'
{
  # With exec: otherwise the shell keeps its own output open elsewhere, also in the processes that this leaves.
  exec </dev/null 2>/dev/null
  sleep 23 &
  timer=$!
  {
    # A subshell, because dash would report in the output that KILL ended it.
    (exec timeout -k 2 20 nvidia-smi "$@" 2>&1)
    # It is 137 if only KILL ended it.
    case $? in 124 | 137) echo "$late" ;; esac
    # Nobody reads this line hours later, when the timer's number may be that of another process.
    echo '@@ end' && kill "$timer"
  } &
  wait "$timer" && printf '%s\n' "$late" '@@ end'
} | sed -n '/^@@ end$/q;p'
exit 0
