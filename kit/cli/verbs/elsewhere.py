"""The words that users of other tools type first, and what to type in kit."""

from __future__ import annotations

from typing import NamedTuple

FAMILIAR = {
    "apply": "deploy",
    "kill": "stop",
    "build": "image build",
    "cluster": "ps",
    "completions": "completion",
    "copy": "cp",
    "create": "deploy",
    "delete": "down",
    "destroy": "down",
    "download": "pull",
    "history": "audit",
    "benchmark": "bench",
    "horovodrun": "run",
    "launch": "run",
    "list": "ps",
    "log": "logs",
    "ls": "ps",
    "mpirun": "run",
    "push": "image push",
    "remove": "down",
    "rm": "down",
    "rsync": "cp",
    "scp": "cp",
    "shell": "ssh",
    "start": "deploy",
    "status": "ps",
    "submit": "run",
    "teardown": "down",
    "train": "run",
    "unlock": "lock release",
    "up": "deploy",
}
"""A word, and the verb that does the same."""

MEMBERS = {
    **dict.fromkeys(("stop", "destroy", "teardown", "kill", "cancel"), ("stop", "down", "rm")),
    **dict.fromkeys(("rm", "remove", "delete"), ("rm", "down")),
    **dict.fromkeys(("start", "create"), ("up", "stage", "build")),
    **dict.fromkeys(("list", "ls", "ps", "status"), ("list", "ls", "status")),
    "unlock": ("release",),
}
"""The same within a group, such as kit lab: a word, and what its members may be called. The first one there wins."""

INSTEAD = {
    "scale": "add VMs to the hosts file, or remove them from it; then: kit deploy",
    "config": "edit kit.yaml; kit schema prints what it accepts",
    "login": "log in with docker login, or set KIT_REGISTRY, KIT_REGISTRY_USER and KIT_REGISTRY_PASSWORD",
    "docker": "run docker on a VM: kit ssh HOST -- sudo docker ps",
    "nvidia-smi": "run it in every node: kit exec -- nvidia-smi",
}
"""A word that no verb replaces, and what to do."""


class OtherOption(NamedTuple):
    """Options of another tool, what to write instead, and the verbs that people give them to (none: all)."""

    flags: tuple[str, ...]
    write: str
    verbs: tuple[str, ...] = ()


_LAUNCH = ("run", "local", "bench")
_IMAGE = ("deploy", "image build", "image push", "image render", "image sbom", "image tag")

OPTIONS = (
    OtherOption(
        flags=("--mca", "-mca", "--gmca", "-gmca"),
        write='write it into kit.yaml: mpi: {args: "--mca NAME VALUE"}',
        verbs=(*_LAUNCH, "deploy"),
    ),
    OtherOption(
        flags=("--bind-to", "-bind-to"),
        write="write it into kit.yaml: mpi: {bind_to: core}",
        verbs=(*_LAUNCH, "deploy"),
    ),
    OtherOption(
        flags=("--map-by", "-map-by", "--rank-by", "-rank-by"),
        write='write it into kit.yaml: mpi: {args: "--rank-by node"}',
        verbs=_LAUNCH,
    ),
    OtherOption(flags=("--allow-run-as-root",), write="leave it out: kit adds it", verbs=_LAUNCH),
    OtherOption(
        flags=("--hostfile", "-hostfile", "--machinefile", "-machinefile"), write="name the file with --hosts FILE"
    ),
    OtherOption(flags=("-N", "--ppn", "-ppn", "--ntasks-per-node"), write="write --npernode N", verbs=("run",)),
    OtherOption(flags=("--num-proc", "--ntasks"), write="write --np N", verbs=("run", "local")),
    OtherOption(flags=("-e", "--env", "-genv"), write="write -x NAME=VALUE", verbs=("run", "local")),
    OtherOption(
        flags=("-i", "--interactive"),
        write="open a terminal: kit run -it --np 1 -- bash; rank 0 gets standard input from a pipe or file without -i",
        verbs=("run",),
    ),
    OtherOption(
        flags=("--tag",),
        write="begin each line with its rank: --tag-output; "
        "for another image, set image: in kit.yaml, then run: kit deploy",
        verbs=("run",),
    ),
    OtherOption(
        flags=("-t", "--tag"),
        write="leave it out: the tag is a hash of the image's definition, and kit image tag prints it",
        verbs=_IMAGE,
    ),
    OtherOption(
        flags=("--dry-run", "-n"),
        write="print what it would build: kit image render (the Dockerfile), kit image tag (the tag)",
        verbs=("image build", "image push"),
    ),
)


def option_instead(flag: str, verb: str) -> str | None:
    """Return what to write instead of another tool's option for this verb ('' without one), or None."""
    return next(
        (other.write for other in OPTIONS if flag in other.flags and (not other.verbs or verb in other.verbs)), None
    )
