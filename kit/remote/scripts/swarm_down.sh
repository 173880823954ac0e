# Lists the nodes of a cluster that its swarm considers down. Runs on a manager. Arguments: LABEL.
# Prints 'HOSTNAME (ADDRESS)' for each. A node whose host left the cluster has another value of the label.
docker node ls --quiet | xargs -r docker node inspect --format \
  "{{.Status.State}}/{{index .Spec.Labels \"$1\"}}/{{.Description.Hostname}} ({{.Status.Addr}})" |
  sed -nE 's,^down/(head|node)/,,p'
