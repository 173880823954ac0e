"""One command in a fresh container on this machine's engine: its lines as they come, its exit code, nothing left."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import DeviceRequest, Ulimit
from requests.exceptions import RequestException

from kit.errors import Interrupted, NotReadyError, StepError, UnreachableError
from kit.events import OutputLine, Reporter, Stream, Warned
from kit.model.local import LocalContainer
from kit.remote.engine.hiccups import insist

# mpirun --tag-output: `[1,3]<stdout>:text` is a line of rank 3.
TAG = re.compile(rb"^\[\d+,(\d+)\]<(?:stdout|stderr|stddiag)>:")
LABEL = "kit.local"
STOP_S = 5


class LocalEngine:
    """This machine's Docker Engine (or the one that DOCKER_HOST names). Raises UnreachableError if none answers."""

    def __init__(self) -> None:
        with _ours("the Docker Engine of this machine does not answer"):
            self._client = docker.from_env()
            self._has_gpus = "nvidia" in self._client.info().get("Runtimes", {})

    def close(self) -> None:
        self._client.close()

    def has_image(self, tag: str) -> bool:
        with _ours(f"cannot look for the image {tag}"):
            try:
                self._client.images.get(tag)
            except ImageNotFound:
                return False
            return True

    def run(self, container: LocalContainer, reporter: Reporter, *, tagged: bool = False) -> int:
        """Run it to its end; returns the exit code. Ctrl-C stops it and raises Interrupted. It is always removed.

        `tagged`: mpirun begins each line with its rank, which becomes the line's source.
        """
        name = f"kit-local-{uuid.uuid4().hex[:12]}"
        try:
            with _ours("the container cannot be run"):
                return self._run(name, container, reporter, tagged)
        except KeyboardInterrupt:
            self._end(name)
            raise Interrupted("the command was stopped, and its container is gone") from None
        finally:
            self._end(name)

    def _run(self, name: str, container: LocalContainer, reporter: Reporter, tagged: bool) -> int:
        made = self._client.containers.create(
            container.image,
            entrypoint=[container.argv[0]],
            command=list(container.argv[1:]),
            name=name,
            labels={LABEL: "1"},
            environment=dict(container.env),
            volumes=list(container.volumes),
            shm_size=container.shm_size,
            ulimits=[Ulimit(name=limit, soft=value, hard=value) for limit, value in container.ulimits.items()],
            device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])] if self._has_gpus else None,
            init=True,
        )

        def begun() -> Any:
            # Attached before the start, so that not even the first line is lost.
            output = self._client.api.attach(name, stream=True, stdout=True, stderr=True, demux=True)
            made.start()
            return output

        for line in _lines(insist(begun), tagged=tagged):
            reporter.report(line)
        code = int(made.wait()["StatusCode"])
        made.reload()
        if made.attrs["State"].get("OOMKilled"):
            reporter.report(Warned(text="the container ran out of memory", hint="use fewer ranks or a smaller batch"))
        return code

    def _end(self, name: str) -> None:
        """Stop and remove it, whatever its state. A second Ctrl-C only makes it quicker."""
        for grace in (STOP_S, 0):
            try:
                found = self._client.containers.get(name)
                # By TERM first: mpirun then ends its ranks, and theirs.
                found.stop(timeout=grace)
                found.remove(force=True, v=True)
            except NotFound:
                return
            except (DockerException, RequestException, KeyboardInterrupt):
                continue
            return


def _lines(output: Any, *, tagged: bool) -> Iterator[OutputLine]:
    """Whole lines from the frames of both streams; what ends without a newline is a line, too."""
    rest: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
    for out, err in output:
        frames: tuple[tuple[Stream, bytes | None], ...] = (("stdout", out), ("stderr", err))
        for stream, data in frames:
            *whole, rest[stream] = (rest[stream] + (data or b"")).split(b"\n")
            yield from (_line(text, stream, tagged=tagged) for text in whole)
    yield from (_line(text, stream, tagged=tagged) for stream, text in rest.items() if text)


def _line(text: bytes, stream: Stream, *, tagged: bool) -> OutputLine:
    text, source = text.rstrip(b"\r"), ""
    if tagged and (match := TAG.match(text)):
        source, text = match[1].decode(), text[match.end() :]
    return OutputLine(text=text.decode(errors="replace"), stream=stream, source=source)


@contextlib.contextmanager
def _ours(what: str) -> Iterator[None]:
    """The SDK's errors as ours."""
    try:
        yield
    except ImageNotFound as error:
        raise NotReadyError(f"{what}: {error.explanation}", hint="run: kit image build") from error
    except APIError as error:
        text = " ".join(str(error.explanation or error).split())
        limits = "rlimit" in text or "ulimit" in text
        hint = "this engine may not raise limits: set ulimits.memlock to default in kit.yaml" if limits else None
        raise StepError(f"{what}: {text}", hint=hint) from error
    except (DockerException, RequestException) as error:
        raise UnreachableError(
            f"{what}: {' '.join(str(error).split())}",
            hint="start it (sudo systemctl start docker), or join the group docker",
        ) from error
