"""The container that reads an image's package lists: what it may do, and what happens if its answer is odd."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from docker.errors import ImageNotFound

from kit.errors import AnswerError, ImageError
from kit.remote.engine import packages
from kit.remote.engine.client import Engine
from kit.remote.engine.packages import read_packages

TAG = "kit:cpu-0123456789ab"


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/shadow"
        tar.addfile(link)
    return buffer.getvalue()


class Api:
    """The SDK's low-level client with one image, whose container prints `output` in pieces."""

    stderr = ""

    def __init__(self, output: bytes, *, created: object = "2026-11-22T22:07:10.123456789Z") -> None:
        self.api = self
        self.output = output
        self.created = created
        self.config: object = {"Labels": {"kit.base.packages": "sha256:" + "ab" * 32}}
        self.container: object = {"Id": "c1"}
        # The second answer about the image, if it differs from the first.
        self.again: object = ...
        self.asked = 0
        self.calls: list[str] = []
        self.options: dict[str, Any] = {}

    def inspect_image(self, name: str) -> Any:
        if name not in {TAG, "sha256:1f"}:
            raise ImageNotFound(name)
        self.asked += 1
        if self.asked > 1 and self.again is not ...:
            return self.again
        return {"Id": "sha256:1f", "Size": 1, "Architecture": "amd64", "Created": self.created, "Config": self.config}

    def create_host_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, image: str, **options: Any) -> Any:
        self.options = {"image": image, **options}
        return self.container

    def attach(self, name: str, **more: Any) -> Iterator[tuple[bytes, None]]:
        self.calls.append(f"attach {name}")
        return ((self.output[at : at + 1000], None) for at in range(0, len(self.output), 1000))

    def start(self, name: str) -> None:
        self.calls.append(f"start {name}")

    def kill(self, name: str) -> None:
        self.calls.append(f"kill {name}")

    def remove_container(self, name: str, **more: Any) -> None:
        self.calls.append(f"remove {name} {more}")


def test_the_container_may_only_read() -> None:
    api = Api(archive(**{"var/lib/dpkg/status": b"Package: a\n"}))
    read = read_packages(Engine(api), TAG)
    assert read.files == {"var/lib/dpkg/status": b"Package: a\n"}
    assert (read.image_id, read.arch, read.created) == ("sha256:1f", "amd64", 1795385230.0)
    assert read.base_packages == "sha256:" + "ab" * 32
    limits = api.options["host_config"]
    assert limits["network_mode"] == "none"
    assert limits["read_only"] is True
    assert limits["cap_drop"] == ["ALL"]
    assert limits["security_opt"] == ["no-new-privileges"]
    assert (limits["pids_limit"], limits["mem_limit"]) == (64, 2**30)
    # The image that was looked up, whatever its tag means by now.
    assert api.options["image"] == "sha256:1f"
    assert api.options["entrypoint"] == ["/bin/sh"]
    assert api.calls == ["attach c1", "start c1", "remove c1 {'force': True, 'v': True}"]


def test_an_image_that_is_missing_is_an_error_with_the_next_step() -> None:
    with pytest.raises(ImageError, match="does not have the image") as caught:
        read_packages(Engine(Api(b"")), "kit:other")
    assert caught.value.hint == "build it: kit image build"


@pytest.mark.parametrize("output", [b"", b"sh: not found\n", b"\0" * 700, archive(a=b"x" * 3000)[:1200]])
def test_an_image_that_prints_something_else_is_an_error(output: bytes) -> None:
    api = Api(output)
    with pytest.raises(ImageError, match="printed no archive"):
        read_packages(Engine(api), TAG)
    assert api.calls[-1].startswith("remove c1")


def test_an_endless_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MOST_BYTES", 5000)
    api = Api(b"x" * 100_000)
    with pytest.raises(ImageError, match="MB of package lists"):
        read_packages(Engine(api), TAG)
    assert api.calls[-1].startswith("remove c1")


def test_an_image_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MOST_S", 0.05)

    class Slow(Api):
        def attach(self, name: str, **more: Any) -> Iterator[tuple[bytes, None]]:
            while f"kill {name}" not in self.calls:
                yield b"x", None

    api = Slow(b"")
    with pytest.raises(ImageError, match="did not list its packages within"):
        read_packages(Engine(api), TAG)
    assert "kill c1" in api.calls


def test_a_terabyte_of_zeros_is_not_read() -> None:
    entry = tarfile.TarInfo("var/lib/dpkg/status")
    entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(10**12)}
    entry.size = 512
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(entry, io.BytesIO(b"1\n0\n0\n".ljust(512, b"\0")))
        tar.addfile(tarfile.TarInfo("opt/kit/bin/a"))
    assert read_packages(Engine(Api(buffer.getvalue())), TAG).files == {"opt/kit/bin/a": b""}


@pytest.mark.parametrize("created", ["", "no time", None, "9999-99-99T00:00:00Z", "9999-12-31T23:59:61Z"])
def test_an_odd_time_is_1970(created: object) -> None:
    assert read_packages(Engine(Api(archive(a=b""), created=created)), TAG).created == 0.0


@pytest.mark.parametrize("config", [None, {}, {"Labels": None}, {"Labels": {"kit.base.packages": "\x1b]0;x"}}])
def test_an_odd_label_is_no_base(config: object) -> None:
    api = Api(archive(a=b""))
    api.config = config
    assert read_packages(Engine(api), TAG).base_packages == ""


@pytest.mark.parametrize(
    "facts",
    [
        None, [], "x", 7, {"Config": [1]}, {"Config": {"Labels": [1]}}, {"Config": {"Labels": {"a": 1}}},
        {"Config": 7}, {"Created": 5}, {"Created": ["2026"]},
    ],
    ids=range(10),
)  # fmt: skip
def test_odd_facts_are_that_engines_error(facts: object) -> None:
    api = Api(archive(a=b""))
    api.again = facts
    with pytest.raises(AnswerError, match="kit cannot read what its engine answers") as caught:
        read_packages(Engine(api, host="gpu1"), TAG)
    assert caught.value.host == "gpu1"
    assert "kit ssh gpu1" in str(caught.value.hint)
    assert api.calls == []


@pytest.mark.parametrize(
    "container",
    [None, [], {}, {"Id": 7}, {"Id": ""}, {"Id": "../../images/x"}, {"Id": "c\x1b]0;x"}, {"Id": "c" * 500}],
    ids=range(8),
)
def test_an_odd_answer_about_the_container_is_that_engines_error(container: object) -> None:
    api = Api(archive(a=b""))
    api.container = container
    with pytest.raises(AnswerError) as caught:
        read_packages(Engine(api, host="gpu1"), TAG)
    assert caught.value.host == "gpu1"
    assert "\x1b" not in caught.value.message
    assert api.calls == []
