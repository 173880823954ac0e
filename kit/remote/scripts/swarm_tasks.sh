# Lists the tasks of these services that should run or have failed. Runs on a manager. Arguments: SERVICE...
# Prints a line for each: SERVICE TASK NODE WANTED-STATE STATE DIGEST ERROR. A missing service has no lines.
for service in "$@"; do
  docker service ps --quiet --no-trunc "$service" 2>/dev/null |
    xargs -r docker inspect --type task --format \
      "$service {{.ID}} {{or .NodeID \"-\"}} {{.DesiredState}} {{.Status.State}} {{index .Spec.ContainerSpec.Labels \"kit.spec\"}} {{.Status.Err}}" \
      2>/dev/null
done
exit 0
