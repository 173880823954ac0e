"""Reads the lists of packages in an image: one container without network, whose `find` and `tar` print them."""

from __future__ import annotations

import contextlib
import datetime
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from kit.errors import ImageError
from kit.model import names
from kit.model.answer import OddAnswer, convert
from kit.remote.engine.client import Engine
from kit.remote.engine.hiccups import insist

# An image of kit has 4 MB of lists.
MOST_BYTES = 256 * 2**20
MOST_S = 120.0
# scripts/base gives this label to a base that it makes. Images inherit it.
MADE_FROM = "kit.base.packages"

_ID = re.compile(r"[A-Za-z0-9]{1,128}", re.ASCII)
_PATHS = (
    "*.dist-info/METADATA",
    "*.dist-info/RECORD",
    "*.egg-info/PKG-INFO",
    f"{names.IMAGE_BIN}/*",
    f"{names.IMAGE_LIB}/*",
    "/usr/lib/os-release",
    "/usr/share/doc/*/copyright",
    "/var/lib/dpkg/info/*.md5sums",
    "/var/lib/dpkg/status",
)
_SCRIPT = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /dev \\) -prune -o -type f \\( "
    + " -o ".join(f"-path '{path}'" for path in _PATHS)
    + " \\) -print0 | tar -cf - --hard-dereference --null -T - 2>/dev/null"
)


class Packages(Struct, frozen=True, kw_only=True):
    """An image, and those of its files that name what it consists of, by their paths without the leading `/`.

    - `created` is in seconds since 1970.
    - `base_packages` is sha256:… of the packages from which scripts/base made the base, or '' for one of a registry.
    """

    image_id: str
    created: float
    arch: str
    files: dict[str, bytes]
    base_packages: str = ""


class _Config(Struct, frozen=True, kw_only=True):
    """What kit reads of an image's configuration."""

    Labels: dict[str, str] | None = None


class _Facts(Struct, frozen=True, kw_only=True):
    """What kit reads of an engine's answer about an image, beyond its ID. An image may have no time."""

    Created: str | None = None
    Config: _Config | None = None


class _Created(Struct, frozen=True, kw_only=True):
    """What kit reads of an engine's answer about a new container."""

    Id: str


def read_packages(engine: Engine, tag: str) -> Packages:
    """Return what the engine's image `tag` says about itself.

    Raises ImageError if the image is missing or cannot be read, and AnswerError for odd answers of the engine.

    The image's own programs do the reading, so the container may do nothing else: it has no network, no capabilities
    and nothing that it could write to.
    """
    image = engine.image(tag)
    if image is None:
        raise ImageError(
            f"the engine does not have the image {tag}", hint="build it: kit image build", host=engine.host
        )
    with engine.errors():
        facts: _Facts = convert(engine.api.inspect_image(image.image_id), _Facts)
        archive = _run(engine, image.image_id)
    try:
        files = dict(_files(archive))
    except (tarfile.TarError, EOFError, ValueError):
        files = {}
    if not files:
        raise _unreadable(engine, f"{tag} printed no archive of its package lists")
    labels = (facts.Config.Labels if facts.Config else None) or {}
    made_from = labels.get(MADE_FROM, "")
    return Packages(
        image_id=image.image_id,
        created=_seconds(facts.Created or ""),
        arch=image.arch,
        files=files,
        base_packages=made_from if re.fullmatch(r"sha256:[0-9a-f]{64}", made_from) else "",
    )


def _run(engine: Engine, image_id: str) -> bytes:
    """Return what the container prints, and remove the container. Raises OddAnswer."""
    api = engine.api
    limits = api.create_host_config(
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=64,
        mem_limit=2**30,
    )
    created = api.create_container(
        image_id, entrypoint=["/bin/sh"], command=["-c", _SCRIPT], user="root", host_config=limits
    )
    name = _container_id(created)
    overdue = threading.Event()

    def end() -> None:
        overdue.set()
        with contextlib.suppress(Exception):
            api.kill(name)

    limit = threading.Timer(MOST_S, end)
    limit.daemon = True
    try:

        def start() -> Any:
            output = api.attach(name, stream=True, stdout=True, stderr=False, demux=True)
            api.start(name)
            return output

        limit.start()
        archive = bytearray()
        for out, _ in insist(start):
            archive += out or b""
            if len(archive) > MOST_BYTES:
                raise _unreadable(engine, f"the image has more than {MOST_BYTES // 10**6} MB of package lists")
        if overdue.is_set():
            raise _unreadable(engine, f"the image did not list its packages within {MOST_S:.0f} s")
        return bytes(archive)
    finally:
        limit.cancel()
        api.remove_container(name, force=True, v=True)


def _container_id(created: object) -> str:
    """Return the ID in the engine's answer about a new container. It becomes a part of addresses. Raises OddAnswer."""
    container: _Created = convert(created, _Created)
    if not _ID.fullmatch(container.Id):
        raise OddAnswer("the ID of a container is odd", container.Id)
    return container.Id


def _unreadable(engine: Engine, what: str) -> ImageError:
    return ImageError(
        what,
        hint="the image needs sh, find and tar, which Debian and Ubuntu always have",
        host=engine.host,
    )


def _files(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the regular files of an archive. Nothing is written to a disk, so a path may be anything.

    A sparse file is left out: a few bytes of an archive could announce a terabyte of zeros.
    """
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as entries:
        for entry in entries:
            file = entries.extractfile(entry) if entry.isreg() and not entry.issparse() else None
            if file is not None:
                yield entry.name.lstrip("/"), file.read()


def _seconds(text: str) -> float:
    """Return `2026-11-22T10:11:12.123456789Z` as seconds since 1970, or 0 for another text."""
    try:
        time = datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0.0
    return time.replace(tzinfo=datetime.UTC).timestamp()
