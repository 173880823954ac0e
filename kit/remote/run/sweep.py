"""Ends what is left of a run on its hosts by the run's mark, if no supervisor is left to do it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import KitError, StepError
from kit.model.host import Host
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Connect


def sweep(hosts: Sequence[Host], run_id: str, connect: Connect) -> tuple[dict[str, int], dict[str, KitError]]:
    """End what is left of a run on every host, and count again. Return (processes left by host, failures)."""

    def work(host: Host) -> int:
        with closing(connect(host)) as transport:
            done = transport.run(script("stop_run", run_id), timeout_s=30)
        count = done.text.strip()
        if done.code != 0 or not (count.isascii() and count.isdigit() and len(count) < 10):
            raise StepError(
                f"its processes could not be listed: {done.error_text or f'exit {done.code}'}",
                hint=f"kit ssh {host.name}; then: ps",
                host=host.name,
            )
        return int(done.text)

    outcome = fanout.each(hosts, work)
    return dict(outcome.results), dict(outcome.failures)
