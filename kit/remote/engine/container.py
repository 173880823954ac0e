"""Runs one command in a fresh container on this machine's engine: prints lines as they come, and leaves nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from docker.errors import DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, Ulimit
from msgspec import Struct
from requests.exceptions import RequestException

from kit.errors import Interrupted, KitError, NotReadyError, StepError
from kit.events import OutputLine, Reporter, Stream, UnfinishedLine, Warned
from kit.model import names
from kit.model.answer import convert
from kit.model.local import LocalContainer, LocalGpus
from kit.model.observed import HostFacts
from kit.remote.cluster.forms import Info
from kit.remote.engine import sdk
from kit.remote.engine.hiccups import insist
from kit.remote.engine.limits import limits_hint
from kit.remote.machine.gpus import gpu_facts
from kit.remote.run.lines import LONG, Lines, output_line, text_so_far
from kit.remote.run.relayed import Piece, Relayed

LABEL = "kit.local"
STOP_S = 5


class _Ended(Struct, frozen=True, kw_only=True):
    StatusCode: int


class _State(Struct, frozen=True, kw_only=True):
    OOMKilled: bool | None = None


class _Attributes(Struct, frozen=True, kw_only=True):
    """What kit reads of an engine's answer about a container."""

    State: _State


class LocalEngine:
    """This machine's engine, for containers of `kit local`. Methods raise UnreachableError if it does not answer."""

    def __init__(self) -> None:
        self._client = sdk.connect()
        with _errors("cannot look at the engine"):
            self._info: Info = convert(self._client.info(), Info)

    def close(self) -> None:
        self._client.close()

    @property
    def is_here(self) -> bool:
        """Return whether the engine is on this machine, and so can mount its folders."""
        # The SDK's name for any engine behind a socket in the file system.
        return str(self._client.api.base_url).startswith("http+docker://localhost")

    @property
    def is_rootless(self) -> bool:
        """Return whether the root of a container is the user who runs the engine."""
        return self._info.rootless

    def gpu_facts(self) -> HostFacts:
        """Return the facts of this machine that decide how a container gets its GPUs."""
        return gpu_facts(self._info)

    def has_image(self, tag: str) -> bool:
        with _errors(f"cannot look for the image {tag}"):
            try:
                self._client.images.get(tag)
            except ImageNotFound:
                return False
            return True

    def run(self, container: LocalContainer, reporter: Reporter, *, tagged: bool = False) -> int:
        """Run the container to its end, remove it, and return the exit code. Ctrl-C stops it and raises Interrupted.

        `tagged`: the source of each line is its rank.
        """
        name = f"kit-local-{uuid.uuid4().hex[:12]}"
        try:
            with _errors("the container cannot be run"):
                return self._run(name, container, reporter, tagged)
        except KeyboardInterrupt:
            self._end(name)
            raise Interrupted("the command was stopped, and its container is gone") from None
        finally:
            self._end(name)

    def _run(self, name: str, container: LocalContainer, reporter: Reporter, tagged: bool) -> int:
        created = self._client.containers.create(name=name, **definition(container, self._info))

        def start() -> Any:
            # Attach before the start, so that not even the first line is lost.
            output = self._client.api.attach(name, stream=True, stdout=True, stderr=True, demux=True)
            created.start()
            return output

        for event in _events(insist(start), tagged=tagged, ranks=container.ranks):
            reporter.report(event)
        code: int = convert(created.wait(), _Ended).StatusCode
        created.reload()
        if convert(created.attrs, _Attributes).State.OOMKilled:
            reporter.report(Warned(text="the container ran out of memory", hint="use fewer ranks or a smaller batch"))
        return code

    def _end(self, name: str) -> None:
        """Stop and remove the container, whatever its state. A second Ctrl-C only speeds this up."""
        for grace in (STOP_S, 0):
            try:
                container = self._client.containers.get(name)
                # TERM first: then mpirun ends its ranks and what they started.
                container.stop(timeout=grace)
                container.remove(force=True, v=True)
            except NotFound:
                return
            except (DockerException, RequestException, KeyboardInterrupt):
                continue
            return


def definition(container: LocalContainer, info: Info) -> dict[str, Any]:
    """Return the container in the words of docker's SDK, for the engine with this `info`."""
    return {
        "image": container.image,
        "entrypoint": [container.argv[0]],
        "command": list(container.argv[1:]),
        "labels": {LABEL: "1"},
        "environment": dict(container.env),
        "volumes": list(container.volumes),
        "shm_size": container.shm_size,
        "ulimits": [Ulimit(name=limit, soft=value, hard=value) for limit, value in container.ulimits.items()],
        "device_requests": device_requests(container.gpus),
        "init": True,
        "cap_drop": ["ALL"],
        "cap_add": list(container.capabilities),
        "security_opt": list(container.security_options),
        "pids_limit": container.pids or None,
        # With userns-remap, the container's root is a user who may not even look into the folder of the run.
        "userns_mode": "host" if info.remaps_users else None,
    }


def device_requests(gpus: LocalGpus | None) -> list[DeviceRequest] | None:
    """Return the engine's request for the GPUs."""
    if gpus is None:
        return None
    if gpus.driver == "cdi":
        devices = [f"{names.GPU_KIND}={name}" for name in gpus.names or ("all",)]
        return [DeviceRequest(driver="cdi", device_ids=devices, capabilities=[["gpu"]])]
    wish: dict[str, Any] = {"device_ids": list(gpus.names)} if gpus.names else {"count": gpus.count or -1}
    return [DeviceRequest(driver=gpus.driver, capabilities=[["gpu"]], **wish)]


def _events(output: Any, *, tagged: bool, ranks: int = 1) -> Iterator[OutputLine | UnfinishedLine]:
    """Yield the lines of both streams as they come: whole lines, and how far unfinished ones are.

    kit-rank sends the lines of ranks as records. Other lines are mpirun's own, or those of a command without mpirun.
    In a file or pipe, no other rank's line may come in the middle of an unfinished line, unless that is a bar.
    """
    lines: Lines[tuple[str, Stream]] = Lines()
    relayed = Relayed()

    def line(key: tuple[str, Stream], text: bytes) -> OutputLine:
        return output_line(text, stream=key[1], source=key[0] if tagged else "")

    def taken(pieces: Iterable[Piece]) -> Iterator[OutputLine]:
        for piece in pieces:
            key: tuple[str, Stream] = (piece.rank, "stdout" if piece.kind == "out" else "stderr")
            if piece.kind != "other":
                yield from (line(key, text) for text in lines.feed(key, piece.data, more=piece.more))

    for out, err in output:
        yield from (line(("", "stdout"), text) for text in (lines.feed(("", "stdout"), out) if out else ()))
        yield from taken(relayed.feed(err) if err else ())
        for key, text, bar in lines.unfinished():
            if len(text) < LONG:
                source, live = key[0] if tagged else "", bar or ranks == 1
                yield UnfinishedLine(text=text_so_far(text), stream=key[1], source=source, live=live)
    yield from taken(relayed.end())
    yield from (line(key, text) for key, text in lines.end())


def _errors(doing: str) -> AbstractContextManager[None]:
    def refused(error: Any) -> KitError:
        text = sdk.reply(error)
        if isinstance(error, ImageNotFound):
            return NotReadyError(f"{doing}: {text}", hint="run: kit image build")
        if "could not select device driver" in text:
            return NotReadyError(
                "this machine's engine cannot give its GPUs to a container",
                hint="install nvidia-container-toolkit and restart the engine; or use no GPU: kit local --gpus none",
            )
        if "unknown device" in text or "unresolvable CDI devices" in text:
            return NotReadyError(f"{doing}: {text}", hint="list this machine's GPUs: nvidia-smi -L")
        return StepError(f"{doing}: {text}", hint=limits_hint(text))

    return sdk.errors(refused=refused)
