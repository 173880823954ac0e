"""Plan a lab: names, the choice of a network, each host's container, and the text of hosts and kit.yaml. Pure."""

from __future__ import annotations

import difflib
import hashlib
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from kit.errors import InputError
from kit.model.lab import FOLDER_LABEL, HOST_LABEL, LABEL, SHAPE_LABEL, HostContainer, LabObjects, LabSpec, network_name
from kit.model.spec import NAME

USERS = ("root", "ubuntu")
# The user space of a bare host, and the image that has it.
SYSTEMS = {"debian": "debian:trixie-slim", "debian-12": "debian:bookworm-slim", "ubuntu": "ubuntu:24.04"}
MAX_NICS = 4
MAX_HOSTS = 200
RATE_WORDS = "Write a whole number and kbit, mbit or gbit: 200mbit"
RATE = re.compile(r"[1-9][0-9]*(kbit|mbit|gbit)")
FIRST_ADDRESS = 11

# The engine of each lab host takes its bridges from here.
_INNER_ENGINES = ipaddress.IPv4Network("172.16.0.0/12")
# Without a size, a memory file system may take half of the memory, as /dev/shm of a VM. The engine's own has 64 MB, too
# little for data that is staged in memory.
_TMPFS = {"/run": "exec,mode=755", "/dev/shm": "exec,mode=1777"}  # noqa: S108  (the hosts' own)
# The hosts' models in images/lab/pretended/models.py, which has their facts.
GPU_MODELS = ("h200", "h100", "a100", "p100", "t4")
MAX_GPUS = 8
# What the hosts have of NVIDIA's container toolkit: see images/lab/pretended/toolkit.py.
GPU_TOOLKITS = ("hook", "runtime", "swarm", "cdi", "base", "snap", "none")
GPU_FAULTS = ("xid:79", "ecc", "reset", "throttle", "lost", "mig", "busy", "driver-mismatch")
_ARGUMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,63}", re.ASCII)
_XID = re.compile(r"xid:[1-9][0-9]{0,2}", re.ASCII)
_DRIVER = re.compile(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{1,3})?", re.ASCII)
_MARK = re.compile(rf"# Made by kit for the lab '({NAME.pattern})'\. .* \[([0-9a-f]{{12}})\]", re.ASCII)

IPv4Network = ipaddress.IPv4Network


def check(spec: LabSpec) -> None:
    """Raise InputError if such a lab is not possible."""
    check_name(spec.name)
    if not 1 <= spec.hosts <= MAX_HOSTS:
        raise InputError(f"a lab has 1 to {MAX_HOSTS} hosts, not {spec.hosts}", hint="For example: --hosts 4.")
    if spec.slots < 1:
        raise InputError(f"a host has 1 slot or more, not {spec.slots}", hint="For example: --slots 2.")
    if spec.link_rate is not None:
        check_rate(spec.link_rate)
    if spec.user not in USERS:
        raise InputError(f"lab hosts have no user '{spec.user}'", hint=f"They have {' and '.join(USERS)}.")
    if not 1 <= spec.nics <= MAX_NICS:
        raise InputError(f"a lab host has 1 to {MAX_NICS} NICs, not {spec.nics}", hint="For example: --nics 2.")
    if spec.system not in SYSTEMS:
        raise InputError(f"no bare host has the system '{spec.system}'", hint=f"Write one of: {', '.join(SYSTEMS)}.")
    if spec.system != LabSpec().system and not spec.bare:
        raise InputError("--system is for bare hosts", hint="Add --bare: kit lab up --bare --system ubuntu.")
    if spec.bare and spec.gpus:
        raise InputError(
            "a bare host has no pretended GPUs, because they need its engine", hint="Leave out --gpus or --bare."
        )
    _check_gpus(spec)


def _check_gpus(spec: LabSpec) -> None:
    if not 0 <= spec.gpus <= MAX_GPUS:
        raise InputError(f"a lab host has 0 to {MAX_GPUS} GPUs, not {spec.gpus}", hint="For example: --gpus 2.")
    if spec.gpu_model not in GPU_MODELS:
        raise InputError(f"the lab pretends no GPU '{spec.gpu_model}'", hint=f"It has {', '.join(GPU_MODELS)}.")
    if not _DRIVER.fullmatch(spec.gpu_driver):
        raise InputError(
            f"'{spec.gpu_driver}' is not the version of a driver", hint="For example: --gpu-driver 550.54.15."
        )
    if spec.gpu_toolkit not in GPU_TOOLKITS:
        raise InputError(
            f"'{spec.gpu_toolkit}' is no part of the toolkit", hint=f"Write one of: {', '.join(GPU_TOOLKITS)}."
        )


def check_fault(fault: str) -> None:
    """Raise InputError if pretended GPUs do not have such a fault."""
    if fault not in GPU_FAULTS and not _XID.fullmatch(fault):
        raise InputError(f"the lab pretends no fault '{fault}'", hint=f"Write one of: {', '.join(GPU_FAULTS)}.")


def check_host_fault(fault: str | None, argument: str, *, mend: bool, known: Sequence[str]) -> None:
    """Raise InputError if hosts cannot have such a fault. None only shows faults; `all` needs `mend`."""
    if fault is None:
        if mend:
            raise InputError("--mend needs a fault", hint="For example: kit lab fault gpu2 all --mend.")
        return
    if fault == "all" and not mend:
        raise InputError(
            "a host cannot have all faults at once", hint="To take all back: kit lab fault gpu2 all --mend."
        )
    if fault != "all" and fault not in known:
        near = difflib.get_close_matches(fault, known, n=3, cutoff=0.4) or known
        raise InputError(f"the lab has no fault '{fault}'", hint=f"Write one of: {', '.join(near)}.")
    if argument and (mend or not _ARGUMENT.fullmatch(argument)):
        what = "--mend takes no value" if mend else f"{argument!a} is no value of a fault"
        raise InputError(what, hint="Write letters, digits, dots and dashes: kit lab fault gpu2 mtu-differs 1400.")


def check_name(name: str) -> None:
    """Raise InputError if a lab cannot have this name, which becomes part of names and labels on the engine."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{name!a} cannot name a lab", hint="Use lower-case letters, digits and dashes, such as --name lab2."
        )


def check_rate(rate: str) -> None:
    """Raise InputError if this is not the rate of a link."""
    if not RATE.fullmatch(rate):
        raise InputError(f"'{rate}' is not the rate of a link", hint=f"{RATE_WORDS}.")


def names(spec: LabSpec) -> tuple[str, ...]:
    """Return gpu1 … gpuN, the head first."""
    return tuple(f"gpu{number}" for number in range(1, spec.hosts + 1))


def candidates(taken: Iterable[IPv4Network]) -> Iterator[IPv4Network]:
    """Yield the networks that a lab may use, best first: none that is taken, none that the inner engines use."""
    closed = (*taken, _INNER_ENGINES)
    pools = ("10.213.0.0/16", "192.168.0.0/16", "10.214.0.0/16")
    for pool in pools:
        for subnet in IPv4Network(pool).subnets(new_prefix=24):
            if not any(subnet.overlaps(network) for network in closed):
                yield subnet


def address(subnet: IPv4Network, index: int) -> str:
    """Return the address of host number `index`, from 0. The low addresses are the engine's, for its gateway."""
    return str(subnet[FIRST_ADDRESS + index])


def labels(spec: LabSpec, folder: str) -> dict[str, str]:
    return {LABEL: spec.name, SHAPE_LABEL: spec.shape, FOLDER_LABEL: folder}


def helper_labels(existing: LabObjects) -> dict[str, str]:
    """Return the labels of a short-lived container for an existing lab, so that `kit lab down` finds it."""
    network = existing.network
    if network is None:
        return {}
    return {
        LABEL: network.name.removeprefix(network_name("")),
        FOLDER_LABEL: network.folder,
        SHAPE_LABEL: network.shape,
    }


def host_containers(
    spec: LabSpec,
    *,
    folder: str,
    image: str,
    subnets: Sequence[IPv4Network],
    public_key: str,
    proxies: Mapping[str, str] | None = None,
    certificates: bytes = b"",
) -> tuple[HostContainer, ...]:
    """Return one container a host, in the order of the hosts. `subnets` has one network for each NIC.

    Bare hosts get this machine's `proxies` and `certificates`, because they download packages.

    They are not `--privileged`, because some machines cannot grant SYS_RESOURCE. An engine inside needs every other
    capability and none of the engine's restrictions; images/lab/init does the rest.
    """
    env = {"KIT_LAB_KEY": public_key}
    if spec.link_rate:
        env["KIT_LAB_RATE"] = spec.link_rate
    if spec.bare:
        env |= proxies or {}
    if spec.gpus:
        env |= {
            "KIT_LAB_GPUS": str(spec.gpus),
            "KIT_LAB_GPU_MODEL": spec.gpu_model,
            "KIT_LAB_GPU_DRIVER": spec.gpu_driver,
            "KIT_LAB_GPU_TOOLKIT": spec.gpu_toolkit,
        }
    return tuple(
        HostContainer(
            host=name,
            container=f"{network_name(spec.name)}-{name}",
            volume=f"{network_name(spec.name)}-{name}",
            network=network_name(spec.name),
            address=address(subnets[0], index),
            image=image,
            labels={**labels(spec, folder), HOST_LABEL: name},
            env=env | _addresses(subnets, index),
            cap_add=("ALL",),
            cap_drop=("SYS_RESOURCE",),
            security_opt=("seccomp=unconfined", "apparmor=unconfined"),
            device_cgroup_rules=("a *:* rwm",),
            tmpfs=_TMPFS,
            own_init=spec.bare,
            more_nics=tuple(
                (network_name(spec.name, nic), address(subnet, index)) for nic, subnet in enumerate(subnets) if nic
            ),
            certificates=certificates if spec.bare else b"",
        )
        for index, name in enumerate(names(spec))
    )


def _addresses(subnets: Sequence[IPv4Network], index: int) -> dict[str, str]:
    """Return what names the NICs in order, if there are several."""
    if len(subnets) == 1:
        return {}
    return {"KIT_LAB_ADDRESSES": " ".join(address(subnet, index) for subnet in subnets)}


def hosts_text(spec: LabSpec, subnet: IPv4Network) -> str:
    """Return the hosts file of the lab."""
    lines = [f"{address(subnet, index)} name={name} slots={spec.slots}" for index, name in enumerate(names(spec))]
    return _signed(spec.name, "\n".join(lines) + "\n")


def kit_yaml_text(spec: LabSpec, subnet: IPv4Network) -> str:
    """Return the kit.yaml of the lab. Comments say why it has settings that real VMs do not need."""
    image = "\n# The GPUs are pretended: nothing computes on them.\nimage:\n  flavour: cpu\n" if spec.gpus else ""
    return _signed(
        spec.name,
        f"""\
name: {spec.name}
network: {subnet}

ssh:
  user: {spec.user}
  key: .kit/lab/id_ed25519
  known_hosts: .kit/lab/known_hosts

# A container may not raise this limit; on real VMs leave it at unlimited.
ulimits:
  memlock: default

# All hosts of the lab share this machine's cores: a rank that waits gives up its core.
mpi:
  yield_when_idle: true
{image}
# The folder with your code: each run gets a snapshot of it.
code: .

# Small, because there is no GPU here. On real VMs: tf_benchmark --model resnet50
command: [tf_benchmark, --model, resnet50, --image-size, "64", --batch-size, "4",
          --num-warmup, "1", --num-iters, "3", --num-batches-per-iter, "1"]
""",
    )


def whose(text: str) -> Literal["ours", "edited", "foreign"]:
    """Return whether a hosts or kit.yaml file is as kit wrote it, edited since, or never kit's."""
    head, _, body = text.partition("\n")
    mark = _MARK.fullmatch(head)
    if not mark:
        return "foreign"
    return "ours" if mark[2] == _digest(body) else "edited"


def lab_of(text: str) -> str | None:
    """Return the lab that a kit.yaml was made for, even if a person changed it since."""
    mark = _MARK.fullmatch(text.partition("\n")[0])
    return mark[1] if mark else None


def known_hosts_text(keys: Iterable[tuple[str, str]]) -> str:
    """Return known_hosts for (address, public key) pairs, without the keys' comments."""
    return "".join(f"{where} {' '.join(key.split()[:2])}\n" for where, key in keys)


def _signed(lab: str, body: str) -> str:
    """Return the body below a line with its digest, which shows later whether a person changed the file."""
    mark = f"# Made by kit for the lab '{lab}'. `kit lab down` removes it, unless you change it. [{_digest(body)}]"
    return f"{mark}\n{body}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]
