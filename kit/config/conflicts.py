"""The rules for fields of kit.yaml that must fit each other.

A rule takes the values of a section, defaults included, without those that are invalid. It raises FieldError, or
WrongItemsError by the keys of the section.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kit.config.kinds import FieldError, WrongItemsError, checked_items
from kit.model.quantity import size_bytes
from kit.model.spec import PROPAGATIONS, SecuritySpec

# A Debian package, perhaps with its version. Names of RPM packages have capitals and `_`, too.
_DEBIAN = re.compile(r"[a-z0-9][a-z0-9+.-]*(?:=.*)?", re.ASCII)


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
    if flavour != "ssh-layer":
        _check_items("packages", values, _check_for_debian)
    if isinstance(frameworks, tuple) and "pytorch" in frameworks:
        if len(frameworks) > 1:
            raise FieldError(
                "PyTorch does not share an image with another framework",
                write="below image:, write frameworks: [pytorch]",
                key="frameworks",
            )
        if flavour == "cpu":
            raise FieldError(
                "flavour cpu has no PyTorch",
                write="remove flavour:, or write flavour: pytorch, which never uses GPUs",
                key="flavour",
            )
    if values.get("flavour") == "ssh-layer" and values.get("wheels"):
        raise FieldError(
            "flavour ssh-layer takes no wheels: they would stay in a layer of the image",
            write="remove wheels:, and install these packages into the base",
            key="wheels",
        )


def _check_items(key: str, values: Mapping[str, Any], check: Callable[[str], None]) -> None:
    """Raise WrongItemsError with every item of a list that `check` refuses."""
    items = values.get(key)
    if not isinstance(items, tuple):
        return
    try:
        checked_items(items, check)
    except WrongItemsError as error:
        raise WrongItemsError({key: (items, error)}) from error


def _check_for_debian(package: str) -> None:
    if not _DEBIAN.fullmatch(package):
        raise FieldError("is not the name of a Debian package")


def cluster(values: Mapping[str, Any]) -> None:
    _check_limits(values)
    if values.get("orchestrator") == "swarm":
        _check_items("volumes", values, _check_for_swarm)
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


def _check_for_swarm(volume: str) -> None:
    """Refuse a mount that Swarm cannot express. Swarm itself would silently ignore the mode."""
    source, target, *rest = volume.split(":")
    modes = set(rest[0].split(",")) if rest else set()
    is_folder = source[0] in "/."
    bare = f"remove it: {source}:{target}"
    if modes & {"z", "Z"}:
        raise FieldError(
            "has a label for SELinux, which Swarm cannot set",
            write=f"remove z, and label the folder on the VMs: chcon -Rt container_file_t {source}; "
            "or use orchestrator: compose",
        )
    if not is_folder and modes & PROPAGATIONS:
        raise FieldError("has a propagation, which Swarm supports for folders only", write=bare)
    if is_folder and "nocopy" in modes:
        raise FieldError("has nocopy, which applies to named volumes only, not to folders", write=bare)
