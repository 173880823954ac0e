# On a manager: every task of these services that is to run, or has failed, a line each:
# SERVICE TASK NODE WANTED-STATE STATE DIGEST ERROR. Arguments: SERVICE... A service that is not there has none.
for service in "$@"; do
  docker service ps --quiet --no-trunc "$service" 2>/dev/null |
    xargs -r docker inspect --type task --format \
      "$service {{.ID}} {{or .NodeID \"-\"}} {{.DesiredState}} {{.Status.State}} {{index .Spec.ContainerSpec.Labels \"kit.spec\"}} {{.Status.Err}}" \
      2>/dev/null
done
exit 0
