"""A build by an engine's classic builder, which every engine has: its context, its messages, why it failed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from kit.errors import ImageError
from kit.model.image import HashedFile, ImageContent
from kit.model.logins import without_logins
from kit.remote.engine import sdk
from kit.remote.engine.events import MOST_TEXT, events, failure
from kit.remote.engine.events import text as text_of
from kit.remote.machine.scratch import FREE_IT, scratch_folder

_STEP = re.compile(r"Step ([0-9]{1,6})/([0-9]{1,6}) : (.*)", re.DOTALL)
_RUNNING = re.compile(r" ---> Running in ([0-9a-f]{12,64})")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_LAST_LINES = 20
# The builder caches a step of a build that has any proxy apart from the same step without one, whatever the proxies
# are. So every build has one. Nothing of a build uses FTP.
_ALWAYS = {"ftp_proxy": ""}
_IN_MEMORY = 16 << 20

TLS_HINT = (
    "the build does not trust the server's certificate, as behind a proxy that intercepts TLS; "
    "give it the CA that this machine trusts: SSL_CERT_FILE=/path/to/ca.pem kit image build"
)
# The first pattern in a step's last lines decides the hint.
_HINTS = (
    (r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|unable to get local issuer|x509: ", TLS_HINT),
    (
        r"No matching distribution found for torch==(\S+)\+cpu",
        r"the build does not reach PyTorch's index. Put the wheel into the folder wheels beside kit.yaml, and below "
        r"image: write wheels: wheels; on a machine that reaches it: pip download --no-deps --dest wheels "
        r"--python-version 3.11 --index-url https://download.pytorch.org/whl/cpu torch==\1",
    ),
    (
        r"DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
        "a wheel differs from the one that kit locks: check the folder that image.wheels names",
    ),
    (r"No space left on device", sdk.disk_full()),
    (
        # pip retries a broken connection. If one try succeeds, it knows at least one version.
        r"Temporary failure (in name )?resol|Could not resolve|Network is unreachable|"
        r"after connection broken by(?s:.*)\(from versions: none\)",
        "the build does not reach the network: set http_proxy and https_proxy if yours needs a proxy, or correct them; "
        "if it may reach only a mirror, name a base that knows it: docs/image.md, From a mirror",
    ),
    (
        r"(?:Invalid|ERROR:).*\(from line (\d+) of /\S*requirements\.txt\)",
        r"correct line \1 of the file that requirements: in kit.yaml names",
    ),
    (
        r"No matching distribution found for (\S+)",
        r"check the name and version of \1 in image.pip and in the file that requirements: names; if kit.yaml does not "
        r"name it, the index of Python packages that the build asks does not have it",
    ),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "a package requires another version of one that kit locks; choose another version of the package",
    ),
    (r"No module named pip\b", "the base's python3 has no pip: below image:, write packages: [python3-pip]"),
    (
        r"Cannot find command 'git'",
        "the build has no git: write NAME @ https://…/archive/REF.tar.gz instead of git+https",
    ),
    (
        r"[EW]: (Failed to fetch|Unable to fetch)",
        "check that the engine's machine reaches a Debian mirror; for one of your own: docs/image.md, From a mirror",
    ),
    (
        r"E: (?:Unable to locate package|Package '(?=.*has no installation candidate)|Version '.*' for ')\s?([^\s']+)",
        r"the base's apt knows no such package: correct \1 in image.packages, or use a base whose apt has it",
    ),
)
_ADVICE = "→ "
_ANY_HINT = "the lines above are the last of that step; fix what they name, and build again"


class BuildStep(Struct, frozen=True, kw_only=True):
    """Step `number` of `total` of a build, and its instruction on one line."""

    number: int
    total: int
    instruction: str


OnStep = Callable[[BuildStep], None]


class Outcome(Struct, frozen=True, kw_only=True):
    """How a build ended. `error` is None if the image was built; `lines` are the last step's last lines."""

    error: str | None
    step: BuildStep | None
    lines: tuple[str, ...]

    def failure(self, host: str | None) -> ImageError:
        """Return the error with the step, the engine's words, the step's last lines, and what to do."""
        step = self.step
        where = f"at step {step.number}/{step.total} ({_short(step.instruction)})" if step else "before its first step"
        # The engine repeats the whole instruction in its error, and then says what happened.
        code = re.search(r"returned a non-zero code: (\d+)$", self.error or "")
        reason = f"exit code {code[1]}" if code else self.error
        # kit's own programs of a build end with what to do (images/layer/prepare).
        advice = self.lines[-1].removeprefix(_ADVICE) if self.lines and self.lines[-1].startswith(_ADVICE) else None
        lines = "".join(f"\n  {line}" for line in self.lines[: None if advice is None else -1])
        text = "\n".join((*self.lines, str(reason)))
        matches = ((re.search(pattern, text, re.IGNORECASE), hint) for pattern, hint in _HINTS)
        hint = next((match.expand(hint) for match, hint in matches if match), advice or _ANY_HINT)
        if hint == sdk.disk_full():
            hint = sdk.disk_full(host)
        message = f"the image cannot be built, {where}: {reason}{lines}"
        return ImageError(without_logins(message), hint=without_logins(hint), host=host)


def build(
    api: Any,
    content: ImageContent,
    *,
    beside: Mapping[str, bytes | HashedFile],
    arguments: Mapping[str, str],
    on_step: OnStep,
    fresh: bool,
) -> Outcome:
    """Build and tag `content` with the SDK's `api`; `beside` are files of the context that are not part of it.

    `fresh` ignores the engine's cache. Whatever ends the build early, Ctrl-C too, removes its container. Raises
    ImageError if this machine has no room for the context.
    """
    progress = _Progress(on_step)
    context = _packed({**content.files, **beside}, content.executables)
    messages = api.build(
        fileobj=context,
        custom_context=True,
        tag=content.tag,
        rm=True,
        forcerm=True,
        nocache=fresh,
        buildargs={**_ALWAYS, **arguments},
        decode=True,
    )
    try:
        for message in events(messages):
            progress.take(message)
    except BaseException:
        messages.close()
        _remove(api, progress.container)
        raise
    finally:
        context.close()
    return progress.outcome()


def _remove(api: Any, container: str | None) -> None:
    from docker.errors import DockerException  # noqa: PLC0415

    if container is not None:
        # The engine removes it too when we hang up. Then there is nothing left to remove, which is no error.
        with contextlib.suppress(DockerException, OSError):
            api.remove_container(container, force=True)


class _Progress:
    """Read an engine's build messages: the step, the container at work, the last lines and the error."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._step: BuildStep | None = None
        self._error: str | None = None
        self.container: str | None = None

    def take(self, message: Mapping[str, Any]) -> None:
        error = failure(message)
        if error is not None:
            self._error = error
            return
        text = _COLOR.sub("", text_of(message, "stream"))
        if step := _STEP.match(text):
            self._step = BuildStep(
                number=int(step[1]), total=int(step[2]), instruction=" ".join(step[3][:MOST_TEXT].split())
            )
            self._lines.clear()
            self.container = None
            self._on_step(self._step)
        elif running := _RUNNING.match(text):
            self.container = running[1]
        elif not text.startswith((" ---> ", "Removing intermediate container")):
            self._lines.extend(line[:MOST_TEXT].rstrip() for line in text.splitlines() if line.strip())

    def outcome(self) -> Outcome:
        return Outcome(error=self._error, step=self._step, lines=tuple(self._lines))


def _short(instruction: str, width: int = 60) -> str:
    return instruction if len(instruction) <= width else instruction[: width - 1] + "…"


def _packed(files: Mapping[str, bytes | HashedFile], executables: frozenset[str]) -> IO[bytes]:
    """Return the build context. Raises ImageError if it cannot be written on this machine."""
    folder = scratch_folder(os.environ)
    try:
        return _context(files, executables, folder)
    except OSError as error:
        which = f"{error.filename}: " if error.filename else ""
        raise ImageError(
            f"the files of the build cannot be copied to {folder}: {which}{error.strerror or error}", hint=FREE_IT
        ) from error


def _context(files: Mapping[str, bytes | HashedFile], executables: frozenset[str], folder: Path) -> IO[bytes]:
    """Return a tar of the files. Equal files give equal bytes, so that the engine finds its cached steps.

    Wheels may be larger than the memory, so they go from file to file.
    """
    buffer = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))  # noqa: SIM115
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(files):
            content = files[path]
            mode = 0o755 if path in executables else 0o644
            if isinstance(content, HashedFile):
                _add_hashed(tar, path, content, mode)
            else:
                _add(tar, path, io.BytesIO(content), mode)
    buffer.seek(0)
    return buffer


def _add(tar: tarfile.TarFile, path: str, source: IO[bytes], mode: int) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = source.seek(0, io.SEEK_END)
    source.seek(0)
    entry.mode = mode
    tar.addfile(entry, source)


def _add_hashed(tar: tarfile.TarFile, path: str, file: HashedFile, mode: int) -> None:
    """Add a file. Raises ImageError if the bytes that go into the tar do not have its digest."""
    changed = ImageError(f"{file.path} changed while kit prepared the build", hint="build again: kit image build")
    with file.path.open("rb", buffering=0) as raw, _Hashing(raw) as source:
        try:
            _add(tar, path, source, mode)
        except OSError as error:
            # An error without a number is that of tarfile: the file became shorter.
            if error.errno is None:
                raise changed from error
            raise
        if source.digest.hexdigest() != file.digest:
            raise changed


class _Hashing(io.BufferedReader):
    """A file with the digest of what was read of it."""

    def __init__(self, raw: io.FileIO) -> None:
        super().__init__(raw)
        self.digest = hashlib.sha256()

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.digest.update(data)
        return data
