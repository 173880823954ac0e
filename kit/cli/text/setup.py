"""The result of kit setup as text."""

from __future__ import annotations

from kit.cli.text.table import hosts
from kit.model.setup.result import SetupResult
from kit.model.text import fold, plural


def setup(value: SetupResult) -> str:
    """Return what became of the hosts."""
    where = hosts([host.host for host in value.hosts])
    if value.undo:
        if not value.changed:
            return f"Nothing to undo on {where}."
        return f"Undid kit setup on {hosts([host.host for host in value.hosts if host.steps])} ({value.seconds:.1f} s)."
    # With --only, kit setup may have left them out.
    lacking = [host.host for host in value.hosts if not (host.engine and host.compose)]
    verb = "has" if len(lacking) == 1 else "have"
    step = f"kit setup --only docker ({fold(lacking)} {verb} no engine with Compose v2)" if lacking else "kit deploy"
    if not value.changed:
        return _unchanged(value, where, step)
    if any(host.waiting for host in value.hosts):
        return f"Set up {where} ({value.seconds:.1f} s). Some need a reboot: kit setup --allow-reboot"
    return f"Set up {where} ({value.seconds:.1f} s). Next: {step}"


def _unchanged(value: SetupResult, where: str, step: str) -> str:
    waits = sum(bool(host.waiting) for host in value.hosts)
    if waits:
        verb = "needs" if waits == 1 else "need"
        return f"Nothing to do without a reboot, which {plural(waits, 'host')} {verb}: kit setup --allow-reboot"
    if step != "kit deploy":
        return f"Nothing to do in these areas. Next: {step}"
    return f"Nothing to do: {where} {'is' if len(value.hosts) == 1 else 'are'} ready for kit deploy."
