"""Runs a network probe on two hosts at once, and removes all that it made, whatever happened."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.host import Host
from kit.remote.engine.hiccups import no_container, persistently
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Completed, Connect

# What the engines of two hosts take, in the worst case, before a byte goes, and then the probe itself.
PATIENCE_S = 120.0


@cache
def program() -> str:
    return (Path(__file__).parent / "tcp.py").read_text(encoding="utf-8")


def new_mark() -> str:
    """Of one probe: its containers, its network, its processes."""
    return f"bench-{secrets.token_hex(6)}"


def new_port(ports: range) -> int:
    return ports[secrets.randbelow(len(ports))]


def run_pair(connect: Connect, listener: tuple[Host, Sequence[str]], caller: tuple[Host, Sequence[str]]) -> str:
    """The caller's standard output. Both get a secret of this one time. Raises where either failed."""
    secret = f"{secrets.token_hex(16)}\n".encode()
    ended: dict[str, Completed | KitError] = {}

    def work(name: str, host: Host, argv: Sequence[str]) -> Callable[[], None]:
        def here() -> None:
            try:
                with closing(connect(host)) as transport:
                    ended[name] = persistently(
                        lambda: transport.run(argv, stdin=secret, timeout_s=PATIENCE_S), no_container
                    )
            except KitError as error:
                error.host = error.host or host.name
                ended[name] = error

        return here

    threads = {
        name: threading.Thread(target=work(name, *pair), daemon=True)
        for name, pair in (("listen", listener), ("connect", caller))
    }
    for thread in threads.values():
        thread.start()
    # Join in steps, so that Ctrl-C works. If the listener failed, the caller has nothing to reach.
    while threads["connect"].is_alive() and not _failed(ended.get("listen")):
        threads["connect"].join(0.1)
    for name in ("listen", "connect") if _failed(ended.get("listen")) else ("connect",):
        outcome = ended.get(name)
        if isinstance(outcome, KitError):
            raise outcome
        if outcome is None or outcome.code != 0:
            host = (listener if name == "listen" else caller)[0].name
            cause = (
                (outcome.error_text.splitlines() or [f"exit {outcome.code}"])[-1]
                if outcome is not None
                else "no answer"
            )
            raise StepError(f"the network probe failed: {cause}", host=host)
    done = ended["connect"]
    return done.text if isinstance(done, Completed) else ""


def _failed(outcome: Completed | KitError | None) -> bool:
    return isinstance(outcome, KitError) or (outcome is not None and outcome.code != 0)


def prepare(connect: Connect, host: Host, argv: Sequence[str]) -> None:
    """Run a command that a probe requires first."""
    with closing(connect(host)) as transport:
        done = transport.run(argv, timeout_s=PATIENCE_S)
    if done.code != 0:
        raise StepError(f"{' '.join(argv[:3])}: {done.error_text}", host=host.name)


def clean(connect: Connect, hosts: Sequence[Host], mark: str) -> dict[str, KitError]:
    """Remove everything with the mark, and return the failures. Start with the last host: a network must be empty."""

    def work(host: Host) -> None:
        with closing(connect(host)) as transport:
            done = transport.run(script("probe_clean", mark), timeout_s=PATIENCE_S)
        if done.code != 0:
            raise StepError(
                f"the containers or network of the network probe could not be removed: {done.error_text}",
                hint=f"kit ssh {host.name} -- sudo docker ps -a --filter label={names.LABEL_BENCH}={mark}; "
                "kit down removes them, too",
                host=host.name,
            )

    failures: dict[str, KitError] = {}
    for host in reversed(hosts):
        failures |= fanout.each([host], work).failures
    return failures
