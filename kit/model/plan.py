"""The plan of a change: rounds, and in each round the steps of its hosts.

`--dry-run` prints this object, a golden file pins it, and the executor carries it out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from kit.model.pretended import marked
from kit.model.secret import Secret
from kit.model.text import fold, size
from kit.model.values import replace

# The rounds of a deploy, whatever the orchestrator. Swarm adds its own between the last two.
TAKE_OFF, SHIP, PULL, SET_UP, VERIFY = "take off", "ship", "pull", "set up", "verify"
# With an image in nccl.plugin: before the nodes are set up, and after they run.
SHIP_PLUGIN, PULL_PLUGIN, COPY_PLUGIN, TIDY_PLUGIN = "ship plugin", "pull plugin", "copy plugin", "tidy up plugins"

# Whether a round begins after failures of earlier rounds.
# all: only if no host has failed; otherwise the plan ends here. host: on the hosts that have not failed.
# reached: like host, but only if each failure so far is a host that kit cannot reach, or on which a step did not end in
# time; otherwise the plan ends here.
Needs = Literal["all", "host", "reached"]


class Step(Struct, frozen=True, kw_only=True):
    """One thing that is done on one host. kit/remote has one function for each kind of step.

    Every step also has `why`, which completes the sentence "because …".
    """

    if TYPE_CHECKING:
        # Each kind defines it at its own place among its fields.
        why: str

    @property
    def kind(self) -> str:
        """The step's name in JSON."""
        return type(self).__name__

    @abstractmethod
    def line(self) -> tuple[str, str]:
        """Return (verb, object) for one line, without secrets."""

    def full_line(self) -> tuple[str, str]:
        """Return the same with addresses and digests."""
        return self.line()

    def detail(self) -> str:
        """Return what a verbose plan shows below the line: '' or text of several lines, without secrets."""
        return ""


class Ship(Step, frozen=True, kw_only=True):
    """Bring the layers of the image that the host lacks. Other hosts reach it at `address`.

    They come from this machine's engine, or from the engine of the host `source` (name, address). There, the image is
    `origin` if that is not ''. `image` is its name on the host, and `name` what kit prints if that is another one.
    """

    image: str
    image_id: str
    size: int
    address: str
    why: str
    source: tuple[str, str] | None = None
    origin: str = ""
    name: str = ""

    def line(self) -> tuple[str, str]:
        amount = f" ({size(self.size)})" if self.size else ""
        return "ship", f"{self.name or self.image}{amount}{f' from {self.source[0]}' if self.source else ''}"


class Pull(Step, frozen=True, kw_only=True):
    """Let the host's engine pull `source` at `digest` from its registry, and name it `image`.

    A dry run may not know the digest, which is '' then.
    """

    image: str
    source: str
    digest: str
    why: str

    def line(self) -> tuple[str, str]:
        return "pull", self.source

    def full_line(self) -> tuple[str, str]:
        pinned = self.digest and not self.source.endswith(f"@{self.digest}")
        return "pull", f"{self.source}@{self.digest}" if pinned else self.source


class CopyPlugin(Step, frozen=True, kw_only=True):
    """Copy the folder `path` of an image to `folder` of the host, where only root can write. Nothing of it is run.

    The host's engine has the image as `image`, a name that is removed afterwards. `source` is its name in kit.yaml.
    A dry run may not know its content. Then `folder` is ''.
    """

    cluster: str
    image: str
    source: str
    path: str
    folder: str
    why: str

    def line(self) -> tuple[str, str]:
        return "copy", f"{self.path} out of {self.source}"

    def full_line(self) -> tuple[str, str]:
        return "copy", f"{self.path} out of {self.source}{f' to {self.folder}' if self.folder else ''}"


class RemovePlugins(Step, frozen=True, kw_only=True):
    """Remove the folders of plugins that no node of the cluster mounts any more."""

    folders: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "remove", ", ".join(self.folders)


class WriteFile(Step, frozen=True, kw_only=True):
    """Write a file in the cluster's folder, atomically, owned by root."""

    path: str
    content: bytes | Secret
    mode: str
    why: str

    def line(self) -> tuple[str, str]:
        return "write", f"{self.path} {self.mode}{' (secret)' if isinstance(self.content, Secret) else ''}"

    def detail(self) -> str:
        return "" if isinstance(self.content, Secret) else self.content.decode(errors="replace")


class DeleteFile(Step, frozen=True, kw_only=True):
    """Delete a file in the cluster's folder."""

    path: str
    why: str

    def line(self) -> tuple[str, str]:
        return "delete", self.path


class MakeDataFolder(Step, frozen=True, kw_only=True):
    """Make the folder of a data set from which nodes mount it. On a host, only root may have made what is there."""

    path: str
    why: str

    def line(self) -> tuple[str, str]:
        return "make", f"the folder {self.path}"


class ComposeUp(Step, frozen=True, kw_only=True):
    """`docker compose up` of the host's file. `recreate` when a mounted secret or config changed.

    `servers` are those from which the engine mounts file systems meanwhile.
    """

    folder: str
    project: str
    recreate: bool
    why: str
    servers: tuple[str, ...] = ()

    def line(self) -> tuple[str, str]:
        return "start", f"docker compose up in {self.folder}{', recreating containers' if self.recreate else ''}"


class WaitSshd(Step, frozen=True, kw_only=True):
    """Wait until the sshd of the node (its container is `container`) listens on address:port."""

    container: str
    address: str
    port: int
    timeout_s: float
    why: str

    def line(self) -> tuple[str, str]:
        return "wait", f"for sshd on port {self.port}"

    def full_line(self) -> tuple[str, str]:
        return "wait", f"for sshd on {self.address}:{self.port}"


class VerifyGpus(Step, frozen=True, kw_only=True):
    """Compare what the node sees with the GPUs and MIG devices of its host, by UUID. `models` are the GPUs' names."""

    cluster: str
    gpus: tuple[str, ...]
    models: tuple[str, ...] = ()
    why: str

    def line(self) -> tuple[str, str]:
        text = f"{len(self.gpus)} GPU{'s' if len(self.gpus) > 1 else ''} in the node"
        return "verify", marked(text, self.models)


class VerifyPeers(Step, frozen=True, kw_only=True):
    """Log in from the head's container to every node by ssh, without a prompt."""

    container: str
    peers: tuple[tuple[str, str], ...]  # (name, address)
    why: str

    def line(self) -> tuple[str, str]:
        return "verify", f"ssh from {self.container} to {fold(name for name, _ in self.peers)}"


class EndStagings(Step, frozen=True, kw_only=True):
    """End the cluster's stagings on the host. What they have brought stays."""

    cluster: str
    why: str

    def line(self) -> tuple[str, str]:
        return "end", f"stagings of {self.cluster} (keep what they brought)"


class RemoveCluster(Step, frozen=True, kw_only=True):
    """Remove the cluster's containers and folder from the host.

    `images`: if there are any, these go, and all other images of kit that no container uses.
    `keep`: the folders of runs that made something stay, and home folders into which they wrote. `data` has the folders
    of data sets, which stay if they have anything in them.
    """

    folder: str
    cluster: str
    images: tuple[str, ...]
    keep: bool
    why: str
    data: tuple[str, ...] = ()

    def line(self) -> tuple[str, str]:
        images = " and kit's images" if self.images else ""
        kept = " (keep what runs made)" if self.keep else " with all that runs made"
        return "remove", f"containers of {self.cluster}, {self.folder}{kept}{images}"


class HostPlan(Struct, frozen=True, kw_only=True):
    """The steps of one host in one round. They stop at the first failure; other hosts continue."""

    host: str
    steps: tuple[Step, ...]


class Round(Struct, frozen=True, kw_only=True):
    """Hosts whose steps are done side by side. The next round begins when every host is done or has failed.

    `together`: one function does this round for all its hosts at once. Its steps are then of one kind, one a host.
    """

    name: str
    hosts: tuple[HostPlan, ...]
    needs: Needs = "all"
    together: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    """Rounds in the order in which they are done. `hosts` names the hosts of the cluster, the head first."""

    cluster: str
    hosts: tuple[str, ...]
    rounds: tuple[Round, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.rounds

    def steps(self, *, without: str = "") -> Iterator[tuple[str, Step]]:
        """Yield (host, step) in order, leaving out the round named `without`."""
        for part in self.rounds:
            if part.name != without:
                yield from ((plan.host, step) for plan in part.hosts for step in plan.steps)


def plan_of(cluster: str, hosts: Iterable[str], rounds: Iterable[Round]) -> Plan:
    """Return a plan without the hosts and rounds that have no step."""
    busy = []
    for part in rounds:
        plans = tuple(plan for plan in part.hosts if plan.steps)
        if plans:
            busy.append(Round(name=part.name, hosts=plans, needs=part.needs, together=part.together))
    return Plan(cluster=cluster, hosts=tuple(hosts), rounds=tuple(busy))


def part_of(plan: Plan, hosts: Container[str]) -> Plan:
    """Return the plan with the steps of these hosts only."""
    rounds = [replace(part, hosts=tuple(one for one in part.hosts if one.host in hosts)) for part in plan.rounds]
    return plan_of(plan.cluster, plan.hosts, rounds)
