"""The checks of kit doctor that only read files, while kit deploy works. What they find is a warning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from kit.events import Warned
from kit.flows.context import Context
from kit.model.doctor import Examined, Finding, Seen
from kit.model.host import Host
from kit.model.observed import HostFacts
from kit.model.text import fold
from kit.model.values import replace
from kit.plan.cluster.nodes import nodes_of
from kit.plan.doctor.checks import CHECKS
from kit.plan.doctor.judge import judge, reads_of
from kit.remote.doctor.read import read_host
from kit.remote.ssh import fanout

# After the deploy, nobody waits longer for hosts that are slow to answer.
WAIT_S = 2.0
_MOST = 3
_HOSTS = 8


class Beside:
    """Reads of all hosts that run beside a deploy. It ignores a host that it cannot read."""

    def __init__(self, context: Context, observed: Sequence[HostFacts]) -> None:
        self._context, self._observed = context, observed
        self._checks = [check for check in CHECKS if check.deploy]
        self._reads = reads_of(self._checks)
        self._started = fanout.start(context.inventory.hosts, self._read)

    def warn(self, *, wait_s: float = WAIT_S) -> None:
        """Report what the checks find on the hosts that have answered."""
        seen = self._started.so_far(wait_s)
        facts = {one.host.name: one for one in self._observed}
        nodes = {node.name: node for node in nodes_of(self._observed, self._context.spec)[0]}
        hosts = tuple(replace(one, facts=facts.get(name), node=nodes.get(name)) for name, one in seen.items())
        for finding in judge(Examined(spec=self._context.spec, hosts=hosts), self._checks).findings:
            if finding.severity != "watch":
                self._context.reporter.report(Warned(text="; ".join(_texts(finding)), hint=_hint(finding)))

    def _read(self, host: Host) -> Seen:
        with closing(self._context.connect(host)) as transport:
            return read_host(transport, self._reads).seen


def _texts(finding: Finding) -> Iterator[str]:
    """Yield the finding's title with its first hosts, and how many more there are."""
    for number, sight in enumerate(finding.seen[:_MOST]):
        text = f"{fold(sight.hosts, most=_HOSTS)}: {sight.seen}"
        yield f"{finding.title}: {text}" if number == 0 else text
    more = len(finding.seen) - _MOST
    if more > 0:
        yield f"and {more} more"


def _hint(finding: Finding) -> str:
    return f"{finding.seen[0].fix or finding.fix} More: kit doctor --explain {finding.id}"
