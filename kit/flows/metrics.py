"""kit metrics: the readings of all hosts for Prometheus, over HTTP, as a file, or once as text."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kit
from kit.errors import HostsFailed, InputError, KitError, StepError
from kit.events import Warned
from kit.flows.context import Context
from kit.model.failures import alike
from kit.model.metrics import Address, Exported, Family
from kit.plan.metrics import families
from kit.remote.machine.ports import holder, listens_on, refusal
from kit.remote.watch import prometheus
from kit.remote.watch.watchers import Watchers, answered, given_up

# For the first reading of each host: a login, and the start of nvidia-smi.
FIRST_S = 60.0


def text(context: Context) -> str:
    """Return the metrics of one reading of each host. Raises KitError if no host answers."""
    with _watched(context, every=1.0) as now:
        return prometheus.text(now)


def serve(
    context: Context, listen: Address, *, every: float, anywhere: bool, ready: Callable[[Exported], None]
) -> None:
    """Serve the metrics until Ctrl-C (see `served`). `ready` gets where they are."""
    with served(context, listen, every=every, anywhere=anywhere) as exported:
        ready(exported)
        # Only Ctrl-C ends it.
        threading.Event().wait()


@contextmanager
def served(context: Context, listen: Address, *, every: float, anywhere: bool = False) -> Iterator[Exported]:
    """Serve the metrics. `every` is the time between readings in seconds.

    Raises InputError for a name that has no address, for all addresses of this machine, unless you said so
    (`anywhere`), and for a port that is taken.
    """
    check_address(listen, anywhere=anywhere)
    refused = refusal(listen.host, listen.port) if listen.port else None
    # Any other reason has its own error where the server starts.
    if refused is not None and refused.errno == errno.EADDRINUSE:
        by = holder(listen.host, listen.port)
        raise InputError(
            f"port {listen.port} of {listen.host} is in use{f' by {by}' if by else ''}",
            hint=f"choose another: --listen {listen.shown(listen.port + 1)}",
        )
    if not is_loopback(listen.host):
        context.reporter.report(
            Warned(text=f"everybody who can connect to {listen.host} can read the metrics: there is no password")
        )
    with _watched(context, every=every) as now, prometheus.served(now, listen.host, listen.port) as port:
        yield Exported(url=f"http://{listen.shown(port)}/metrics", hosts=context.inventory.names)


def write(context: Context, file: Path, *, every: float, once: bool, ready: Callable[[Exported], None]) -> None:
    """Write the metrics into a file for node_exporter's textfile collector, again and again until Ctrl-C.

    Raises StepError if it cannot be written the first time. Later failures are warnings: a disk that was full may have
    room again.
    """
    with _watched(context, every=every) as now:
        prometheus.write(now, file)
        ready(Exported(file=str(file), hosts=context.inventory.names))
        over = threading.Event()
        before = ""
        while not once and not over.wait(every):
            try:
                prometheus.write(now, file)
                before = ""
            except StepError as error:
                if error.message != before:
                    context.reporter.report(Warned(text=f"{error}; kit tries again", hint=error.hint))
                before = error.message


def check_address(listen: Address, *, anywhere: bool) -> None:
    """Raise InputError for a name without an address, and for all addresses unless you said so (`anywhere`)."""
    address = listens_on(listen.host)
    if address is None:
        raise InputError(
            f"this machine knows no address of '{listen.host}'",
            hint=f"name an address of this machine: --listen 127.0.0.1:{listen.port}",
        )
    if address.is_unspecified and not anywhere:
        raise InputError(
            f"{listen.host} is every address of this machine, and the metrics have no password",
            hint=f"listen on the loopback: --listen 127.0.0.1:{listen.port}; or add --all-addresses",
        )


def is_loopback(host: str) -> bool:
    address = listens_on(host)
    return address is not None and address.is_loopback


@contextmanager
def _watched(context: Context, *, every: float) -> Iterator[Callable[[], tuple[Family, ...]]]:
    """Yield what returns the metrics of now, when every host has answered or failed.

    Raises KitError if all hosts failed; warns of those that failed while others answered.
    """
    with Watchers(context.inventory.hosts, context.connect, every=every) as watchers:
        watchers.wait(answered, FIRST_S)
        seen = given_up(watchers.now(), FIRST_S)
        errors = [one.error for one in seen if one.error is not None]
        if len(errors) == len(seen):
            raise _all_failed(errors)
        for failure in alike(errors):
            whose = "its" if len(failure.hosts) == 1 else "their"
            context.reporter.report(Warned(text=f"{failure}; {whose} kit_host_up is 0", hint=failure.hint))
        yield lambda: families(watchers.now(), cluster=context.spec.name, version=kit.__version__, every=every)


def _all_failed(errors: list[KitError]) -> KitError:
    return errors[0] if len(errors) == 1 else HostsFailed(f"kit metrics: all {len(errors)} hosts failed", errors)
