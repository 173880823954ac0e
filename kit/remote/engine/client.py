"""An engine, through the docker SDK: which images it has, and building one with its progress.

This machine's, or the one of a VM.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kit.errors import ImageError, UnreachableError
from kit.model.host import Login
from kit.model.image import ImageContent
from kit.remote.engine.hiccups import nothing_began, persistently
from kit.remote.ssh.refusals import dropped, dropped_error

_STEP = re.compile(r"^Step (\d+)/(\d+) : (.*)", re.DOTALL)
_RUNNING = re.compile(r"^ ---> Running in ([0-9a-f]{12,64})")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TLS = re.compile(
    r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|unable to get local issuer|x509: ", re.IGNORECASE
)
_DEBIAN = re.compile(r"^debian:([a-z]+)-slim$")
_LAST_LINES = 20

TLS_HINT = (
    "the server's certificate is not trusted inside the build, as behind a proxy that intercepts TLS: "
    "give the CA that this machine should trust, SSL_CERT_FILE=/path/to/ca.pem kit image build"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildStep:
    """Step `number` of `total` of a build, and its instruction on one line."""

    number: int
    total: int
    instruction: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineImage:
    """An image on this engine: `image_id` is sha256:…, the size all its layers', `arch` as engines say it (amd64).

    `ships_as` is the id that it has where it was shipped to.
    """

    image_id: str
    size_bytes: int
    arch: str = ""
    ships_as: str = ""


class Engine:
    """One engine, of `host` or of this machine (None).

    Methods raise UnreachableError when it does not answer and ImageError when it refuses.
    """

    def __init__(self, client: Any, host: str | None = None) -> None:
        self._client = client
        self.host = host

    @classmethod
    def connect(cls) -> Engine:
        """The engine that DOCKER_HOST names, or the local socket's."""
        import docker  # noqa: PLC0415  (half a second, and only verbs with an engine need it)

        with cls(None).errors():
            return cls(docker.from_env(timeout=600))

    @classmethod
    def over_ssh(cls, login: Login) -> Engine:
        """The engine of a VM. This machine's is not asked, and need not be there."""
        from kit.remote.engine.over_ssh import SshEngine  # noqa: PLC0415  (the SDK)

        engine = cls(SshEngine(login), host=login.host)
        try:
            with engine.errors():
                engine._client.connect()
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def api(self) -> Any:
        """The SDK's own client, for use within `errors`."""
        return self._client.api

    def close(self) -> None:
        self._client.close()

    def image(self, name: str) -> EngineImage | None:
        """What `name` (tag or id) is here, or None when it is not."""
        from docker.errors import ImageNotFound  # noqa: PLC0415

        from kit.remote.ship.porter.archive import config_of  # noqa: PLC0415  (only here)

        with self.errors():
            try:
                facts = self._client.api.inspect_image(name)
            except ImageNotFound:
                return None
        return EngineImage(
            image_id=facts["Id"],
            size_bytes=int(facts["Size"]),
            arch=str(facts.get("Architecture") or ""),
            ships_as="sha256:" + hashlib.sha256(config_of(facts)).hexdigest(),
        )

    def pull(self, name: str) -> None:
        """Pulls `name`. ImageError says how else to get it."""
        from docker.utils import parse_repository_tag  # noqa: PLC0415

        try:
            with self.errors():
                repository, tag = parse_repository_tag(name)
                for message in self.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
                    if "error" in message:
                        raise ImageError(str(message["error"]).strip())
        except ImageError as error:
            debian = _DEBIAN.match(name)
            where = "on this machine"
            hint = f"pull it where a registry answers, and bring it here: docker save {name} | docker load"
            if self.host is not None:
                where = "there"
                hint = f"bring it from a machine that has it: docker save {name} | kit ssh {self.host} -- docker load"
            elif debian:
                hint = f"make it from Debian's packages: scripts/base {debian[1]}"
            raise ImageError(
                f"the base image {name} is not {where} and cannot be pulled: {error.message}", hint=hint, host=self.host
            ) from error

    def build(
        self,
        content: ImageContent,
        *,
        beside: Mapping[str, bytes],
        arguments: Mapping[str, str],
        on_step: Callable[[BuildStep], None],
        fresh: bool = False,
    ) -> EngineImage:
        """Builds and tags `content`. `beside` are files of the context that are not part of the content.

        `fresh` builds every step anew. Whatever ends it early (Ctrl-C, too), no container of the build stays.
        """
        context = _context({**content.files, **beside}, content.executables)
        # Where a step did not begin, the steps before it are known the next time.
        progress = persistently(
            lambda: self._built(content, context, arguments, on_step, fresh=fresh),
            lambda ended: nothing_began(ended.error or ""),
        )
        if progress.error is not None:
            failure = progress.failure()
            failure.host = self.host
            raise failure
        built = self.image(content.tag)
        if built is None:
            raise ImageError(
                f"the engine said that it built {content.tag}, and does not have it", hint="build it again"
            )
        return built

    def _built(
        self,
        content: ImageContent,
        context: io.BytesIO,
        arguments: Mapping[str, str],
        on_step: Callable[[BuildStep], None],
        *,
        fresh: bool,
    ) -> _Progress:
        """How a build went, to its end."""
        progress = _Progress(on_step)
        context.seek(0)
        with self.errors():
            stream = self._client.api.build(
                fileobj=context,
                custom_context=True,
                tag=content.tag,
                rm=True,
                forcerm=True,
                nocache=fresh,
                buildargs=dict(arguments),
                decode=True,
            )
            try:
                for message in stream:
                    progress.take(message)
            except BaseException:
                stream.close()
                self._remove(progress.container)
                raise
        return progress

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """The SDK's exceptions, in kit's words."""
        import requests  # noqa: PLC0415
        import urllib3  # noqa: PLC0415
        from docker.errors import APIError, DockerException, StreamParseError  # noqa: PLC0415

        # The last three are those of messages that break off in the middle, which the SDK passes on as they come.
        broken = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, StreamParseError, ConnectionError)
        try:
            yield
        except APIError as error:
            raise ImageError(f"the engine refuses: {error.explanation or error}", host=self.host) from error
        except (DockerException, *broken) as error:
            raise self._silent(error) from error

    def _silent(self, error: Exception) -> UnreachableError:
        if self.host is None:
            return UnreachableError(
                f"no Docker Engine answers on this machine: {error}",
                hint="start it (sudo systemctl start docker, or scripts/engine), or set DOCKER_HOST",
            )
        said = self._client.said.splitlines()
        if dropped("\n".join(said)):
            return dropped_error("its sshd", said[0], self.host)
        return UnreachableError(
            f"its engine does not answer: {said[-1] if said else error}",
            hint=f"try: kit ssh {self.host} -- docker info",
            host=self.host,
        )

    def _remove(self, container: str | None) -> None:
        from docker.errors import DockerException  # noqa: PLC0415

        if container is not None:
            # The engine ends the build itself when we hang up; whoever comes second finds nothing.
            with contextlib.suppress(DockerException, OSError):
                self._client.api.remove_container(container, force=True)


class _Progress:
    """Reads an engine's build messages: the step, the container at work, the last lines and the error."""

    def __init__(self, on_step: Callable[[BuildStep], None]) -> None:
        self._on_step = on_step
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._step: BuildStep | None = None
        self.container: str | None = None
        self.error: str | None = None

    def take(self, message: Mapping[str, Any]) -> None:
        if "error" in message:
            self.error = str(message["error"]).strip()
            return
        text = _COLOUR.sub("", str(message.get("stream", "")))
        if step := _STEP.match(text):
            self._step = BuildStep(number=int(step[1]), total=int(step[2]), instruction=" ".join(step[3].split()))
            self._lines.clear()
            self.container = None
            self._on_step(self._step)
        elif running := _RUNNING.match(text):
            self.container = running[1]
        elif not text.startswith((" ---> ", "Removing intermediate container")):
            self._lines.extend(line.rstrip() for line in text.splitlines() if line.strip())

    def failure(self) -> ImageError:
        """The step, the engine's words and the last lines, with the next step for the causes that we know."""
        step = self._step
        where = f"at step {step.number}/{step.total} ({_short(step.instruction)})" if step else "before its first step"
        # The engine repeats the whole instruction in its error, and then says what happened.
        code = re.search(r"returned a non-zero code: (\d+)$", self.error or "")
        said = f"exit code {code[1]}" if code else self.error
        lines = "".join(f"\n  {line}" for line in self._lines)
        everything = "\n".join((*self._lines, str(said)))
        hint = "the lines above are the step's last; mend what they name and build again"
        if _TLS.search(everything):
            hint = TLS_HINT
        elif "No space left on device" in everything:
            hint = "the engine's disk is full: docker system df, then docker image prune"
        elif re.search(r"Temporary failure (in name )?resol|Could not resolve|Network is unreachable", everything):
            hint = "the build has no way out: set http_proxy and https_proxy if this network needs a proxy"
        return ImageError(f"the image cannot be built, {where}: {said}{lines}", hint=hint)


def _short(instruction: str, width: int = 60) -> str:
    return instruction if len(instruction) <= width else instruction[: width - 1] + "…"


def _context(files: Mapping[str, bytes], executables: frozenset[str]) -> io.BytesIO:
    """A tar of the files that is the same for the same bytes, so that the engine finds its cached steps again."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(files):
            entry = tarfile.TarInfo(path)
            entry.size = len(files[path])
            entry.mode = 0o755 if path in executables else 0o644
            tar.addfile(entry, io.BytesIO(files[path]))
    buffer.seek(0)
    return buffer
