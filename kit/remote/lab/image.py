"""The image of a lab host: its content from images/lab, and its build on this machine's engine."""

from __future__ import annotations

import io
import json
import re
import tarfile
from typing import Any

import docker.errors

from kit.errors import ImageError
from kit.events import HostDone, HostStep, Reporter
from kit.model.image import ImageContent
from kit.remote.machine.assets import images_dir

BASE = "debian:trixie-slim"
_STEP = re.compile(r"^Step (\d+)/(\d+) : (\w+)")


def content() -> ImageContent:
    folder = images_dir() / "lab"
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    if "Dockerfile" not in files:
        raise ImageError(f"{folder} has no Dockerfile", hint="This installation of kit is not whole: install it again.")
    return ImageContent(
        repository="kit-lab", flavour="trixie", files=files, executables=frozenset({"init", "link-rate"})
    )


def ensure(client: Any, image: ImageContent, reporter: Reporter) -> bool:
    """Builds the image unless the engine has it; True when it was built. Raises ImageError."""
    try:
        client.images.get(image.tag)
        return False
    except docker.errors.ImageNotFound:
        pass
    try:
        client.images.get(BASE)
    except docker.errors.ImageNotFound as error:
        raise ImageError(
            f"the lab's hosts are made from {BASE}, which this machine's engine does not have",
            hint="Run: scripts/base trixie",
        ) from error
    _build(client, image, reporter)
    return True


def _build(client: Any, image: ImageContent, reporter: Reporter) -> None:
    """By the engine's classic builder, which every engine has."""
    last: list[str] = []
    try:
        stream = client.api.build(
            fileobj=_context(image), custom_context=True, tag=image.tag, rm=True, forcerm=True, decode=True
        )
        for message in stream:
            text = str(message.get("stream", "")).strip()
            if step := _STEP.match(text):
                done, total = int(step[1]) - 1, int(step[2])
                reporter.report(HostStep(host="lab image", text=f"step {step[1]} of {total}", fraction=done / total))
            elif text:
                last = [*last[-9:], text]
            if "error" in message:
                tail = "\n".join(last)
                raise ImageError(
                    f"the lab host's image cannot be built: {str(message['error']).strip()}\n{tail}",
                    hint="The build installs Debian packages: can this machine reach a Debian mirror?",
                )
    except (docker.errors.DockerException, json.JSONDecodeError) as error:
        raise ImageError(f"the lab host's image cannot be built: {error}") from error
    reporter.report(HostDone(host="lab image", text=f"built {image.tag}"))


def _context(image: ImageContent) -> io.BytesIO:
    """The build context as a tar with no times or owners, so that equal content is equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(image.files):
            entry = tarfile.TarInfo(path)
            entry.size = len(image.files[path])
            entry.mode = 0o755 if path in image.executables else 0o644
            archive.addfile(entry, io.BytesIO(image.files[path]))
    buffer.seek(0)
    return buffer
