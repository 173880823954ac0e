"""The reference of kit.yaml: each field with what it accepts, its description, an example, and its variable and flag.

Messages, the JSON schema, the sample that `kit init` writes and docs/input.md come from this table. The defaults come
from the model.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import get_args

from kit.config import data, mounts, rules
from kit.config.kinds import Auto, Choice, Command, Cpus, Days, Items, Text, Truth, Variables, Whole
from kit.config.setting import Setting
from kit.config.setting import field as _field
from kit.config.setting import section as _section
from kit.model import names
from kit.model.spec import Binding, FlavourSetting, Framework, NcclNetwork, Orchestrator

_PORT = Whole(1, 65535)
_ON_GPUS = "write gpu, or cuda-tensorflow, cuda-mxnet or cuda-pytorch"
_FLAVOURS = {
    **dict.fromkeys(("gpus", "nvidia"), _ON_GPUS),
    "torch": "remove flavour:, and write frameworks: [pytorch]; or write pytorch for CPUs, or cuda-pytorch for GPUs",
    "tensorflow": "write cuda-tensorflow for GPUs; for CPUs, write flavour: cpu and frameworks: [tensorflow]",
    "mxnet": "write cuda-mxnet for GPUs; for CPUs, write flavour: cpu and frameworks: [mxnet]",
}


@functools.cache
def settings() -> Mapping[str, Setting]:
    """Return every field by its path. A section comes before its fields."""
    return {setting.path: setting for setting in _table()}


@functools.cache
def fields_of(section: str) -> Mapping[str, Setting]:
    """Return the fields and sections of a section by their keys; '' is the whole file."""
    return {setting.key: setting for setting in settings().values() if setting.section == section}


def keys_of(section: str) -> tuple[str, ...]:
    """Return the keys that a section accepts; '' is the whole file."""
    return tuple(fields_of(section))


def _table() -> tuple[Setting, ...]:
    return (
        _field(
            "name",
            Text(),
            "Name of the cluster. Labels, container names and folders contain it.",
            example="resnet-lab",
            rule=rules.name,
        ),
        _field(
            "orchestrator",
            Choice(get_args(Orchestrator)),
            "What starts the containers: Compose with a file on each VM, or Swarm with one stack for all VMs. "
            "docs/swarm.md lists the differences.",
        ),
        _section("image", "The image that every node runs.", {"flavour": "auto"}),
        _field(
            "image.flavour",
            Choice(get_args(FlavourSetting), instead=_FLAVOURS),
            "auto: cpu where no host has a GPU, and the CUDA flavour of frameworks where all have. gpu, cuda: as auto, "
            "but all hosts must have GPUs. "
            "cpu: TensorFlow, MXNet and Horovod on a Debian base. cuda-tensorflow, cuda-mxnet: one of them with "
            "CUDA. pytorch: PyTorch without Horovod, on a Debian base; cuda-pytorch: its CUDA build. "
            "ssh-layer: adds sshd and kit's scripts to your own base, such as an NGC image.",
        ),
        _field(
            "image.base",
            Text(),
            "Base image. Each flavour except ssh-layer has a default.",
            example="nvcr.io/nvidia/tensorflow:23.03-tf2-py3",
            rule=rules.base,
        ),
        _field(
            "image.frameworks",
            Items(Choice(get_args(Framework))),
            "Frameworks of the image. With flavour cpu, those that Horovod is built for. With auto and GPUs, the CUDA "
            "image has one of them: TensorFlow, else MXNet. pytorch is alone.",
        ),
        _field(
            "image.packages",
            Items(Text()),
            "Extra packages, as apt-get install accepts them; for a base with dnf, as dnf install does.",
            example=["htop", "libsndfile1"],
            rule=rules.packages,
        ),
        _field(
            "image.pip",
            Items(Text()),
            "Extra Python packages, as pip install accepts them.",
            example=["pandas==2.1.4"],
            rule=rules.pip,
        ),
        _field(
            "image.wheels",
            Text(shortest=1),
            "Folder with wheels (*.whl) that pip finds during the build, besides PyPI: private packages, or PyTorch's "
            "CPU wheel. Relative to this file.",
            example="wheels",
        ),
        _field(
            "builder",
            Choice(("local", "head")),
            "Engine that builds the image: this machine's (local) or the first host's (head). "
            "With head, this machine needs no engine.",
        ),
        _field(
            "registry",
            Text(),
            "Registry that holds the image; `kit image push` uploads it. Hosts then pull the image, and kit does not "
            "send it from this machine.",
            example="registry.example.com:5000/team",
            rule=rules.registry,
        ),
        _section("ssh", "How kit reaches the VMs. The hosts file overrides it for single hosts.", {"user": "ubuntu"}),
        _field("ssh.user", Text(), "Login on the VMs. Default: ssh's own choice.", example="ubuntu", rule=rules.login),
        # KIT_SSH_PORT sets the port of the sshd in the containers.
        _field(
            "ssh.port",
            _PORT,
            "Port of the sshd on the VMs. Default: ssh's own choice.",
            example=22,
            variable="KIT_SSH_VM_PORT",
        ),
        _field(
            "ssh.key",
            Text(shortest=1),
            "Private key for the login. Default: ssh's own keys and agent.",
            example="~/.ssh/id_ed25519",
            rule=rules.path,
        ),
        _field(
            "ssh.known_hosts",
            Text(shortest=1),
            "File with the host keys of the VMs. Default: ~/.ssh/known_hosts.",
            example="./known_hosts",
            rule=rules.path,
        ),
        _field("ssh.keep", Truth(), "Keep connections to the VMs open for a minute, for the next command."),
        _field("ssh_port", _PORT, "Port of the sshd in the containers. Port 22 belongs to the sshd of the VM."),
        _field(
            "network",
            Text(),
            "CIDR of the network for MPI, NCCL and Horovod. auto: the smallest network that holds the MPI address of "
            "every host.",
            example="10.0.0.0/16",
            rule=rules.network,
        ),
        _field(
            "interfaces",
            Items(Text()),
            "Networks or names of interfaces for the data of MPI and NCCL, to use several cards. Each host must have "
            "all of them. Default: network alone.",
            example=["10.0.0.0/24", "10.1.0.0/24"],
            rule=rules.interfaces,
        ),
        _field(
            "slots",
            Auto(Whole(1, 4096)),
            "Number of ranks that fit on a host, if the hosts file does not say. auto: the number of its GPUs, or 1.",
            example=8,
        ),
        _field(
            "gpus_per_rank",
            Whole(0, 64),
            "GPUs that each rank gets for itself, as its CUDA_VISIBLE_DEVICES. 0: each rank sees all GPUs that the run "
            "holds on its host, and chooses by its local rank.",
            example=1,
        ),
        _field("head_runs_ranks", Truth(), "Run ranks on the first host, too."),
        _field(
            "volumes",
            Items(Text()),
            "Mounts, written SOURCE:TARGET[:ro] as in Compose. A source is a folder on the VMs outside of "
            f"{names.ROOT}, or a named volume.",
            example=["/data/imagenet:/data:ro"],
            rule=mounts.volumes,
        ),
        _field(
            "data",
            data.DataSets(),
            "Data sets, each in a folder of every node (docs/data.md). KIT_DATA_NAME has that folder.",
            example=data.EXAMPLE,
            default={},
            rule=data.separate,
        ),
        _field(
            "env",
            Variables(),
            "Environment variables of every node and every rank.",
            example={"HOROVOD_FUSION_THRESHOLD": "134217728"},
            rule=rules.environment,
        ),
        _field(
            "shm_size",
            Text(),
            "Size of /dev/shm, such as 8gb. NCCL and data loaders need it.",
            example="8gb",
            rule=rules.size,
        ),
        _field(
            "cpus",
            Cpus(4096),
            "How many CPUs a node may use at once, such as 12 or 1.5. exclusive: each run has CPUs for itself, near "
            "its GPUs, in proportion to its slots. Default: all of its host.",
            example=12,
        ),
        _field(
            "memory",
            Text(),
            "Memory that a node may use, such as 64gb, with /dev/shm and without swap. Default: all of the host.",
            example="64gb",
            rule=rules.size,
        ),
        _field(
            "pids",
            Whole(0, 4194304),
            "Another way to write security.pids.",
            example=32768,
        ),
        _field(
            "rdma",
            Choice(("auto", "off", "require"), truths={False: "off"}),
            "Whether nodes get /dev/infiniband, for InfiniBand and RoCE. auto: on hosts that have it. require: refuse "
            "hosts without an active port. off: NCCL uses TCP.",
        ),
        _field(
            "devices",
            Items(Text()),
            "Devices of the VMs for the nodes, written /dev/NAME[:TARGET[:rwm]] as in Compose.",
            example=["/dev/gdrdrv"],
            rule=mounts.devices,
        ),
        _field(
            "hugepages",
            Text(),
            "Huge pages that each host must have, such as 4gb. Nodes get /dev/hugepages.",
            example="4gb",
            rule=rules.size,
        ),
        _section("ulimits", "Limits of the containers.", {"memlock": "unlimited"}),
        _field(
            "ulimits.memlock",
            Choice(("unlimited", "default")),
            "Limit on pinned memory, which RDMA and NCCL use. default: for engines that cannot raise the limit.",
        ),
        _field(
            "ulimits.nofile",
            Whole(1024, 1073741816),
            "Number of files that a process may open. Default: the engine's limit.",
            example=1048576,
        ),
        _field("ulimits.stack", Whole(8192, 2**40), "Stack size in bytes."),
        _section("security", "What the containers may do beyond their fence (docs/nodes.md).", {"read_only": False}),
        _field(
            "security.capabilities",
            Items(Text()),
            "Capabilities of Linux that the containers keep beside those that sshd and the ranks need. SYS_PTRACE: for "
            "debuggers.",
            example=["SYS_PTRACE"],
            rule=rules.capabilities,
        ),
        _field("security.new_privileges", Truth(), "Let programs gain privileges, as sudo and su do."),
        _field(
            "security.read_only",
            Truth(),
            "Make the image's files read-only. Ranks write to their working folder, /tmp, HOME and volumes.",
        ),
        _field(
            "security.pids",
            Whole(0, 4194304),
            "Largest number of processes and threads of a container. 0: no limit.",
        ),
        _field(
            "security.seccomp",
            Choice(("default", "unconfined")),
            "Which system calls the containers may use. default: those of the engine's profile. unconfined: all.",
        ),
        _field(
            "user",
            Text(of_digits=True),
            "UID or UID:GID of the ranks. Default: they are root in the container.",
            example="1000:1000",
            rule=rules.user,
        ),
        _section("mpi", "Options for mpirun.", {"bind_to": "auto"}),
        _field(
            "mpi.bind_to",
            Choice(get_args(Binding)),
            "mpirun --bind-to. auto: kit binds ranks near their GPUs if gpus_per_rank is set; otherwise none. Horovod "
            "recommends none, because the framework's threads use all cores.",
        ),
        _field(
            "mpi.yield_when_idle",
            Auto(Truth()),
            "Let a waiting rank give up its core. auto: if a host has more ranks than cores.",
        ),
        _field(
            "mpi.allreduce",
            Choice(("auto", "openmpi")),
            "Algorithm of all-reduces. auto: on three hosts or more, a ring for large messages (docs/tune.md). "
            "openmpi: always Open MPI's own choice.",
        ),
        _field(
            "mpi.args",
            Command(),
            "More arguments for mpirun, placed before the command.",
            example="--mca coll_tuned_use_dynamic_rules 1",
        ),
        _section("nccl", "The network of NCCL, which GPUs use (docs/nccl.md).", {"require": "IB"}),
        _field(
            "nccl.plugin",
            Text(),
            "Folder with NCCL's network plugin (libnccl-net*.so), which nodes get read-only: /FOLDER of the VMs, or "
            "IMAGE:/FOLDER in an image.",
            example="/opt/aws-ofi-nccl/lib",
            rule=mounts.nccl_plugin,
        ),
        _field(
            "nccl.require",
            Choice(get_args(NcclNetwork)),
            "Network that NCCL must use between hosts. If it uses another one, the run ends with exit code 5.",
        ),
        _section("runs", "How kit cleans up after runs.", {"clean": "all"}),
        _field(
            "runs.clean",
            Choice(("all", "none")),
            "Which background processes of its ranks kit ends after a successful run: all or none. "
            "After a run that fails or is stopped, kit always ends all of them.",
        ),
        _field(
            "runs.ttl_days",
            Days(36500),
            "How long the head keeps a finished run and its log. A number is in days.",
            example=7,
        ),
        _field("runs.keep", Whole(1, 100000), "Largest number of finished runs that the head keeps."),
        _section("setup", "What kit setup does on bare VMs beyond its defaults (docs/setup.md).", {"mtu": 9000}),
        _field(
            "setup.docker",
            Choice(("auto", "distribution", "docker.com")),
            "Where Docker Engine and Compose come from. auto: the distribution, or Docker's own repository where the "
            "distribution has no Compose v2.",
        ),
        _field(
            "setup.driver",
            Text(of_digits=True),
            "Branch of NVIDIA's driver on Ubuntu. Default: 580-server, for Blackwell 580-server-open. Debian has one.",
            example="570-server",
            rule=rules.driver,
        ),
        _field(
            "setup.proxy",
            Text(),
            "HTTP proxy through which the engine pulls images. apt uses the proxy that it is configured for.",
            example="http://proxy.example.com:3128",
            rule=rules.proxy,
        ),
        _field(
            "setup.no_proxy",
            Text(shortest=1),
            "What the engine reaches without the proxy. Default: private networks and localhost.",
            example="localhost,10.0.0.0/8,registry.example.com",
        ),
        _field(
            "setup.mtu",
            Whole(1280, 9216),
            "MTU of the cluster's interface, such as 9000. Every switch between the VMs must carry it.",
            example=9000,
            variable="KIT_MTU",
        ),
        _field(
            "setup.hugepages",
            Whole(0, 65536),
            "Number of huge pages of 1 GiB that each VM reserves.",
            example=16,
        ),
        _field(
            "code",
            Text(shortest=1),
            "Folder with your code, relative to this file, or git+URL@REF. Each run gets a snapshot of it. none: runs "
            "take no code along, as without this setting.",
            example=".",
            rule=rules.code,
        ),
        _field(
            "requirements",
            Text(shortest=1),
            "File of Python packages for the image, as pip install -r reads it. They go into the image's last layer, "
            "and so do those of image.pip: after a change, kit deploy sends only that layer.",
            example="requirements.txt",
        ),
        _field(
            "command",
            Command(),
            "Command that `kit run` runs if you give none. The default of other flavors is torch_benchmark or "
            "mxnet_benchmark.",
            example="python3 /data/train.py --epochs 90",
            rule=rules.command,
        ),
    )
