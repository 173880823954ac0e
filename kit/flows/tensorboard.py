"""kit tensorboard: TensorBoard in the node of a rank, on this machine's loopback, until Ctrl-C."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Sequence

from kit.errors import KitError, NotReadyError, SlowError, StepError
from kit.events import Phase, Warned
from kit.flows.context import Context
from kit.flows.forward import Refusals, choose, host_of
from kit.flows.run.listing import stored_run
from kit.model import names
from kit.model.forward import Board, Wanted
from kit.model.run import RunRecord
from kit.remote.engine.down import engine_down
from kit.remote.run import board
from kit.remote.ssh.openssh import LOOPBACK
from kit.remote.ssh.tunnel import Tunnel

# TensorBoard's own port.
PORT = 6006
# TensorFlow is imported first, if the image has it.
_START_S = 120.0
# An error may quote the last of these lines.
_LAST = 20


def tensorboard(
    context: Context,
    word: str,
    *,
    logdir: str | None,
    rank: int | None,
    port: int | None,
    ready: Callable[[Board], None],
) -> None:
    """Run TensorBoard in the node of the run's rank (default: rank 0) until Ctrl-C. `ready` gets where it is.

    The run may have ended. Raises NotReadyError if the image has no TensorBoard, and InputError for a port of this
    machine that is taken.
    """
    (local,) = choose([Wanted(local=PORT if port is None else port, port=PORT)], word, "tensorboard")
    run = stored_run(context, word)
    host = host_of(context, run, rank or 0)
    record, _ = run
    folder = folder_of(record, logdir)
    role = names.HEAD if host.name == context.inventory.head.name else names.NODE
    lines: deque[str] = deque(maxlen=_LAST)
    ports: list[int] = []
    refused = Refusals(host.name, ports, context.reporter)

    def line(text: str) -> None:
        if text == board.NO_FOLDER:
            context.reporter.report(_no_folder(host.name, folder, record.id))
            return
        lines.append(text)
        ports.extend(port for port in [board.port_of(text)] if port)

    command = board.argv(names.container(context.spec.name, role), folder)
    context.reporter.report(Phase(name="tensorboard", hosts=(host.name,)))
    tunnel = Tunnel(host, context.login(host), command, line=line, refused=refused)
    try:
        tunnel.open()
        if not tunnel.wait_for(lambda: bool(ports), timeout_s=_START_S):
            if not tunnel.ended:
                raise SlowError(
                    f"TensorBoard did not start within {_START_S:.0f} s",
                    hint=f"look at the host's load: kit ssh {host.name} -- uptime",
                    host=host.name,
                )
            raise _failed(tunnel, lines, record.id, host.name)
        tunnel.forward(local, LOOPBACK, ports[0], free="--port 0")
        ready(Board(run=record.id, host=host.name, logdir=folder, url=f"http://{LOOPBACK}:{local}/"))
        raise _failed(tunnel, lines, record.id, host.name)
    finally:
        # The node ends TensorBoard when its input ends.
        tunnel.close(patient=True)


def folder_of(record: RunRecord, logdir: str | None) -> str:
    """Return the folder in the node. A relative `logdir` is below the run's folder, as in `output/logs`."""
    return posixpath.normpath(posixpath.join(f"{names.RUNS_MOUNT}/{record.id}", logdir or ""))


def _no_folder(host: str, folder: str, run: str) -> Warned:
    """Return the warning for a folder that the node does not have: TensorBoard shows an empty page until it has one."""
    return Warned(
        text=f"there is no folder {folder} in the node on {host} yet, so TensorBoard shows nothing",
        hint=f"find what the run wrote: kit exec -H {host} -- find {names.RUNS_MOUNT}/{run} -name '*tfevents*'",
    )


def _failed(tunnel: Tunnel, lines: Sequence[str], run: str, host: str) -> KitError:
    """Wait until TensorBoard has ended, and return why."""
    code = tunnel.wait()
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if code == board.MISSING:
        return NotReadyError(
            "the image has no TensorBoard",
            hint="add tensorboard to image.pip in kit.yaml, then run: kit deploy. Or look at copies on this machine: "
            f"kit pull {run} '**/*tfevents*' logs, then: tensorboard --logdir logs",
            host=host,
        )
    if code == 1 and ("o such container" in text or "is not running" in text):
        return NotReadyError("no node of the cluster runs here", hint="run: kit deploy", host=host)
    if down := engine_down("\n".join(lines), host):
        return down
    return StepError(f"TensorBoard ended with exit code {code}{f': {text}' if text else ''}", host=host)
