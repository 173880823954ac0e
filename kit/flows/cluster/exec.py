"""kit exec: one command in the container of many hosts. Hosts with equal output are one group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from kit.config.selection import select_hosts
from kit.errors import NotReadyError
from kit.flows.context import Context
from kit.model import names
from kit.model.failures import SharedFailure, alike
from kit.model.host import Host
from kit.model.result import ExecResult, OutputGroup
from kit.remote.engine.hiccups import run_in_node
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Completed

TIMEOUT_S = 3600.0


def exec_hosts(context: Context, hosts: str | None, command: Sequence[str]) -> ExecResult:
    """Run `command` in the nodes' containers, side by side. Raises where it ran on no host;
    a host that failed while others did not has its error as its output.
    """
    chosen = select_hosts(context.inventory, hosts).hosts if hosts else context.inventory.hosts
    head = context.inventory.head.name

    def work(host: Host) -> Completed:
        container = names.container(context.spec.name, names.HEAD if host.name == head else names.NODE)
        with closing(context.connect(host)) as transport:
            done = run_in_node(transport, container, command, timeout_s=TIMEOUT_S)
        # The engine's own words, not the command's: a command may well say that something is not running.
        engine = done.error_text.startswith(("Error response from daemon:", "Error: No such container"))
        missing = "o such container" in done.error_text or "is not running" in done.error_text
        if done.code == 1 and engine and missing:
            raise NotReadyError("no node of the cluster runs here", hint="run: kit deploy", host=host.name)
        return done

    outcome = fanout.each(chosen, work)
    if not outcome.results:
        outcome.or_raise("kit exec")
    return ExecResult(groups=(*fold(outcome.results), *map(_failed, alike(outcome.failures.values()))))


def _failed(failure: SharedFailure) -> OutputGroup:
    """Return the group of hosts on which the command did not run. The others still have their output."""
    hint = f"\n  → {failure.hint}" if failure.hint else ""
    return OutputGroup(hosts=failure.hosts, exit_code=failure.exit_code, output=f"{failure.message}{hint}\n")


def fold(results: Mapping[str, Completed]) -> tuple[OutputGroup, ...]:
    """Equal output and exit code are one group, in the order of the first host of each."""
    groups: dict[tuple[int, str], list[str]] = {}
    for host, done in results.items():
        output = done.text + (done.stderr.decode(errors="replace") if done.stderr else "")
        groups.setdefault((done.code, output), []).append(host)
    return tuple(
        OutputGroup(hosts=tuple(hosts), exit_code=code, output=output) for (code, output), hosts in groups.items()
    )
