"""The rules for single fields of kit.yaml, and for fields that must fit each other.

A rule for a field takes its value and returns it, perhaps in another form. A rule for a section takes its
values, defaults included, without those that are invalid. Both raise FieldError.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from kit.config.kinds import FieldError
from kit.config.words import listed, near, shown
from kit.model import names
from kit.model.nccl import plugin_image
from kit.model.quantity import size_bytes
from kit.model.repository import is_repository, repository
from kit.model.spec import CAPABILITIES, NAME, PROPAGATIONS, SecuritySpec

_SIZE = re.compile(r"[1-9][0-9]{0,11}(?:b|kb?|mb?|gb?)", re.IGNORECASE | re.ASCII)
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*(?:=[A-Za-z0-9.+:~-]+)?", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}", re.ASCII)
# A server, then folders. A dot, a port or the name localhost distinguishes a server from a folder on Docker Hub.
_REGISTRY = re.compile(
    r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(?::[0-9]{1,5})?"
    r"(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*",
    re.ASCII,
)
_LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_USER = re.compile(r"([0-9]{1,10})(?::([0-9]{1,10}))?", re.ASCII)
# Linux uses the last number for "no user".
_MOST_USERS = 2**32 - 2
_VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,14}", re.ASCII)
_DEVICE = re.compile(r"(/dev(?:/[A-Za-z0-9._-]+)*)/?(?::(/[A-Za-z0-9._/-]+)(?::[rwm]{1,3})?)?", re.ASCII)
# Devices that are the whole VM.
_WHOLE_VM = frozenset({"/dev", "/dev/mem", "/dev/kmem", "/dev/port"})
_VOLUME_MODES = frozenset({"ro", "rw", "z", "Z", "nocopy"}) | PROPAGATIONS


def name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise FieldError("is not a name: use at most 40 lower-case letters and digits, with dashes between them")
    return value


def login(value: str) -> str:
    if not _LOGIN.fullmatch(value):
        raise FieldError("is not a login: use letters, digits, . _ and - only")
    return value


def path(value: str) -> str:
    if not value.isprintable():
        raise FieldError("has an unprintable character in it", write="write the path of the file")
    return value


def base(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise FieldError("is not the name of an image")
    return value


def packages(value: tuple[str, ...]) -> tuple[str, ...]:
    for package in value:
        if not _PACKAGE.fullmatch(package):
            raise FieldError(f"{package!r} is not the name of a Debian package")
    return value


def pip(value: tuple[str, ...]) -> tuple[str, ...]:
    for requirement in value:
        if not requirement.strip() or requirement.lstrip().startswith("-") or not requirement.isprintable():
            raise FieldError(f"{requirement!r} is not a Python requirement")
    return value


def registry(value: str) -> str:
    if _REGISTRY.fullmatch(value):
        return value
    bare = value.partition("://")[2].rstrip("/") or value.rstrip("/")
    if bare != value and _REGISTRY.fullmatch(bare):
        raise FieldError("looks like a URL; a registry has no https:// and no trailing slash", write=f"write {bare}")
    if _REGISTRY.fullmatch(f"docker.io/{value}"):
        raise FieldError("has no server before it", write=f"write docker.io/{value} if it is on Docker Hub")
    raise FieldError("is not a registry: write a server, its port if it has one, and folders in lower case")


def network(value: str) -> str:
    """Return the network in its canonical form: 10.0.0.5/24 becomes 10.0.0.0/24."""
    if value == "auto":
        return value
    address, slash, _ = value.partition("/")
    try:
        cidr = ipaddress.IPv4Network(value, strict=False)
    except ValueError as error:
        raise FieldError("is not an IPv4 network") from error
    if not slash:
        raise FieldError(
            "is an address; a network ends with its size",
            write=f"write {address}/24, for example; `ip -brief address` on a VM shows the size",
        )
    if cidr.prefixlen == 0:
        raise FieldError(
            "holds every address, also that of docker0, and MPI would hang on it",
            write="write the network that connects the VMs, such as 10.0.0.0/16, or auto",
        )
    return str(cidr)


def interfaces(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return networks in their canonical form, and names of interfaces unchanged."""
    wanted = []
    for word in value:
        if "/" not in word and _INTERFACE.fullmatch(word) and not word.replace(".", "").isdigit():
            wanted.append(word)
            continue
        try:
            wanted.append(network(word))
        except FieldError as error:
            raise FieldError(
                f"{word!r} {error}", write=error.write or "write a network such as 10.1.0.0/24, or a name such as eth1"
            ) from error
    if "auto" in wanted or len(set(wanted)) < len(wanted):
        raise FieldError(
            "has a network or a name twice, or auto", write="write each one once: [10.0.0.0/24, 10.1.0.0/24]"
        )
    return tuple(wanted)


def size(value: str) -> str:
    if not _SIZE.fullmatch(value):
        raise FieldError("is not a size with its unit")
    return value


def command(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not value[0]:
        raise FieldError("is empty")
    for word in value:
        if word in ("&&", "||", "|"):
            raise FieldError(
                f"no shell reads this command, so {word} has no meaning in it",
                write="give it to a shell: [sh, -c, 'cd /data && python3 train.py']",
            )
    return value


def code(value: str) -> str:
    # A URL may have a password, so that these messages do not begin with the value.
    if is_repository(value):
        try:
            repository(value)
        except ValueError as error:
            write = "git+https://HOST/PATH@BRANCH, git+ssh://… or git+HOST:PATH"
            raise FieldError(f"this {error}", write=write) from None
    elif is_url(value):
        raise FieldError(
            "this looks like a URL, and kit takes code from a folder or a git repository",
            write="git+ before the URL of a repository: git+https://HOST/PATH@BRANCH",
        )
    return value


def capabilities(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names without CAP_, each once."""
    kept = []
    for word in value:
        bare = word.upper().removeprefix("CAP_")
        if bare == "ALL":
            raise FieldError("ALL is no capability of kit: name the ones that your workload needs")
        if bare not in CAPABILITIES:
            similar = near(bare, CAPABILITIES)
            write = f"did you mean {listed(similar)}?" if similar else "capabilities(7) lists them"
            raise FieldError(f"{word!r} is not a capability of Linux", write=write)
        kept.append(bare)
    return tuple(dict.fromkeys(kept))


def driver(value: str) -> str:
    """Return the branch of a driver, such as 570-server."""
    if not re.fullmatch(r"[0-9]{3}(-server)?(-open)?", value, re.ASCII):
        raise FieldError("is not a branch of NVIDIA's driver", write="write 570-server, for example")
    return value


def proxy(value: str) -> str:
    """Return the address of an HTTP proxy."""
    if not re.fullmatch(r"https?://[^\s\"'\\%$]+", value, re.ASCII):
        raise FieldError("is not the address of a proxy", write="write http://HOST:PORT")
    return value


def user(value: str) -> str:
    """Return UID:GID. A UID alone is also the GID."""
    match = _USER.fullmatch(value)
    if not match:
        raise FieldError("is not UID or UID:GID in numbers", write="on a VM, `id -u NAME` prints the number of a user")
    uid, gid = int(match[1]), int(match[2] or match[1])
    if not uid:
        raise FieldError("is root, as without this setting", write="remove the line, or write another UID")
    if max(uid, gid) > _MOST_USERS:
        raise FieldError(f"has a number above {_MOST_USERS}")
    return f"{uid}:{gid}"


def is_url(value: str) -> bool:
    """Return whether this is the address of a repository, and no path."""
    return "://" in value or is_repository(value)


def volumes(value: tuple[str, ...]) -> tuple[str, ...]:
    targets: set[str] = set()
    for volume in value:
        target = _volume_target(volume)
        if target in targets:
            raise FieldError(f"two volumes have the target {target!r}", write="give each volume another target")
        targets.add(target)
    return value


def devices(value: tuple[str, ...]) -> tuple[str, ...]:
    targets: set[str] = set()
    for device in value:
        match = _DEVICE.fullmatch(device)
        if match is None or {".", ".."} & set(device.split("/")):
            raise FieldError(
                f"{device!r} is not a device of the VMs",
                write="write /dev/NAME, or /dev/NAME:/dev/OTHER:rw as in Compose",
            )
        if match[1] in _WHOLE_VM:
            raise FieldError(
                f"{match[1]} would give every rank all of the VM's memory or devices",
                write="name the one device that the ranks need, such as /dev/gdrdrv",
            )
        target = match[2] or match[1]
        if target in targets:
            raise FieldError(f"two devices have the target {target!r}", write="give each device another target")
        targets.add(target)
    return value


def nccl_plugin(value: str) -> str:
    try:
        if plugin_image(value) is not None:
            return value
    except ValueError as error:
        message, write = error.args
        raise FieldError(f"{shown(value)} {message}", write=write) from error
    if ":" in value:
        raise FieldError(f"{value!r} has a colon, which no mounted folder can have")
    _volume_target(f"{value}:{names.NCCL_PLUGIN}:ro")
    return value


def image(values: Mapping[str, Any]) -> None:
    if values.get("flavour") == "ssh-layer" and not values.get("base", "invalid"):
        raise FieldError(
            "flavour ssh-layer needs a base, the image that gets the layer",
            write="below image:, add a line such as base: nvcr.io/nvidia/tensorflow:23.03-tf2-py3",
        )
    flavour, frameworks = values.get("flavour"), values.get("frameworks")
    if flavour in ("auto", "gpu", "cuda", "cpu") and frameworks == ():
        raise FieldError(
            f"flavour {flavour} needs a framework, but frameworks is empty",
            write="below image:, write frameworks: [tensorflow, mxnet], or one of the two",
        )
    if isinstance(frameworks, tuple) and "pytorch" in frameworks:
        if len(frameworks) > 1:
            raise FieldError(
                "PyTorch does not share an image with another framework",
                write="below image:, write frameworks: [pytorch]",
                key="frameworks",
            )
        if flavour == "cpu":
            raise FieldError("flavour cpu has no PyTorch", write="flavour: pytorch, or remove flavour:", key="flavour")
    if values.get("flavour") == "ssh-layer" and values.get("wheels"):
        raise FieldError(
            "flavour ssh-layer takes no wheels: they would stay in a layer of the image",
            write="remove wheels:, and install these packages into the base",
            key="wheels",
        )


def cluster(values: Mapping[str, Any]) -> None:
    _check_limits(values)
    if values.get("orchestrator") == "swarm":
        for volume in values.get("volumes", ()):
            _check_for_swarm(volume)
        if values.get("rdma") == "require":
            raise FieldError(
                "Swarm cannot pass devices to its tasks, and rdma: require needs /dev/infiniband",
                write="use orchestrator: compose, or accept TCP with rdma: off",
                key="rdma",
            )
        if values.get("devices"):
            raise FieldError(
                "Swarm cannot pass devices to its tasks: it would drop them",
                write="remove devices:, or use orchestrator: compose",
                key="devices",
            )
        security = values.get("security")
        # Without security: in the file, this is the default and not a mapping.
        if isinstance(security, Mapping) and security.get("seccomp") == "unconfined":
            raise FieldError(
                "Swarm cannot turn seccomp off: it ignores security_opt",
                write="remove seccomp: unconfined, or use orchestrator: compose",
                key="security",
            )


def _check_limits(values: Mapping[str, Any]) -> None:
    """Refuse limits that contradict each other. A value that is missing here is wrong by itself."""
    security = values.get("security")
    pids = values.get("pids")
    # A file that has every default (`kit init`, all lines uncommented) says nothing by it.
    default = SecuritySpec().pids
    if pids is not None and isinstance(security, Mapping) and security.get("pids", pids) not in (pids, default):
        raise FieldError(
            f"{pids} differs from security.pids, {security['pids']}, and both are the same limit",
            write=f"keep one of the two: pids: {pids}",
            key="pids",
        )
    memory, shm = values.get("memory"), values.get("shm_size")
    if memory and shm and size_bytes(memory) <= size_bytes(shm):
        raise FieldError(
            f"{memory} is not more than shm_size, {shm}, which counts as memory of the node",
            write=f"write more memory than {shm}, or a smaller shm_size",
            key="memory",
        )


def _volume_target(volume: str) -> str:
    parts = volume.split(":")
    if len(parts) not in (2, 3) or not all(parts) or not parts[1].startswith("/"):
        raise FieldError(f"{volume!r} is not SOURCE:TARGET or SOURCE:TARGET:ro")
    source, target = parts[0], parts[1]
    if source.startswith("~"):
        raise FieldError(
            f"{volume!r} starts with ~, which may be another folder on each VM",
            write="write the whole path: /home/ubuntu/data:/data",
        )
    if not source.startswith(("/", "./", "../")) and not _VOLUME_NAME.fullmatch(source):
        raise FieldError(f"{volume!r} has a source that is neither a path (/data, ./data) nor the name of a volume")
    if source.startswith("/") and _is_below(source, names.ROOT):
        raise FieldError(
            f"{volume!r} mounts kit's own folder {names.ROOT}, which has the keys of the clusters on a VM",
            write="name another folder of the VMs, such as /data:/data",
        )
    for mode in parts[2].split(",") if len(parts) == 3 else ():
        if mode not in _VOLUME_MODES:
            raise FieldError(f"{volume!r} has {mode!r} where only a mode such as ro or rw can be")
    return target.rstrip("/") or "/"


def _is_below(path: str, folder: str) -> bool:
    """Return whether a path is this folder or below it, however it is written."""
    # normpath keeps a second slash at the beginning.
    return f"/{posixpath.normpath(path).lstrip('/')}/".startswith(f"{folder}/")


def _check_for_swarm(volume: str) -> None:
    """Refuse a mount that Swarm cannot express. Swarm itself would silently ignore the mode."""
    source, target, *rest = volume.split(":")
    modes = set(rest[0].split(",")) if rest else set()
    is_folder = source[0] in "/."
    bare = f"remove it: {source}:{target}"
    if modes & {"z", "Z"}:
        raise FieldError(
            f"{volume!r} has a label for SELinux, which Swarm cannot set",
            write=f"remove z, and label the folder on the VMs: chcon -Rt container_file_t {source}; "
            "or use orchestrator: compose",
            key="volumes",
        )
    if not is_folder and modes & PROPAGATIONS:
        raise FieldError(
            f"{volume!r} has a propagation, which Swarm supports for folders only", write=bare, key="volumes"
        )
    if is_folder and "nocopy" in modes:
        raise FieldError(
            f"{volume!r} has nocopy, which applies to named volumes only, not to folders", write=bare, key="volumes"
        )
