"""The names, labels, ports and paths of a cluster. Every other module imports them from here.

The shell scripts of kit/remote/scripts spell some of them again; tests/unit/model/test_names.py compares both.
"""

from __future__ import annotations

# In place of a run's id.
LATEST = "latest"

# What to type where a container, or the image too, was removed behind kit's back.
BRING_BACK = (
    "run: kit deploy, which recreates containers and copies the image again where docker system prune removed them"
)

# After the supervisor of a run was killed: only its node can have been.
RESTORE = "check the nodes with kit ps, then restore them: kit deploy"

# Variables by which a rank knows its run, its host and its folders. kit sets them for every rank, so a user cannot.
CHECKPOINTS_VARIABLE = "KIT_CHECKPOINT_DIR"
OWN_VARIABLES = ("KIT_RUN", "KIT_ATTEMPT", "KIT_OUTPUT_DIR", CHECKPOINTS_VARIABLE, "KIT_WORKDIR", "KIT_NODE")

# Services: one head, and a node on every other host.
HEAD, NODE = "mpihead", "mpinode"

# What else to do where a host lacks its node: another person's hosts file may begin with another host. A deploy would
# move the head from there.
OTHER_HEAD = f"If kit ps shows {HEAD} on another host, make that the first line of hosts instead"

# Labels of containers, services, secrets and networks.
LABEL_CLUSTER = "kit.cluster"
LABEL_SERVICE = "kit.service"
LABEL_IMAGE = "kit.image"
LABEL_BENCH = "kit.bench"
# Of a stager, the container that brings a data set to its host: CLUSTER/NAME. It has no LABEL_CLUSTER: it is no node.
LABEL_DATA = "kit.data"
# Of a container that never starts, from which a folder is copied: the cluster. It is no node either.
LABEL_PLUGIN = "kit.plugin"
# The digest of a service's definition.
LABEL_SPEC = "kit.spec"
# sshd reads its host key when it starts, so a new key needs a new container.
LABEL_KEY = "kit.host-key"
# Of a Swarm secret: whose key it is, and the public half.
LABEL_ROLE = "kit.role"
LABEL_PUBLIC = "kit.public"

# NVIDIA's kind of CDI devices, and the device that is all GPUs of a host.
GPU_KIND = "nvidia.com/gpu"
ALL_GPUS = f"{GPU_KIND}=all"

# On every VM: one folder a cluster.
ROOT = "/opt/kit"
# The id of the Swarm node that this VM became when kit made it a member.
MEMBER = f"{ROOT}/.swarm"

# In the cluster's folder.
COMPOSE_FILE = "compose.yaml"
STACK_FILE = "stack.yaml"
# Values that differ from host to host under Swarm. Scripts also read from it that Swarm names the container.
NODE_ENV = "node.env"
RECORD = "cluster.json"
HOSTFILE = "hosts"
NETWORK = "network"
# Holds a digest of the cluster for which the check at the end of a deploy passed.
VERIFIED = "verified"
CLIENT_KEY = "ssh/id_ed25519"
HOST_KEY = "ssh/host_ed25519"
AUTHORIZED_KEYS = "ssh/authorized_keys"
KNOWN_HOSTS = "ssh/known_hosts"
SSH_CONFIG = "ssh/config"
# What runs and verbs leave behind. A deploy ignores it.
STATE = "var"
RUNS = f"{STATE}/runs"
# Behind /etc/hosts of the container. start.sh writes it, so a deploy only makes it. Ranks that are root can write it,
# but not replace it by a link.
NODE_NAMES = "node-hosts"
# Behind /tmp of the container. It is not in STATE: what a rank can replace by a link must not be the source of a mount.
SCRATCH = "tmp"
# The snapshots of code that runs start from. A deploy ignores them.
CODE = "code"
# NCCL's plugins that a deploy copied out of images, a folder for each image and path.
PLUGINS = "plugins"

# Staged data sets on every VM: the folders of all clusters on its disk and in its memory, and the name below `dir`.
DATA_DISK = f"{ROOT}/.data"
DATA_BELOW = "kit-data"
DATA_MEMORY = f"/dev/shm/{DATA_BELOW}"  # noqa: S108  (who makes it checks its owner)
# In the folder of a data set: what the nodes see of a staged one and of a mounted store, and the summary that a staging
# writes last.
DATA_FILES = "files"
DATA_MOUNT = "mount"
DATA_SUMMARY = "staged.json"

# The names that a VM knows, on the VM and in its node.
VM_NAMES, VM_NAMES_MOUNT = "/etc/hosts", "/opt/kit/etc/vm-hosts"

# In containers: the cluster's folder (read-only), the host's state, Swarm's secrets.
MOUNT = "/etc/kit"
STATE_MOUNT = "/var/lib/kit"
RUNS_MOUNT = "/var/lib/kit/runs"
# The home folder of root, and that of the ranks if they are not root. start.sh makes both.
HOME = "/var/lib/kit/home/root"
# In a run's folder: the working folder of its ranks, and the folders for what they make.
WORK, OUTPUT, CHECKPOINTS = "work", "output", "checkpoints"
SECRETS_MOUNT = "/run/secrets"

# In the image.
IMAGE_BIN = "/opt/kit/bin"
IMAGE_LIB = "/opt/kit/lib"
# Where a node has the folder of NCCL's network plugin (nccl.plugin).
NCCL_PLUGIN = "/opt/nccl-plugin"

# Swarm's ports cannot be changed: managers, members (tcp and udp), data of overlay networks (udp).
MANAGER_PORT, GOSSIP_PORT, DATA_PORT = 2377, 7946, 4789


def folder(cluster: str) -> str:
    """Return the cluster's folder on every VM."""
    return f"{ROOT}/{cluster}"


def lock_file(cluster: str) -> str:
    """Return the lock's path on the head's VM. It is outside the folder, which `kit down` removes under the lock."""
    return f"{ROOT}/.lock/{cluster}"


def audit_file(cluster: str) -> str:
    """Return the audit's path on the head's VM. It is outside the folder, so that `kit down` keeps it."""
    return f"{ROOT}/.audit/{cluster}"


def project(cluster: str) -> str:
    """Return the name of the Compose project, which is also that of the Swarm stack."""
    return f"kit-{cluster}"


def container(cluster: str, service: str) -> str:
    """Return the name of a service's container. Under Swarm, node_name.sh finds the task's container for it."""
    return f"kit-{cluster}-{service}"


def plugin_repository(cluster: str) -> str:
    """Return the name that the image with NCCL's plugin has on a VM until its folder is copied."""
    return f"{project(cluster)}-nccl-plugin"


def swarm_service(cluster: str, service: str) -> str:
    """Return the name that a service has in the swarm."""
    return f"{project(cluster)}_{service}"


def node_label(cluster: str) -> str:
    """Return the label by which Swarm places the services. Its value is head, node or left."""
    return f"kit.{cluster}"


def data_container(cluster: str, data: str) -> str:
    """Return the name of the container that stages a data set on its host."""
    return f"{project(cluster)}-data-{data}"


def data_variable(data: str) -> str:
    """Return the variable with the folder of a data set in the nodes."""
    return "KIT_DATA_" + data.upper().replace("-", "_")


def data_split_variable(data: str) -> str:
    """Return the variable that says how a data set is split among the hosts. It is set only if it is."""
    return f"{data_variable(data)}_SPLIT"


def data_write_variable(data: str) -> str:
    """Return the variable that says that ranks write into a mounted store. It is set only if they may."""
    return f"{data_variable(data)}_WRITE"
