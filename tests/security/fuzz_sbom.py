"""What an engine and an image answer to `kit image sbom`: facts, a new container, and an archive of package lists."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

from kit.cli.text.image import sbom as table
from kit.errors import AnswerError, ImageError
from kit.events import Silent
from kit.flows.image import sbom as flow
from kit.flows.image.content import content
from kit.model.spec import ClusterSpec, ImageSpec
from kit.remote.engine.client import Engine
from kit.remote.engine.packages import MADE_FROM
from tests.unit.plan.test_sbom import TREE

HOST = "bad"
# A flavor that does not depend on this machine's GPUs.
SPEC = ClusterSpec(image=ImageSpec(flavour="cpu"))
DIGEST = "sha256:" + "ab" * 32
ANSWERS: dict[str, Any] = {
    "image": {
        "Id": DIGEST, "Size": 1234567, "Architecture": "amd64", "Os": "linux", "Created": "2026-11-22T22:07:10.123Z",
        "Config": {"Labels": {MADE_FROM: DIGEST}}, "RootFS": {"Type": "layers", "Layers": [DIGEST]},
    },
    "container": {"Id": "cd" * 32, "Warnings": []},
    "files": {path: text.decode("latin-1") for path, text in TREE.items()},
}  # fmt: skip


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return what tar prints in an image that has these files, by their paths without the leading `/`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT, errors="surrogatepass") as tar:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"/{path}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


SAMPLES: tuple[bytes, ...] = (json.dumps(ANSWERS).encode(), archive(TREE))
# Rendering the image's definition takes longer than the rest. No answer changes it.
CONTENT = content(SPEC)


class _Api:
    """The SDK's low-level client of an engine with these answers."""

    stderr = ""

    def __init__(self, answers: Mapping[str, Any], printed: bytes) -> None:
        self.api = self
        self._answers, self._printed = answers, printed

    def inspect_image(self, name: str) -> Any:
        return self._answers["image"]

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, image: str, **options: Any) -> Any:
        return self._answers["container"]

    def attach(self, name: str, **more: Any) -> Iterator[tuple[bytes | None, None]]:
        yield None, None
        yield from ((self._printed[at : at + 100_000], None) for at in range(0, len(self._printed), 100_000))

    def start(self, name: str) -> None: ...

    def kill(self, name: str) -> None: ...

    def remove_container(self, name: str, **more: Any) -> None: ...


class _Inspected(_Api):
    """An engine whose second answer about the image is the odd one: kit asks twice."""

    def __init__(self, answers: Mapping[str, Any], printed: bytes) -> None:
        super().__init__(answers, printed)
        self._asked = 0

    def inspect_image(self, name: str) -> Any:
        self._asked += 1
        return super().inspect_image(name) if self._asked > 1 else ANSWERS["image"]


def read(answer: bytes) -> None:
    """List an image by answers in JSON. What is not JSON is the archive that the image prints."""
    answers, printed = _answers_in(answer)
    failure: AnswerError | ImageError | None = None
    for api in (_Api(answers, printed), _Inspected(answers, printed)):
        try:
            result = flow.list_image(Engine(api, host=HOST), CONTENT, Silent(), {})
        except (AnswerError, ImageError) as error:
            failure = error
            if error.host != HOST:
                raise AssertionError(f"the error does not name the host: {error.message[:100]}") from error
        else:
            table(result, "image.json")
            # As `save` and the terminal encode it.
            result.document.encode()
    if failure is not None:
        raise failure


def _answers_in(answer: bytes) -> tuple[Mapping[str, Any], bytes]:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return ANSWERS, answer
    if not isinstance(value, dict):
        return ANSWERS, answer
    files = value.get("files")
    if not isinstance(files, dict):
        return ANSWERS | value, b""
    return ANSWERS | value, archive({path: str(text).encode("utf-8", "replace") for path, text in files.items()})
