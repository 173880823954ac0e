"""Looks at all hosts at once, and begins before the flow that needs it is imported: ssh and Python run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kit.errors import HostsFailed, KitError, NotReadyError
from kit.events import HostDone, HostStep, Phase
from kit.flows.context import Context
from kit.flows.image.content import tag_of
from kit.model import names
from kit.model.host import Host
from kit.model.values import replace
from kit.plan.flavour import OPEN, candidates, needs_gpus
from kit.remote.cluster import look as looks
from kit.remote.ssh import fanout

if TYPE_CHECKING:
    from kit.model.launch import Node
    from kit.model.observed import HostFacts
    from kit.model.spec import ClusterSpec


class Look:
    """A look at all hosts that has begun.

    If kit.yaml leaves the image's flavor open, it looks for two images. `observed` then chooses one.
    """

    def __init__(self, context: Context, *, again: bool = False) -> None:
        spec = context.spec
        self._images = {gpus: (image, tag_of(spec, image)) for gpus, image in candidates(spec.image).items()}
        self._tags = " ".join(tag for _, tag in self._images.values())
        self._chosen = next(iter(self._images))
        self._context = context
        context.reporter.report(Phase(name="look again" if again else "look", hosts=context.inventory.names))
        self._folder = names.folder(context.spec.name)
        self._paths = paths_of(context.spec)
        self._started = fanout.start(context.inventory.hosts, self._facts)

    @property
    def tag(self) -> str:
        """Return the image's tag, after `observed`."""
        return self._images[self._chosen][1]

    @property
    def context(self) -> Context:
        """Return the context with the image's definite flavor, after `observed`."""
        image = self._images[self._chosen][0]
        return replace(self._context, spec=replace(self._context.spec, image=image))

    def observed(self) -> Sequence[HostFacts]:
        """Return the facts of all hosts, in order.

        Raises if kit cannot inspect one of them, or if only some have GPUs and the flavor depends on that.
        """
        # What decodes the answers is imported while the hosts answer.
        import kit.remote.cluster.observe  # noqa: F401, PLC0415

        outcome = self._started.outcome()
        if outcome.failures:
            raise failed("nothing was changed", list(outcome.failures.values()))
        observed = [outcome.results[host.name] for host in self._context.inventory.hosts]
        if self._context.spec.image.flavour not in OPEN:
            return observed
        self._chosen = needs_gpus(self._context.spec, observed)
        return [replace(facts, image_id=facts.images.get(self.tag)) for facts in observed]

    def _facts(self, host: Host) -> HostFacts:
        context = self._context
        context.reporter.report(HostStep(host=host.name, text="connecting"))
        wanted = context.spec.orchestrator
        with closing(context.connect(host)) as transport:
            answer = looks.look(transport, folder=self._folder, image=self._tags, wanted=wanted, paths=self._paths)
        from kit.remote.cluster.observe import facts_of  # noqa: PLC0415  (after the host was asked)

        facts = facts_of(host, answer)
        gpus = f", {len(facts.gpus)} × {facts.gpus[0].name}" if facts.gpus else ""
        engine = f"engine {facts.engine}" if facts.engine else "no engine"
        context.reporter.report(HostDone(host=host.name, text=f"{engine}, {facts.cores} cores{gpus}"))
        return facts


def paths_of(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the paths on VMs whose absence the plan needs to know."""
    asks = spec.volumes or spec.data or spec.devices or spec.hugepages or spec.nccl.plugin
    if spec.orchestrator == "compose" and not asks:
        # Compose needs no path then, and the planner is slow to import.
        return ()
    from kit.plan.cluster.deploy import dialect_of  # noqa: PLC0415

    return dialect_of(spec).paths(spec)


def look_at_nodes(context: Context) -> tuple[Sequence[HostFacts], tuple[Node, ...], str]:
    """Return the facts of all hosts, the nodes that fit them, and the image's tag, for kit compose and kit stack."""
    look = Look(context)
    from kit.plan.cluster.nodes import nodes_of  # noqa: PLC0415  (after the hosts were asked)

    observed = look.observed()
    nodes, problems = nodes_of(observed, context.spec)
    if problems:
        raise failed("no file", problems)
    return observed, nodes, look.tag


def with_plugin(spec: ClusterSpec, facts: HostFacts) -> ClusterSpec:
    """Return the spec with the folder that this host has for a plugin in an image. Raises NotReadyError without one."""
    if spec.nccl.image is None:
        return spec
    from kit.plan.cluster.plugin import with_folder  # noqa: PLC0415  (few clusters have one)

    if len(facts.plugins) != 1:
        raise NotReadyError(
            f"kit deploy has not copied nccl.plugin, {spec.nccl.plugin}, to this host yet",
            hint="run: kit deploy",
            host=facts.host.name,
        )
    return with_folder(spec, next(iter(facts.plugins)))


def failed(what: str, problems: Sequence[KitError]) -> KitError:
    """Return the only problem, or one error for all of them."""
    if len(problems) == 1:
        return problems[0]
    return HostsFailed(f"{what}: {len(problems)} problems", problems)
