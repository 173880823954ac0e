"""TCP ports between hosts that a firewall closes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kit.model.doctor import Check, Command, Examined, PairSeen, Sight
from kit.plan.cluster.network import covering
from kit.plan.doctor import links
from kit.plan.doctor.ports import Span, spans

EPHEMERAL = "ephemeral ports"
_FIREWALLD = Command(argv=("systemctl", "is-active", "firewalld"), only_with="firewall-cmd")
# firewalld answers what it does not accept, so that the kernel of the other host reports this.
_REJECTED = "no route to host"


def judge(examined: Examined) -> Iterator[Sight]:
    known = spans(examined.spec)
    tried = {(pair.source, pair.target): pair for pair in examined.pairs if pair.ports}
    bad = {pair: seen for pair, seen in tried.items() if any(not port.open for port in seen.ports)}
    network = covering(pair.address for pair in tried.values()) if bad else ""
    guarded = {
        host.name for host in examined.hosts if (ran := host.ran(*_FIREWALLD.argv)) and ran.out[:64] == "active\n"
    }
    blamed, rest = links.blame(bad, tried, directed=True)
    for one in blamed:
        into = [seen for (_, target), seen in bad.items() if target == one.host]
        out = [seen for (source, _), seen in bad.items() if source == one.host]
        if one.direction != "out":
            yield Sight(
                hosts=(one.host,),
                seen=f"other hosts cannot connect to it: {_faults(into, known)}",
                fix=f"open it on {one.host}: {_opening(one.host in guarded, network, into, known)}",
            )
        if one.direction != "in":
            yield Sight(
                hosts=(one.host,),
                seen=f"it cannot connect to other hosts: {_faults(out, known)}",
                fix=f"open it on {one.host}: {_rule('OUTPUT', 'd', network, out, known)}",
            )
    for source, target in rest:
        seen = [bad[source, target]]
        opening = _opening(target in guarded, network, seen, known)
        yield Sight(
            hosts=(source, target),
            seen=f"no connection: {_faults(seen, known)}",
            fix=f"open it on {target}, or on {source} for what leaves: {opening}",
        )


def _label(number: int, known: Sequence[Span]) -> str:
    """Return a port as firewalls know it: the start of its range, or the word for a port that the kernel chose."""
    span = next((span for span in known if span.first <= number <= span.last), None)
    return EPHEMERAL if span is None else str(span.first)


def _faults(pairs: Sequence[PairSeen], known: Sequence[Span]) -> str:
    """Return `ports 33, 1024 timed out; ephemeral ports connection refused`."""
    by_fault: dict[str, dict[str, None]] = {}
    for port in (port for pair in pairs for port in pair.ports if not port.open):
        by_fault.setdefault(port.fault or "failed", {})[_label(port.number, known)] = None
    return "; ".join(f"{_named(list(labels))} {fault}" for fault, labels in by_fault.items())


def _named(labels: Sequence[str]) -> str:
    numbers = sorted((label for label in labels if label != EPHEMERAL), key=int)
    words = [f"port{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"] if numbers else []
    return " and ".join([*words, *([EPHEMERAL] if EPHEMERAL in labels else [])])


def _opening(guarded: bool, network: str, pairs: Sequence[PairSeen], known: Sequence[Span]) -> str:
    """Return what lets connections in. `guarded`: firewalld runs, whose rejections a rule of iptables does not undo."""
    sources = " ".join(f"--add-source={one}" for one in network.split(","))
    zone = f"sudo firewall-cmd --permanent --zone=trusted {sources} && sudo firewall-cmd --reload"
    if guarded:
        return f"{zone} (or the cloud's security group: TCP from {network}, all ports)"
    rule = _rule("INPUT", "s", network, pairs, known)
    rejected = any(port.fault == _REJECTED for pair in pairs for port in pair.ports)
    return f"{rule}. If firewalld runs there: {zone}" if rejected else rule


def _rule(chain: str, side: str, network: str, pairs: Sequence[PairSeen], known: Sequence[Span]) -> str:
    """Return the rule of a firewall. If only the ports of programs like sshd are closed, it opens no others."""
    closed = {_label(port.number, known) for pair in pairs for port in pair.ports if not port.open}
    single = {str(span.first) for span in known if span.first == span.last}
    ports = f" -m multiport --dports {','.join(sorted(closed, key=int))}" if closed <= single else ""
    which = f"ports {', '.join(sorted(closed, key=int))}" if ports else "all ports"
    rule = f"sudo iptables -I {chain} -p tcp -{side} {network}{ports} -j ACCEPT"
    return f"{rule} (or the cloud's security group: TCP from {network}, {which})"


CHECK = Check(
    id="port-filtered",
    title="A firewall closes ports between hosts",
    area="pair",
    severity="breaks",
    judge=judge,
    reads=(_FIREWALLD,),
    measures=True,
    leads_to="A job hangs at its start: MPI's ranks listen on ports from 1024 on, NCCL, Gloo and mpirun on ephemeral "
    "ports, and the cluster's sshd on `ssh_port`.",
    fix="Open all TCP ports between the hosts in their firewall, and in the cloud's security group.",
    lab="kit lab fault HOST port-filtered",
)
