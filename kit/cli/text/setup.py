"""The result of kit setup as text."""

from __future__ import annotations

from kit.cli.text.table import hosts
from kit.model.setup.result import SetupResult
from kit.model.text import plural


def setup(value: SetupResult) -> str:
    """Return what became of the hosts."""
    where = hosts([host.host for host in value.hosts])
    if value.undo:
        if not value.changed:
            return f"Nothing to undo on {where}."
        return f"Undid kit setup on {hosts([host.host for host in value.hosts if host.steps])} ({value.seconds:.1f} s)."
    if not value.changed:
        waits = sum(bool(host.waiting) for host in value.hosts)
        verb = "needs" if waits == 1 else "need"
        if waits:
            return f"Nothing to do without a reboot, which {plural(waits, 'host')} {verb}: kit setup --allow-reboot"
        return f"Nothing to do: {where} {'is' if len(value.hosts) == 1 else 'are'} ready for kit deploy."
    if any(host.waiting for host in value.hosts):
        return f"Set up {where} ({value.seconds:.1f} s). Some need a reboot: kit setup --allow-reboot"
    return f"Set up {where} ({value.seconds:.1f} s). Next: kit deploy"
