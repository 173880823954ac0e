"""The fence around a node: what its processes may do on the VM, and where they may write. docs/nodes.md explains it.

Compose and Swarm spell these values in their own way. What only Compose can say, start.sh does (no_new_privs).
"""

from __future__ import annotations

from kit.model import names
from kit.model.spec import ClusterSpec

# sshd becomes the user of a session, and shuts its unprivileged half into an empty folder.
_SSHD = ("SETGID", "SETUID", "SYS_CHROOT")
# Data on the VMs has any owner, and a rank is root by default: these let it read, write and copy such files.
_FILES = ("CHOWN", "DAC_OVERRIDE", "FOWNER")
# Ports below this one belong to root.
_FREE_PORT = 1024
# In /run are sockets and marks of kit, and sshd's configuration.
RUN_BYTES = 256 << 20
# Scratch space is on the VM's disk: in memory, it would take memory from the ranks. Programs may be compiled there.
TMP = ("/tmp", "/var/tmp")  # noqa: S108
RUN = "/run"
IMAGE_HOME = "/root"
# Where the kernel gives huge pages as files.
HUGE_PAGES = "/dev/hugepages"
RDMA_CAPABILITY = "IPC_LOCK"
# Open MPI's daemons are root. With these, they accept ranks of another user, and share no folder with them.
_DAEMONS = {
    "OMPI_MCA_filem": "^raw",
    "OMPI_MCA_orte_create_session_dirs": "0",
    "PMIX_MCA_gds": "hash",
    "PMIX_MCA_psec": "none",
}
# Variables by which start.sh and the programs of a node know what kit.yaml says.
NEW_PRIVILEGES, USER = "KIT_NEW_PRIVILEGES", "KIT_USER"


def capabilities(spec: ClusterSpec, *, rdma: bool = False) -> list[str]:
    """Return the capabilities that the node keeps. It loses all others. `rdma`: it has RDMA devices."""
    kept = {*_SSHD, *_FILES, *spec.security.capabilities}
    if spec.ssh_port < _FREE_PORT:
        kept.add("NET_BIND_SERVICE")
    if spec.user:
        # The supervisor is root, and ends ranks of another user.
        kept.add("KILL")
    if rdma:
        # Memory that an adapter reads and writes is pinned.
        kept.add(RDMA_CAPABILITY)
    # Engines store the name as it is in a Compose file, and with this beginning for a stack.
    return [f"CAP_{name}" for name in sorted(kept)]


def local_capabilities(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the capabilities that a container of `kit local` keeps. It has no sshd."""
    # mpirun is root, and starts and ends ranks of another user.
    of_user = ("KILL", "SETGID", "SETUID") if spec.user else ()
    return tuple(f"CAP_{name}" for name in sorted({*_FILES, *of_user, *spec.security.capabilities}))


def security_options(spec: ClusterSpec) -> list[str]:
    """Return the security options. Without one for seccomp, the engine uses its default profile."""
    options = [] if spec.security.new_privileges else ["no-new-privileges:true"]
    return options + (["seccomp:unconfined"] if spec.security.seccomp == "unconfined" else [])


def environment(spec: ClusterSpec) -> dict[str, str]:
    """Return the variables that the fence needs in the container."""
    values = {}
    if spec.security.read_only and IMAGE_HOME not in _targets(spec):
        # The image's own home folder is read-only. start.sh copies it here.
        values["HOME"] = spec.env.get("HOME", names.HOME)
    return values | local_environment(spec)


def local_environment(spec: ClusterSpec) -> dict[str, str]:
    """Return the variables that the fence needs in a container of `kit local`."""
    values = {NEW_PRIVILEGES: "1"} if spec.security.new_privileges else {}
    if spec.user:
        values |= {USER: spec.user, **_DAEMONS}
    return values


def scratch(spec: ClusterSpec) -> list[str]:
    """Return the targets that need a mount from the scratch folder: a volume of kit.yaml may replace one."""
    return [target for target in TMP if spec.security.read_only and target not in _targets(spec)]


def own_names(spec: ClusterSpec) -> list[str]:
    """Return the mounts by which a node has its own /etc/hosts. A volume of kit.yaml may replace it.

    In it, the VM's own name stands for its address in the cluster (images/bin/own-names.sh).
    """
    if names.VM_NAMES in _targets(spec):
        return []
    own = f"{names.folder(spec.name)}/{names.NODE_NAMES}"
    return [f"{own}:{names.VM_NAMES}", f"{names.VM_NAMES}:{names.VM_NAMES_MOUNT}:ro"]


def huge_pages(spec: ClusterSpec) -> list[str]:
    """Return the mount of the VM's huge pages, if kit.yaml has them."""
    return [f"{HUGE_PAGES}:{HUGE_PAGES}"] if spec.hugepages else []


def has_run(spec: ClusterSpec) -> bool:
    """Return whether /run needs a tmpfs."""
    return spec.security.read_only and RUN not in _targets(spec)


def scratch_folder(spec: ClusterSpec) -> str:
    """Return the folder on the VM behind /tmp. start.sh closes it to other users of the VM."""
    return f"{names.folder(spec.name)}/{names.SCRATCH}"


def _targets(spec: ClusterSpec) -> set[str]:
    return {volume.split(":")[1].rstrip("/") for volume in spec.volumes}
