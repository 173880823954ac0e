"""One function for each kind of step of kit setup."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, cast

from kit.errors import KitError, StepError, UnreachableError
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.setup.paths import DAEMON_JSON, LOCK
from kit.model.setup.steps import (
    ChangeMtu,
    ConfigureEngine,
    FetchKey,
    FinishPackages,
    InstallPackages,
    LoadDriver,
    Reboot,
    ReservePages,
    RestoreFile,
    RestoreValues,
    SetKernelValues,
    StartEngine,
    StartUnit,
    StopUnit,
    UpdateBootLoader,
    VerifyEngine,
    WriteSystemFile,
)
from kit.model.text import one_line
from kit.model.values import replace
from kit.remote.cluster.execution import Execution, require
from kit.remote.setup.apt_faults import first_cause
from kit.remote.setup.programs import program
from kit.remote.ssh.transport import Live, LiveTransport, Output, Transport

# How long kit waits for somebody else's apt, and for an engine that restarts twice.
APT_LOCK_S = 900
# Other hosts wait for a reboot, and apt reads its lists for a moment each day.
REBOOT_LOCK_S = 120
ENGINE_TIMEOUT_S = 400.0
REBOOT_S = 900.0
_POLL_S = 3.0
# Enough for several full packets of 9000 bytes in each direction.
_PROBE = b"kit" * 40000
# The exit code of engine.sh for a file that changed since kit looked at it.
_CHANGED = 3
_DISK = "is its disk full? df -h"


def finish_packages(execution: Execution, transport: Transport, _step: FinishPackages) -> None:
    _apt(execution, transport, "", (), "dpkg cannot finish what was interrupted")


def install_packages(execution: Execution, transport: Transport, step: InstallPackages) -> None:
    _apt(execution, transport, step.area, step.packages, f"{' '.join(step.packages)} could not be installed")


def _apt(execution: Execution, transport: Transport, area: str, packages: tuple[str, ...], what: str) -> None:
    name = transport.host.name
    output = Output(name)
    lines = _ProgressLines(lambda text, fraction: execution.progress(name, text, fraction))
    # Every real transport also runs live commands. apt may take many minutes.
    live = cast(LiveTransport, transport)
    code = live.stream(program("install", str(APT_LOCK_S), area, *packages), Live(out=lines.add, err=output.add_err))
    if code != 0:
        cause, hint = first_cause(bytes(output.err).decode(errors="replace"), name)
        raise StepError(f"{what}: {cause}", hint=hint, host=name)


class _ProgressLines:
    """Turns lines `progress PERCENT TEXT` of a host into progress. It ignores all others."""

    def __init__(self, report: Callable[[str, float | None], None]) -> None:
        self._report = report
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        # A host that prints no end of a line must not fill the memory.
        self._rest = self._rest[-10_000:]
        for line in lines:
            words = line.decode(errors="replace").split(" ", 2)
            if words[0] == "progress" and len(words) == 3:
                self._report(explained(one_line(words[2])[:200]), _fraction(words[1]))


def explained(text: str) -> str:
    """Return apt's progress, with the reason if nothing changes for minutes."""
    # dkms builds when its packages and new headers are configured.
    builds = text.startswith("Configuring ") and ("-dkms " in text or " linux-headers-" in text)
    return f"{text}: dkms may build modules of the kernel, which takes minutes" if builds else text


def _fraction(word: str) -> float | None:
    try:
        return min(max(float(word) / 100, 0.0), 1.0)
    except ValueError:
        return None


def fetch_key(_execution: Execution, transport: Transport, step: FetchKey) -> None:
    argv = program("key", step.area, step.url, step.path, step.fingerprint)
    done = transport.run(argv, timeout_s=120)
    if done.code != 0:
        cause, hint = first_cause(done.error_text, transport.host.name)
        last = done.error_text.splitlines()[-1] if done.error_text else cause
        # The script ends with this if apt's program fails, which has said why before.
        why = cause if last == f"{step.url} could not be fetched" else last
        raise StepError(f"the key {step.url} could not be fetched: {why}", hint=hint, host=transport.host.name)


def write_file(_execution: Execution, transport: Transport, step: WriteSystemFile) -> None:
    content = _revealed(step.content)
    argv = program("write", step.area, step.path, step.mode, str(len(content)))
    require(transport.run(argv, stdin=content), transport.host.name, f"{step.path} could not be written", _DISK)


def configure_engine(_execution: Execution, transport: Transport, step: ConfigureEngine) -> None:
    content = _revealed(step.content)
    # Any user could read a proxy's password otherwise. Only dockerd needs the file, and it is root.
    mode = "600" if isinstance(step.content, Secret) else "644"
    restart = "restart" if step.restart else "keep"
    argv = program("engine", step.area, DAEMON_JSON, str(len(content)), restart, mode)
    done = transport.run(argv, stdin=step.seen.reveal() + b"\n" + content, timeout_s=ENGINE_TIMEOUT_S)
    name = transport.host.name
    if done.code == _CHANGED:
        raise StepError(
            f"{DAEMON_JSON} was not written: somebody changed it while kit setup was at work",
            hint="kit left it unchanged; merge it with the new content: kit setup",
            host=name,
        )
    hint = f"see the engine's log: kit ssh {name} -- journalctl -u docker"
    require(done, name, f"{DAEMON_JSON} was not written", hint)


def start_engine(_execution: Execution, transport: Transport, step: StartEngine) -> None:
    name = transport.host.name
    argv = program("start_engine", "restart" if step.restart else "start")
    done = transport.run(argv, timeout_s=ENGINE_TIMEOUT_S)
    require(done, name, "the engine was not started", f"see its log: kit ssh {name} -- journalctl -u docker")


def verify_engine(_execution: Execution, transport: Transport, _step: VerifyEngine) -> None:
    name = transport.host.name
    done = transport.run(program("verify_engine"))
    require(done, name, "docker is not ready", f"try it: kit ssh {name} -- sudo docker info")


def set_kernel_values(_execution: Execution, transport: Transport, step: SetKernelValues) -> None:
    argv = program("kernel", step.area, *(word for pair in step.values for word in pair))
    require(transport.run(argv), transport.host.name, "kernel settings were not set", None)


def load_driver(_execution: Execution, transport: Transport, _step: LoadDriver) -> None:
    transport.run(program("load_driver"), timeout_s=120)


def start_unit(_execution: Execution, transport: Transport, step: StartUnit) -> None:
    name = transport.host.name
    done = transport.run(program("unit", step.area, step.unit), timeout_s=120)
    require(done, name, f"{step.unit} was not started", f"see its log: kit ssh {name} -- journalctl -u {step.unit}")


def stop_unit(_execution: Execution, transport: Transport, step: StopUnit) -> None:
    require(transport.run(program("stop_unit", step.unit)), transport.host.name, f"{step.unit} was not stopped", None)


def reserve_pages(_execution: Execution, transport: Transport, step: ReservePages) -> None:
    argv = program("pages", step.area, str(step.count))
    require(transport.run(argv, timeout_s=120), transport.host.name, "no huge pages were reserved", None)


def update_boot_loader(_execution: Execution, transport: Transport, _step: UpdateBootLoader) -> None:
    name = transport.host.name
    require(transport.run(program("grub"), timeout_s=120), name, "GRUB did not read its settings", None)


def change_mtu(execution: Execution, transport: Transport, step: ChangeMtu) -> None:
    """Change it, then confirm it over a connection that is new. Without that, the host takes it back."""
    name = transport.host.name
    token = os.urandom(16).hex()
    argv = program("mtu", step.area, step.interface, str(step.mtu), str(step.seconds), token)
    require(transport.run(argv, timeout_s=30), name, f"the MTU of {step.interface} was not changed", None)
    execution.progress(name, "confirming over a new connection")
    try:
        confirm_mtu(execution, name, step, token)
    except KitError as error:
        raise StepError(
            f"the MTU of {step.interface} is not confirmed: {error.message}",
            hint=f"{name} changes it back {step.seconds} s after the change; does the network carry {step.mtu} bytes?",
            host=name,
        ) from error


def confirm_mtu(execution: Execution, name: str, step: ChangeMtu, token: str) -> None:
    """Send and receive large packets over a new connection, and let the new MTU stay."""
    with closing(new_connection(execution, name)) as fresh:
        argv = program("mtu_confirm", step.interface, str(step.mtu), token)
        done = fresh.run(argv, stdin=_PROBE, timeout_s=step.seconds / 2)
    require(done, name, "the confirmation failed", None)
    if done.stdout.strip() != _PROBE:
        raise StepError(f"{len(done.stdout)} of {len(_PROBE)} bytes came back", host=name)


def new_connection(execution: Execution, name: str) -> Transport:
    """Return a transport that shares no connection with an earlier command."""
    from kit.remote.ssh.connect import connected  # noqa: PLC0415  (only for plans that change an MTU or reboot)

    return connected(execution.hosts[name], replace(execution.logins[name], socket=None))


def reboot(execution: Execution, transport: Transport, step: Reboot) -> None:
    """Restart the host, and wait until it has another boot id."""
    name = transport.host.name
    argv = program("reboot", step.boot_id, LOCK, str(REBOOT_LOCK_S))
    done = transport.run(argv, timeout_s=REBOOT_LOCK_S + 60)
    require(done, name, "the reboot was not started", "wait until that is over, then: kit setup --allow-reboot")
    deadline = time.monotonic() + REBOOT_S
    execution.progress(name, "waiting for its sshd")
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        try:
            with closing(new_connection(execution, name)) as fresh:
                now = fresh.run(program("boot_id"), timeout_s=15).text.strip()
        except (UnreachableError, StepError):
            continue
        if now and now != step.boot_id:
            return
    raise UnreachableError(
        f"it did not come back within {REBOOT_S:.0f} s after its reboot",
        hint="look at the VM's console; no further host was rebooted. Then: kit setup --allow-reboot",
        host=name,
    )


def restore_file(_execution: Execution, transport: Transport, step: RestoreFile) -> None:
    require(transport.run(program("restore", step.path)), transport.host.name, f"{step.path} was not restored", _DISK)


def restore_values(_execution: Execution, transport: Transport, step: RestoreValues) -> None:
    argv = program("restore_values", step.what, *(word for pair in step.values for word in pair))
    require(transport.run(argv), transport.host.name, "values were not restored", None)


def _revealed(content: bytes | Secret) -> bytes:
    return content.reveal() if isinstance(content, Secret) else content


ON_HOST: Mapping[type[Step], Callable[[Execution, Transport, Any], None]] = {
    FinishPackages: finish_packages,
    InstallPackages: install_packages,
    FetchKey: fetch_key,
    WriteSystemFile: write_file,
    ConfigureEngine: configure_engine,
    StartEngine: start_engine,
    VerifyEngine: verify_engine,
    SetKernelValues: set_kernel_values,
    LoadDriver: load_driver,
    StartUnit: start_unit,
    StopUnit: stop_unit,
    ReservePages: reserve_pages,
    UpdateBootLoader: update_boot_loader,
    ChangeMtu: change_mtu,
    Reboot: reboot,
    RestoreFile: restore_file,
    RestoreValues: restore_values,
}
