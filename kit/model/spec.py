"""ClusterSpec: what kit.yaml can say, with defaults. The descriptions here are the reference and the JSON schema.

The one place for a field's name, type, default, description and example: messages, the environment's table, the
sample that `kit init` writes and docs/input.md are made from it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_core.core_schema import ValidationInfo

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
ZERO_FIRST = re.compile(r"[+-]?0[0-9_]*[1-9][0-9_]*", re.ASCII)
SIZE = re.compile(r"[1-9][0-9]{0,11}(?:b|kb?|mb?|gb?)", re.IGNORECASE | re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*(?:=[A-Za-z0-9.+:~-]+)?", re.ASCII)
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}", re.ASCII)
# A server, which a dot, a port or the name localhost tells from a folder on Docker's own; then folders.
REGISTRY = re.compile(
    r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(?::[0-9]{1,5})?"
    r"(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*",
    re.ASCII,
)
LOGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+", re.ASCII)
PROPAGATIONS = frozenset({"shared", "rshared", "slave", "rslave", "private", "rprivate"})
VOLUME_MODES = frozenset({"ro", "rw", "z", "Z", "nocopy"}) | PROPAGATIONS

Flavour = Literal["cpu", "cuda-tensorflow", "cuda-mxnet", "ssh-layer"]
Framework = Literal["tensorflow", "mxnet"]
Orchestrator = Literal["compose", "swarm"]


class FieldError(ValueError):
    """A value that cannot be: what it is or has (a predicate, "is not a login"), and what to write instead."""

    def __init__(self, message: str, *, write: str | None = None) -> None:
        super().__init__(message)
        self.write = write


def _whole(value: object) -> object:
    """Refuses what pydantic would take: yes as 1, and 010, which is 8 to one reader of YAML and 10 to another."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and ZERO_FIRST.fullmatch(value.strip()):
        number = value.strip().lstrip("0")[:20]
        raise FieldError("has a zero before it, which some read as octal", write=f"write {number}, with no zero before")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise FieldError("has a NUL character in it, which no program can be given", write="take it out")
    return value


def _split(value: object) -> object:
    """A command as one string is split as a POSIX shell would split it, and nothing is expanded."""
    if not isinstance(value, str):
        return value
    import shlex  # noqa: PLC0415  (only when somebody wrote a string)

    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise FieldError(
            "has a quote or a backslash that is never closed",
            write="close it, or write the command as a list: [python3, train.py]",
        ) from error


_WORDS_SCHEMA: JsonDict = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "number"]}}]}
_TEXTS_SCHEMA: JsonDict = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}

Text = Annotated[str, AfterValidator(_no_nul)]
Path = Annotated[str, Field(min_length=1), AfterValidator(_no_nul)]
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(_whole)]
Words = Annotated[tuple[Text, ...], BeforeValidator(_split)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageSpec(_Section):
    """The image that every node runs."""

    flavour: Flavour = Field(
        "cpu",
        description="cpu: built from a Debian base. cuda-tensorflow, cuda-mxnet: the same on a CUDA base. "
        "ssh-layer: any base that already has Horovod (NGC's, say) gets sshd and kit's scripts only.",
    )
    base: str | None = Field(
        None,
        description="Base image. Each flavour but ssh-layer has a default.",
        examples=["nvcr.io/nvidia/tensorflow:23.03-tf2-py3"],
    )
    frameworks: tuple[Framework, ...] = Field(
        ("tensorflow", "mxnet"), description="Frameworks that Horovod is built for (flavour cpu)."
    )
    packages: tuple[str, ...] = Field(
        (), description="Extra Debian packages, as apt-get install takes them.", examples=[["htop", "libsndfile1"]]
    )
    pip: tuple[Text, ...] = Field(
        (), description="Extra Python packages, as pip install takes them.", examples=[["pandas==2.1.4"]]
    )

    @field_validator("base")
    @classmethod
    def _base(cls, value: str | None) -> str | None:
        if value is not None and not IMAGE.fullmatch(value):
            raise FieldError("is not the name of an image")
        return value

    @field_validator("packages")
    @classmethod
    def _packages(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for package in value:
            if not PACKAGE.fullmatch(package):
                raise FieldError(f"{package!r} is not the name of a Debian package")
        return value

    @field_validator("pip")
    @classmethod
    def _pip(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for requirement in value:
            if not requirement.strip() or requirement.lstrip().startswith("-") or not requirement.isprintable():
                raise FieldError(f"{requirement!r} is not a Python requirement")
        return value

    @model_validator(mode="after")
    def _fits(self) -> ImageSpec:
        if self.flavour == "ssh-layer" and not self.base:
            raise FieldError(
                "flavour ssh-layer needs a base, the image that gets the layer",
                write="below image:, write base: nvcr.io/nvidia/tensorflow:23.03-tf2-py3, say",
            )
        if self.flavour == "cpu" and not self.frameworks:
            raise FieldError(
                "flavour cpu needs a framework, and frameworks is empty",
                write="below image:, write frameworks: [tensorflow, mxnet], or one of the two",
            )
        return self


class SshSpec(_Section):
    """How kit reaches the VMs. What the hosts file says of a host goes first."""

    user: str | None = Field(
        None, description="Login on the VMs. Default: what ssh itself would use.", examples=["ubuntu"]
    )
    # KIT_SSH_PORT is the port of the sshd in the containers, so this one has a name of its own.
    port: Port | None = Field(
        None,
        description="Port of the VMs' own sshd. Default: what ssh itself would use.",
        examples=[22],
        json_schema_extra={"env": "KIT_SSH_VM_PORT"},
    )
    key: Path | None = Field(
        None,
        description="Private key for the login. Default: ssh's own keys and agent.",
        examples=["~/.ssh/id_ed25519"],
    )
    known_hosts: Path | None = Field(
        None, description="Host keys of the VMs. Default: ~/.ssh/known_hosts.", examples=["./known_hosts"]
    )

    @field_validator("user")
    @classmethod
    def _user(cls, value: str | None) -> str | None:
        if value is not None and not LOGIN.fullmatch(value):
            raise FieldError("is not a login: letters, digits, . _ and - only")
        return value


class UlimitSpec(_Section):
    """Limits of the containers."""

    memlock: Literal["unlimited", "default"] = Field(
        "unlimited", description="RDMA and NCCL pin memory; 'default' where the engine may not raise the limit."
    )
    nofile: Annotated[int, Field(ge=1024, le=1073741816), BeforeValidator(_whole)] | None = Field(
        None, description="Open files a process may have. Default: the engine's.", examples=[1048576]
    )
    stack: Annotated[int, Field(ge=8192, le=2**40), BeforeValidator(_whole)] | None = Field(
        67108864, description="Stack size in bytes."
    )


class MpiSpec(_Section):
    """What mpirun is told."""

    bind_to: Literal["none", "core", "socket", "numa", "hwthread"] = Field(
        "none", description="mpirun --bind-to. Horovod advises none: the framework's threads use all cores."
    )
    yield_when_idle: Literal["auto"] | bool = Field(
        "auto", description="Let a waiting rank give up its core. auto: when a host has more ranks than cores."
    )
    args: Words = Field(
        (),
        description="More arguments for mpirun, put before the command.",
        examples=["--mca coll_tuned_use_dynamic_rules 1"],
        json_schema_extra=_WORDS_SCHEMA,
    )


class RunsSpec(_Section):
    """What becomes of runs."""

    clean: Literal["all", "none"] = Field(
        "all",
        description="What ranks leave running in the background when a run ends well: all of it is ended, or none. "
        "A run that fails or is stopped leaves nothing either way.",
    )
    ttl_days: Annotated[float, Field(gt=0, le=36500)] = Field(
        30.0, description="How long the head remembers a run that ended, with its log.", examples=[7]
    )
    keep: Annotated[int, Field(ge=1, le=100000), BeforeValidator(_whole)] = Field(
        200, description="How many runs that ended the head remembers at most."
    )


class ClusterSpec(_Section):
    """All of kit.yaml."""

    name: str = Field(
        "kit",
        description="Name of the cluster: labels, container names and folders carry it.",
        examples=["resnet-lab"],
    )
    orchestrator: Orchestrator = Field(
        "compose",
        description="What starts the containers: Compose, a file on each VM; or Swarm, one stack for all. "
        "docs/swarm.md has the differences.",
    )
    image: ImageSpec = Field(default_factory=ImageSpec, description="The image that every node runs.")
    builder: Literal["local", "head"] = Field(
        "local",
        description="Whose engine builds the image: this machine's (local), or the first host's (head): then none is "
        "needed here.",
    )
    registry: str | None = Field(
        None,
        description="Registry that has the image (`kit image push` puts it there). Hosts then pull it, and nothing is "
        "sent from here.",
        examples=["registry.example.com:5000/team"],
    )
    ssh: SshSpec = Field(
        default_factory=SshSpec, description="How kit reaches the VMs. What the hosts file says of a host goes first."
    )
    ssh_port: Port = Field(33, description="Port of the sshd in the containers; 22 is the VM's own.")
    network: str = Field(
        "auto",
        description="CIDR of the network that MPI, NCCL and Horovod use. auto: the smallest that holds every "
        "host's MPI address.",
        examples=["10.0.0.0/16"],
    )
    slots: Literal["auto"] | Annotated[int, Field(ge=1, le=4096), BeforeValidator(_whole)] = Field(
        "auto",
        description="Ranks a host has room for, where the hosts file does not say. auto: its GPUs, or 1.",
        examples=[8],
    )
    head_runs_ranks: bool = Field(True, description="Whether the first host runs ranks, too.")
    volumes: tuple[Text, ...] = Field(
        (),
        description="SOURCE:TARGET[:ro] mounts, as Compose takes them. A source is a folder on the VMs, or a volume.",
        examples=[["/data/imagenet:/data:ro"]],
    )
    env: dict[str, Text] = Field(
        default_factory=dict,
        description="Environment of every node and every rank.",
        examples=[{"HOROVOD_FUSION_THRESHOLD": "134217728"}],
        json_schema_extra=_TEXTS_SCHEMA,
    )
    shm_size: str = Field(
        "1gb", description="Size of /dev/shm, such as 8gb. NCCL and data loaders need it.", examples=["8gb"]
    )
    ulimits: UlimitSpec = Field(default_factory=UlimitSpec, description="Limits of the containers.")
    mpi: MpiSpec = Field(default_factory=MpiSpec, description="What mpirun is told.")
    runs: RunsSpec = Field(default_factory=RunsSpec, description="What becomes of runs.")
    command: Words = Field(
        ("tf_benchmark", "--model", "resnet50"),
        description="What `kit run` runs when no command is given.",
        examples=["python3 /data/train.py --epochs 90"],
        json_schema_extra=_WORDS_SCHEMA,
    )

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not NAME.fullmatch(value):
            raise FieldError("is not a name: at most 40 lower-case letters and digits, with dashes between them")
        return value

    @field_validator("registry")
    @classmethod
    def _registry(cls, value: str | None) -> str | None:
        if value is None or REGISTRY.fullmatch(value):
            return value
        bare = value.partition("://")[2].rstrip("/") or value.rstrip("/")
        if bare != value and REGISTRY.fullmatch(bare):
            raise FieldError("is an address of the web; a registry has neither https:// nor / at its end", write=bare)
        if REGISTRY.fullmatch(f"docker.io/{value}"):
            raise FieldError("has no server before it", write=f"docker.io/{value}, if it is there")
        raise FieldError("is not a registry: a server, its port if it has one, and folders in small letters")

    @field_validator("network")
    @classmethod
    def _network(cls, value: str) -> str:
        """The network in its canonical form: 10.0.0.5/24 becomes 10.0.0.0/24."""
        if value == "auto":
            return value
        address, slash, _ = value.partition("/")
        try:
            network = ipaddress.IPv4Network(value, strict=False)
        except ValueError as error:
            raise FieldError("is not an IPv4 network") from error
        if not slash:
            raise FieldError(
                "is an address; a network has its size behind it",
                write=f"write {address}/24, say; `ip -brief address` on a VM shows the size",
            )
        if network.prefixlen == 0:
            raise FieldError(
                "holds every address, docker0's too, and MPI would hang on that one",
                write="write the network that joins the VMs, such as 10.0.0.0/16, or auto",
            )
        return str(network)

    @field_validator("shm_size")
    @classmethod
    def _shm_size(cls, value: str) -> str:
        if not SIZE.fullmatch(value):
            raise FieldError("is not a size with its unit")
        return value

    @field_validator("volumes")
    @classmethod
    def _volumes(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        targets: set[str] = set()
        for volume in value:
            target = _volume_target(volume)
            if info.data.get("orchestrator") == "swarm":
                _swarm_can(volume)
            if target in targets:
                raise FieldError(
                    f"two volumes have the target {target!r}", write="give each volume a target of its own"
                )
            targets.add(target)
        return value

    @field_validator("env", mode="before")
    @classmethod
    def _env(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        for name in value:
            if not isinstance(name, str) or not VARIABLE.fullmatch(name):
                raise FieldError(
                    f"{name!r} is not the name of a variable", write="use letters, digits and _, no digit first"
                )
        # A number set from Python or read from JSON is meant as its text.
        return {k: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v for k, v in value.items()}

    @field_validator("command")
    @classmethod
    def _command(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or not value[0]:
            raise FieldError("is empty")
        return value


def _volume_target(volume: str) -> str:
    parts = volume.split(":")
    if len(parts) not in (2, 3) or not all(parts) or not parts[1].startswith("/"):
        raise FieldError(f"{volume!r} is not SOURCE:TARGET or SOURCE:TARGET:ro")
    source, target = parts[0], parts[1]
    if source.startswith("~"):
        raise FieldError(
            f"{volume!r} begins with ~, which need not be the same folder on every VM",
            write="write the whole path: /home/ubuntu/data:/data",
        )
    if not source.startswith(("/", "./", "../")) and not VOLUME_NAME.fullmatch(source):
        raise FieldError(f"{volume!r} has a source that is neither a path (/data, ./data) nor the name of a volume")
    for mode in parts[2].split(",") if len(parts) == 3 else ():
        if mode not in VOLUME_MODES:
            raise FieldError(f"{volume!r} has {mode!r} where ro or rw can stand")
    return target.rstrip("/") or "/"


def _swarm_can(volume: str) -> None:
    """Refuses what Swarm's mounts have no word for, and would not say."""
    source, _, *rest = volume.split(":")
    modes = set(rest[0].split(",")) if rest else set()
    by_name = source[0] not in "/."
    if modes & {"z", "Z"}:
        raise FieldError(
            f"{volume!r} has a label for SELinux, which Swarm cannot set",
            write=f"take z out, and label the folder on the VMs: chcon -Rt container_file_t {source}; "
            "or orchestrator: compose",
        )
    if by_name and modes & PROPAGATIONS:
        raise FieldError(
            f"{volume!r} has a propagation, which Swarm knows for folders only",
            write=f"take it out: {source}:{volume.split(':')[1]}",
        )
    if not by_name and "nocopy" in modes:
        raise FieldError(
            f"{volume!r} has nocopy, which is for volumes with a name, and a folder is never copied into",
            write=f"take it out: {source}:{volume.split(':')[1]}",
        )
