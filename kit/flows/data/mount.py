"""kit data mount: let rclone mount stores in place on each host, in a container that outlives this command."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from kit.errors import HostsFailed, KitError, StepError
from kit.events import HostDone, HostFailed, HostStep, Phase
from kit.flows.cluster.change import changing
from kit.flows.context import Context
from kit.flows.data.hosts import check_deployed, cluster_of, look, spare_runs
from kit.flows.data.source import source_of
from kit.model import names
from kit.model.data import DataSpec, data_folder
from kit.model.datasets import HostData, MountResult
from kit.model.host import Host
from kit.model.launch import ClusterRecord
from kit.model.text import fold
from kit.plan.data import failures
from kit.plan.data.choose import mounted_sets, unmounted
from kit.remote.data.nodes import NodeMount
from kit.remote.data.order import Order, Place
from kit.remote.ssh import fanout

# The mounter lists the source first. rclone gives up on a store that does not answer by its own limits.
_ANSWER_S = 180.0


def mount(
    context: Context,
    words: Sequence[str],
    *,
    environ: Mapping[str, str] | None = None,
    on_result: Callable[[MountResult], None] = lambda _result: None,
    needing: Sequence[str] | None = None,
) -> tuple[MountResult, ...]:
    """Mount data sets, one after the other. `on_result` gets each result at once.

    Raises the errors of hosts on which one could not be mounted, after the others have it; with `needing`, only if
    one of these hosts lacks it.
    """
    sets = mounted_sets(context.spec, words)
    hosts = look(context)
    head = context.inventory.head.name
    if head not in hosts.results:
        hosts.or_raise("kit data mount")
    cluster = cluster_of(context, hosts.results[head].record)
    check_deployed(cluster, context, sets)
    results: list[MountResult] = []
    errors: list[KitError] = []
    for data in sets:
        mounting = _Mounting(context, data, cluster, os.environ if environ is None else environ)
        result = mounting.run()
        on_result(result)
        results.append(result)
        if needing is None or not {*needing} <= {*result.hosts}:
            errors += mounting.errors
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise HostsFailed(f"kit data mount failed on {len(errors)} hosts", errors)
    return tuple(results)


def mount_missing(
    context: Context, sets: Sequence[DataSpec], host_data: Mapping[str, HostData], hosts: Sequence[str]
) -> bool:
    """Mount those of these data sets that some of the hosts lack. Return whether anything was mounted."""
    missing = [data.name for data in sets if not {*hosts}.isdisjoint(unmounted(host_data, context.spec.name, data))]
    if missing:
        mount(context, missing, needing=hosts)
    return bool(missing)


class _Mounting:
    """One data set, on all hosts. `errors` are those of hosts that have failed."""

    def __init__(self, context: Context, data: DataSpec, cluster: ClusterRecord, environ: Mapping[str, str]) -> None:
        self._context, self._data, self._cluster = context, data, cluster
        self._source = source_of(context, data, environ)
        self._folder = data_folder(context.spec.name, data)
        self._nodes = {node.name: node for node in cluster.nodes}
        self.errors: list[KitError] = []

    def run(self) -> MountResult:
        begun = time.monotonic()
        hosts = self._context.inventory.hosts
        self._context.reporter.report(Phase(name=f"mount {self._data.name}", hosts=self._context.inventory.names))
        before = self._each(hosts, self._mount)
        sees = self._each([host for host in hosts if host.name in before], self._sees)
        stale = [host for host in hosts if sees.get(host.name) is False]
        restarted = self._restart(stale) if stale else ()
        good = tuple(host.name for host in hosts if sees.get(host.name) or host.name in restarted)
        return MountResult(
            cluster=self._context.spec.name,
            name=self._data.name,
            source=self._data.source.text,
            hosts=good,
            before=tuple(name for name in good if before[name]),
            restarted=tuple(restarted),
            seconds=time.monotonic() - begun,
            lost={error.host or "": error.message for error in self.errors},
        )

    def _each(self, hosts: Sequence[Host], work: Callable[[Host], bool]) -> Mapping[str, bool]:
        """Do this on each host. Return what it returned; the errors of others are in `errors`.

        What is wrong on all hosts, such as a key, is one error.
        """
        outcome = fanout.each(hosts, work)
        failed = list(outcome.failures.values())
        alike = not outcome.results and len({error.message for error in failed}) == 1
        for name, error in outcome.failures.items():
            self._context.reporter.report(HostFailed(host=name, text=error.message, hint=error.hint))
        self.errors += failed[:1] if alike else failed
        return outcome.results

    def _mount(self, host: Host) -> bool:
        """Mount it on a host. Return whether it was mounted there before."""
        if host.name not in self._nodes:
            raise StepError(
                f"the cluster {self._cluster.name} was deployed without it", hint="run: kit deploy", host=host.name
            )
        self._context.reporter.report(HostStep(host=host.name, text="mounting"))
        place = Place(cluster=self._context.spec.name, data=self._data.name, folder=self._folder)
        order = Order(host, self._context.connect, place, how="mount")
        with closing(order.start()):
            order.begun().send(op="mount", source=self._source.request, write=self._data.write)
            answer = order.answer(_ANSWER_S)
        if answer.failed is not None:
            raise failures.failure(answer.failed, self._data.name, host=host.name, mounting=True)
        if answer.mounted is None:
            raise StepError("its mounter did not mount it", hint="run the same again", host=host.name)
        self._context.reporter.report(HostDone(host=host.name, text="mounted"))
        return answer.mounted.already

    def _sees(self, host: Host) -> bool:
        with closing(self._context.connect(host)) as transport:
            return self._node(host).is_seen(transport)

    def _node(self, host: Host) -> NodeMount:
        service = names.HEAD if host.name == self._context.inventory.head.name else names.NODE
        return NodeMount(
            container=names.container(self._context.spec.name, service),
            folder=self._folder,
            to=self._data.to,
            address=self._nodes[host.name].address,
            port=self._cluster.ssh_port,
        )

    def _restart(self, hosts: Sequence[Host]) -> Sequence[str]:
        """Restart the nodes of these hosts, which started while an earlier mount was there. Return the hosts."""
        where = fold(host.name for host in hosts)
        spare_runs(self._context, f"would end: the nodes of {where} must restart before they see {self._data.name}")
        with changing(self._context, "data mount") as change:
            change.what = f"restart of {where}"
            return tuple(self._each(hosts, self._restarted))

    def _restarted(self, host: Host) -> bool:
        self._context.reporter.report(HostStep(host=host.name, text="restarting its node"))
        with closing(self._context.connect(host)) as transport:
            self._node(host).restart(transport)
        return True
