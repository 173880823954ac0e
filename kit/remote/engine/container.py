"""Runs one command in a fresh container on this machine's engine: prints lines as they come, and leaves nothing."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from docker.errors import DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, Ulimit
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
from kit.remote.run.lines import LONG, Lines, text_so_far

# mpirun --tag-output: `[1,3]<stdout>:text` is a line of rank 3.
TAG = re.compile(rb"^\[\d+,(\d+)\]<(?:stdout|stderr|stddiag)>:")
LABEL = "kit.local"
STOP_S = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    StatusCode: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    OOMKilled: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attributes:
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

        `tagged`: mpirun starts each line with its rank, which becomes the line's source.
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
        created = self._client.containers.create(
            container.image,
            entrypoint=[container.argv[0]],
            command=list(container.argv[1:]),
            name=name,
            labels={LABEL: "1"},
            environment=dict(container.env),
            volumes=list(container.volumes),
            shm_size=container.shm_size,
            ulimits=[Ulimit(name=limit, soft=value, hard=value) for limit, value in container.ulimits.items()],
            device_requests=device_requests(container.gpus),
            init=True,
            cap_drop=["ALL"],
            cap_add=list(container.capabilities),
            security_opt=list(container.security_options),
            pids_limit=container.pids or None,
        )

        def start() -> Any:
            # Attach before the start, so that not even the first line is lost.
            output = self._client.api.attach(name, stream=True, stdout=True, stderr=True, demux=True)
            created.start()
            return output

        for event in _events(insist(start), tagged=tagged):
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


def device_requests(gpus: LocalGpus | None) -> list[DeviceRequest] | None:
    """Return the engine's request for the GPUs."""
    if gpus is None:
        return None
    if gpus.driver == "cdi":
        devices = [f"{names.GPU_KIND}={name}" for name in gpus.names or ("all",)]
        return [DeviceRequest(driver="cdi", device_ids=devices, capabilities=[["gpu"]])]
    wish: dict[str, Any] = {"device_ids": list(gpus.names)} if gpus.names else {"count": gpus.count or -1}
    return [DeviceRequest(driver=gpus.driver, capabilities=[["gpu"]], **wish)]


def _events(output: Any, *, tagged: bool) -> Iterator[OutputLine | UnfinishedLine]:
    """Yield the lines of both streams as they come: whole lines, and how far unfinished ones are."""
    lines: Lines[Stream] = Lines()
    for out, err in output:
        frames: tuple[tuple[Stream, bytes | None], ...] = (("stdout", out), ("stderr", err))
        for stream, data in frames:
            for line in lines.feed(stream, data) if data else ():
                yield _line(line, stream, tagged=tagged)
        for stream, line, _ in lines.unfinished():
            source, text = _tag(line, tagged=tagged)
            if len(line) < LONG:
                yield UnfinishedLine(text=text_so_far(text), stream=stream, source=source)
    for stream, line in lines.end():
        yield _line(line, stream, tagged=tagged)


def _line(line: bytes, stream: Stream, *, tagged: bool) -> OutputLine:
    source, text = _tag(line, tagged=tagged)
    return OutputLine(text=text.decode(errors="replace"), stream=stream, source=source)


def _tag(line: bytes, *, tagged: bool) -> tuple[str, bytes]:
    """Return the rank that mpirun put before a line, or '', and the rest of the line."""
    match = TAG.match(line) if tagged else None
    return (match[1].decode(), line[match.end() :]) if match else ("", line)


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
