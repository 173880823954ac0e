"""What the hosts of a cluster have of its data sets, and whether the cluster was deployed with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing

from kit.errors import NotReadyError
from kit.events import HostStep, Phase
from kit.flows.context import Context
from kit.model.data import DataSpec, data_folder
from kit.model.datasets import HostData
from kit.model.host import Host
from kit.model.launch import ClusterRecord
from kit.plan.cluster import drift
from kit.plan.cluster.record import from_text
from kit.remote.data.state import host_data
from kit.remote.results import far
from kit.remote.ssh import fanout


def look(context: Context, *, quiet: bool = False, only: Collection[str] | None = None) -> fanout.Outcome[HostData]:
    """Ask all hosts, or `only` these, which data sets they have. A host that fails is one of the failures."""
    folders = [data_folder(context.spec.name, data) for data in context.spec.data if data.mounted_by != "engine"]

    def work(host: Host) -> HostData:
        if not quiet:
            context.reporter.report(HostStep(host=host.name, text="connecting"))
        with closing(context.connect(host)) as transport:
            return host_data(transport, context.spec.name, folders)

    if not quiet:
        context.reporter.report(Phase(name="look", hosts=context.inventory.names))
    return fanout.each([host for host in context.inventory.hosts if only is None or host.name in only], work)


def cluster_of(context: Context, record: str) -> ClusterRecord:
    """Return the cluster that the head's record describes. Raises NotReadyError if nothing is deployed."""
    if not record:
        raise NotReadyError(
            f"the cluster {context.spec.name} is not deployed", hint="run: kit deploy", host=context.inventory.head.name
        )
    return from_text(record)


def check_deployed(cluster: ClusterRecord, context: Context, sets: Sequence[DataSpec]) -> None:
    """Raise NotReadyError if the nodes do not have these data sets where kit.yaml has them."""
    wanted = drift.deployed_settings(context.spec)
    for data in sets:
        own = (f"data.{data.name}", f"data.{data.name}.")
        now = {path: value for path, value in wanted.items() if path == own[0] or path.startswith(own[1])}
        before = {path: value for path, value in cluster.settings.items() if path in now}
        if now != before:
            what = "with other settings of" if before else "without"
            raise NotReadyError(
                f"the cluster was deployed {what} the data set {data.name}",
                hint=f"run: kit deploy; then: kit data {'stage' if data.staged else 'mount'} {data.name}",
            )


def spare_runs(context: Context, why: str) -> None:
    """Raise NotReadyError with this reason if a run is active: each of the cluster's runs can read its data sets."""
    with closing(context.connect(context.inventory.head)) as transport:
        living = [run.id for run in far.survey(transport, context.spec.name) if run.live]
    if living:
        raise NotReadyError(
            f"the run {', '.join(living)} is active and {why}",
            hint="wait for it (kit wait) or stop it (kit stop ID)",
        )
