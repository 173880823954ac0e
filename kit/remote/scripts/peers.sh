# Runs in the head's container. Logs in to every ADDRESS in parallel, like mpirun. Prints 'ADDRESS REASON' for each failure.
for address in "$@"; do
  (
    said=$(timeout 30 ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o LogLevel=ERROR "$address" true 2>&1 </dev/null)
    code=$?
    [ "$code" = 0 ] || echo "$address $(echo "${said:-exit $code}" | tail -n 1)"
  ) &
done
wait
exit 0
