"""kit forward: ports of a VM on this machine's loopback, over kit's ssh, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kit.config.selection import select_host
from kit.errors import InputError, NotReadyError, StepError
from kit.events import Reporter, Warned
from kit.flows.context import Context
from kit.flows.run.listing import StoredRun, stored_run
from kit.model.forward import Forwarded, Forwards, Wanted
from kit.model.host import Host
from kit.plan.forward import LOCALHOST, target
from kit.plan.run.numbering import by_rank
from kit.remote.machine import ports as local_ports
from kit.remote.scripts import script
from kit.remote.ssh.openssh import LOOPBACK
from kit.remote.ssh.program import ended
from kit.remote.ssh.tunnel import Tunnel

# A browser tries again and again. The same answer is reported this often.
_AGAIN_S = 30.0
_TABLES_S = 30.0


def forward(
    context: Context,
    where: str,
    wanted: Sequence[Wanted],
    *,
    is_run: bool,
    rank: int | None = None,
    ready: Callable[[Forwards], None],
) -> None:
    """Forward ports of a host, or of the host of a run's rank (default: rank 0), until Ctrl-C.

    `ready` gets what is open. Raises InputError for a port of this machine that is taken, and UnreachableError when the
    connection breaks.
    """
    locals_ = choose(wanted, where)
    run = stored_run(context, where) if is_run else None
    record = run[0] if run else None
    if record is not None and record.state != "running":
        raise NotReadyError(
            f"run {record.id} has ended, and its programs with it",
            hint=f"name a host instead: kit forward {record.places[0].node if record.places else 'head'} PORT",
        )
    host = host_of(context, run, rank or 0) if run else select_host(context.inventory, where)
    lines: list[str] = []
    refused = Refusals(host.name, [one.port for one in wanted], context.reporter)
    with Tunnel(host, context.login(host), script("forward"), line=lines.append, refused=refused) as tunnel:
        tunnel.open()
        if not tunnel.wait_for(lambda: "end" in lines[-1:], timeout_s=_TABLES_S):
            what = "its table of sockets did not come"
            if tunnel.ended:
                raise ended(what, host.name, errors="\n".join(lines).encode(), code=tunnel.wait())
            raise StepError(what, hint=f"look at it: kit ssh {host.name}", host=host.name)
        opened = []
        for local, one in zip(locals_, wanted, strict=True):
            address = target(lines, one.port)
            tunnel.forward(local, address or LOCALHOST, one.port)
            opened.append(Forwarded(local=local, port=one.port, address=address))
        ready(Forwards(host=host.name, ports=tuple(opened), run=record.id if record else ""))
        tunnel.wait()


def choose(wanted: Sequence[Wanted], where: str, verb: str = "forward") -> list[int]:
    """Return the port of this machine for each one. Raises InputError with the program that has it."""
    given = [one.local for one in wanted if one.local]
    for twice in {port for port in given if given.count(port) > 1}:
        raise InputError(f"port {twice} of this machine is given twice", hint="choose another: 0 takes a free one")
    chosen: list[int] = []
    for one in wanted:
        local = one.local or local_ports.free_port(LOOPBACK)
        if not local_ports.is_free(LOOPBACK, local):
            by = local_ports.holder(LOOPBACK, local)
            other = f"kit {verb} {where} "
            other += f"{_next(local)}:{one.port}" if verb == "forward" else f"--port {_next(local)}"
            why = f"is in use{f' by {by}' if by else ''}"
            if local < 1024 and not by:
                why = "is in use, or only root may listen on it"
            raise InputError(f"port {local} of this machine {why}", hint=f"choose another: {other}")
        chosen.append(local)
    return chosen


def _next(port: int) -> int:
    return port + 1 if 1024 <= port < 65535 else port % 1024 + 10240


def host_of(context: Context, run: StoredRun, rank: int) -> Host:
    """Return the host of a run's rank. Raises InputError for a rank that it does not have, or a host not in `hosts`."""
    record, fields = run
    places = by_rank(record, fields)
    left = rank
    for place in places:
        if left < place.ranks:
            if place.node not in context.inventory.names:
                raise InputError(
                    f"rank {rank} of run {record.id} is on {place.node}, which is not in {context.inventory.source}",
                    hint=f"add {place.node} to {context.inventory.source}",
                )
            return context.host(place.node)
        left -= place.ranks
    raise InputError(f"run {record.id} has no rank {rank}", hint=f"its ranks are 0 to {rank - left - 1}")


class Refusals:
    """Reports why connections to forwarded ports fail. The same reason is not repeated for a while."""

    def __init__(self, host: str, ports: Sequence[int], reporter: Reporter) -> None:
        self._host = host
        self._ports = ports
        self._reporter = reporter
        self._last: dict[str, float] = {}

    def __call__(self, why: str) -> None:
        now = time.monotonic()
        if now - self._last.get(why, -_AGAIN_S) < _AGAIN_S:
            return
        self._last[why] = now
        self._reporter.report(refusal(self._host, self._ports, why))


def refusal(host: str, ports: Sequence[int], why: str) -> Warned:
    """Return what to report for OpenSSH's reason why a connection was not forwarded."""
    which = f"port {ports[0]}" if len(ports) == 1 else f"one of the ports {', '.join(map(str, ports))}"
    if "prohibited" in why:
        return Warned(
            text=f"{host} forwards no connections: {why}",
            hint="its sshd must allow it: AllowTcpForwarding yes (or local) in /etc/ssh/sshd_config",
        )
    if "refused" in why:
        return Warned(
            text=f"nothing listens on {which} of {host}: {why}",
            hint=f"start the program there; see who listens: kit ssh {host} -- sudo ss -ltnp",
        )
    return Warned(text=f"{host} cannot connect to {which}: {why}", hint=f"look at the host: kit ssh {host}")
