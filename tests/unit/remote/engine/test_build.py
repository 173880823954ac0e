from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from kit.errors import ImageError
from kit.model.image import HashedFile, ImageContent
from kit.remote.engine import sdk
from kit.remote.engine.build import BuildStep
from kit.remote.engine.client import Engine

CONTENT = ImageContent(
    repository="kit", flavour="cpu", files={"Dockerfile": b"FROM x\n", "bin/a": b"#!"}, executables=frozenset({"bin/a"})
)


class Api:
    """The part of the SDK's low-level client that a build uses, playing one stream of messages."""

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages
        self.removed: list[str] = []
        self.context: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.arguments: dict[str, str] = {}

    def build(self, *, fileobj: Any, buildargs: dict[str, str], **_: Any) -> Iterator[Any]:
        self.arguments = buildargs
        with tarfile.open(fileobj=fileobj) as tar:
            entries = list(tar)
        self.context = {entry.name: entry.mode for entry in entries}
        self.sizes = {entry.name: entry.size for entry in entries}
        for message in self.messages:
            if isinstance(message, BaseException):
                raise message
            yield message

    def inspect_image(self, name: str) -> dict[str, Any]:
        return {"Id": f"sha256:of-{name}", "Size": 7}

    def remove_container(self, container: str, *, force: bool) -> None:
        self.removed.append(container)


class Client:
    def __init__(self, api: Api) -> None:
        self.api = api


def build(api: Api, steps: list[BuildStep] | None = None) -> object:
    on_step = (steps if steps is not None else []).append
    return Engine(Client(api)).build(CONTENT, beside={"ca/extra.pem": b""}, arguments={}, on_step=on_step)


def stream(text: str) -> dict[str, str]:
    return {"stream": text}


def test_steps_are_reported_as_they_come() -> None:
    steps: list[BuildStep] = []
    api = Api([stream("Step 1/2 : FROM x\n"), stream(" ---> 0123456789ab\n"), stream("Step 2/2 : RUN a \\\n  b\n")])
    build(api, steps)
    assert steps == [
        BuildStep(number=1, total=2, instruction="FROM x"),
        BuildStep(number=2, total=2, instruction="RUN a \\ b"),
    ]
    assert api.context == {"Dockerfile": 0o644, "bin/a": 0o755, "ca/extra.pem": 0o644}


@pytest.mark.parametrize("proxies", [{}, {"https_proxy": "http://p:1"}, {"ftp_proxy": "http://p:1"}], ids=str)
def test_a_build_always_has_a_proxy_even_if_an_empty_one(proxies: dict[str, str]) -> None:
    """Otherwise a network with a proxy and one without would not share cached steps."""
    api = Api([])
    Engine(Client(api)).build(CONTENT, beside={}, arguments=proxies, on_step=lambda _: None)
    assert api.arguments == {"ftp_proxy": "", **proxies}


def test_a_failure_has_the_step_the_last_lines_and_a_next_step() -> None:
    noise = [stream(f"line {number}\n") for number in range(40)]
    api = Api(
        [
            stream("Step 3/9 : RUN pip install x\n"),
            *noise,
            stream("\x1b[91mSSLError(CERTIFICATE_VERIFY_FAILED)\x1b[0m\n"),
            {"error": "The command '/bin/sh -c pip install x' returned a non-zero code: 1"},
        ]
    )
    with pytest.raises(ImageError) as caught:
        build(api)
    assert "3/9 (RUN pip install x)" in caught.value.message
    assert "exit code 1" in caught.value.message
    assert "line 39" in caught.value.message
    assert "line 20\n" not in caught.value.message
    assert "\x1b" not in caught.value.message
    assert "SSL_CERT_FILE" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ERROR: Invalid requirement: 'a b': x (from line 7 of /kit/requirements.txt)", "correct line 7 of the file"),
        (
            "ERROR: Invalid requirement: 'a b' (from line 7 of /opt/kit/etc/requirements.txt)",
            "correct line 7 of the file",
        ),
        ("ERROR: No matching distribution found for nosuch==9", "check the name and version of nosuch==9 in image.pip"),
        ("ERROR: ResolutionImpossible: for help visit", "another version of one that kit locks"),
        (
            "WARNING: Retrying: Temporary failure in name resolution\n"
            "ERROR: No matching distribution found for torch==2.13.0+cpu",
            "below image: write wheels: wheels; on a machine that reaches it: pip download --no-deps --dest wheels "
            "--python-version 3.11 --index-url https://download.pytorch.org/whl/cpu torch==2.13.0",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "that image.wheels names"),
        ("/usr/bin/python3: No module named pip", "packages: [python3-pip]"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\"HTTPS(host='p'): "
            "Failed to establish a new connection: [Errno 111] Connection refused\")': /simple/x/\n"
            "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: none)\n"
            "ERROR: No matching distribution found for x==9",
            "the build does not reach the network",
        ),
        ("ERROR: Cannot find command 'git' - do you have 'git' installed", "the build has no git"),
    ],
)
def test_what_pip_refuses_has_its_own_next_step(line: str, hint: str) -> None:
    api = Api([stream("Step 9/9 : RUN pip install\n"), stream(f"{line}\n"), {"error": "returned a non-zero code: 1"}])
    with pytest.raises(ImageError) as caught:
        build(api)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("E: Unable to locate package htopp", "knows no such package: correct htopp in image.packages"),
        ("E: Package 'htopp' has no installation candidate", "correct htopp in image.packages"),
        ("E: Version '9' for 'htop' was not found", "correct htop in image.packages"),
        # apt-get update only warns. All packages are missing after that.
        (
            "W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Could not connect to "
            "deb.debian.org:80 (1.2.3.4), connection timed out\nE: Unable to locate package openssh-server",
            "reaches a Debian mirror",
        ),
    ],
)
def test_what_apt_refuses_has_its_own_next_step(lines: str, hint: str) -> None:
    api = Api([stream("Step 9/9 : RUN apt-get\n"), stream(f"{lines}\n"), {"error": "returned a non-zero code: 100"}])
    with pytest.raises(ImageError) as caught:
        build(api)
    assert hint in str(caught.value.hint)


def test_what_a_program_of_the_build_advises_is_the_next_step() -> None:
    output = "ssh-layer: the base has neither python3 nor mpirun in its PATH\n\u2192 use a base that has them\n"
    api = Api([stream("Step 9/9 : RUN sh prepare\n"), stream(output), {"error": "returned a non-zero code: 1"}])
    with pytest.raises(ImageError) as caught:
        build(api)
    assert caught.value.message.endswith("\n  ssh-layer: the base has neither python3 nor mpirun in its PATH")
    assert caught.value.hint == "use a base that has them"


@pytest.mark.parametrize("host", [None, "gpu1"])
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", "the engine's disk is full: {sudo}docker system df"),
        ("invalid mount config", "look at the engine's log ({sudo}journalctl -u docker), and run the command again"),
    ],
)
def test_what_an_engine_refuses_has_a_next_step(host: str | None, words: str, hint: str) -> None:
    refused = docker.errors.APIError("x", response=SimpleNamespace(status_code=500), explanation=words)  # type: ignore[arg-type]
    with pytest.raises(ImageError, match=words) as caught:
        Engine(Client(Api([refused])), host=host).build(CONTENT, beside={}, arguments={}, on_step=lambda _: None)
    assert str(caught.value.hint).startswith(hint.format(sudo="kit ssh gpu1 -- sudo " if host else ""))


def test_a_build_on_a_full_disk_names_the_host() -> None:
    api = Api([stream("Step 1/2 : RUN x\n"), {"error": "write /x: no space left on device"}])
    with pytest.raises(ImageError) as caught:
        Engine(Client(api), host="gpu1").build(CONTENT, beside={}, arguments={}, on_step=lambda _: None)
    assert "kit ssh gpu1 -- sudo docker system df" in str(caught.value.hint)


def test_ctrl_c_removes_the_container_at_work() -> None:
    api = Api(
        [
            stream("Step 1/3 : RUN a\n"),
            stream(" ---> Running in aaaaaaaaaaaa\n"),
            stream("Step 2/3 : RUN b\n"),
            stream(" ---> Running in bbbbbbbbbbbb\n"),
            KeyboardInterrupt(),
        ]
    )
    with pytest.raises(KeyboardInterrupt):
        build(api)
    assert api.removed == ["bbbbbbbbbbbb"]


def test_a_step_that_the_runtime_never_began_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.remote.engine.hiccups.PAUSE_S", 0.0)
    reset = "OCI runtime create failed: runc create failed: read init-p: connection reset by peer"
    api = Api([stream("Step 1/1 : RUN a\n"), {"error": f"failed to create shim task: {reset}: unknown"}])
    builds = []

    def tell(step: BuildStep) -> None:
        builds.append(step)
        if len(builds) == 2:
            api.messages.pop()

    assert Engine(Client(api)).build(CONTENT, beside={}, arguments={}, on_step=tell)
    assert len(builds) == 2


def test_a_large_file_beside_the_content_comes_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.remote.engine.build._IN_MEMORY", 1000)
    wheel = tmp_path / "mine.whl"
    wheel.write_bytes(bytes(range(256)) * 100)
    api = Api([])
    beside: dict[str, bytes | HashedFile] = {"wheels/extra/mine.whl": hashed(wheel)}
    assert Engine(Client(api)).build(CONTENT, beside=beside, arguments={}, on_step=lambda _: None)
    assert api.sizes["wheels/extra/mine.whl"] == 25600
    assert api.context["wheels/extra/mine.whl"] == 0o644


def hashed(wheel: Path) -> HashedFile:
    return HashedFile(path=wheel, digest=hashlib.sha256(wheel.read_bytes() if wheel.exists() else b"").hexdigest())


def build_with_wheel(wheel: Path, file: HashedFile | None = None) -> None:
    beside: dict[str, bytes | HashedFile] = {"wheels/extra/mine.whl": file or hashed(wheel)}
    Engine(Client(Api([]))).build(CONTENT, beside=beside, arguments={}, on_step=lambda _: None)


def test_a_disk_without_room_for_the_context_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[object] = []

    def full(**options: object) -> None:
        folders.append(options["dir"])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("kit.remote.engine.build._IN_MEMORY", 1000)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    wheel = tmp_path / "mine.whl"
    wheel.write_bytes(b"x" * 10_000)
    with pytest.raises(ImageError) as caught:
        build_with_wheel(wheel)
    assert caught.value.message == f"the files of the build cannot be copied to {tmp_path}: No space left on device"
    assert "TMPDIR" in str(caught.value.hint)
    assert folders == [str(tmp_path)]


@pytest.mark.parametrize("later", [b"b" * 100, b"a" * 101, b"a" * 99, b""])
def test_a_wheel_that_changed_since_the_tag_was_computed_is_named(tmp_path: Path, later: bytes) -> None:
    wheel = tmp_path / "mine.whl"
    wheel.write_bytes(b"a" * 100)
    before = hashed(wheel)
    wheel.write_bytes(later)
    with pytest.raises(ImageError, match=rf"{wheel} changed while kit prepared the build") as caught:
        build_with_wheel(wheel, before)
    assert caught.value.hint == "build again: kit image build"


def test_a_wheel_that_becomes_shorter_as_it_is_copied_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "mine.whl"
    wheel.write_bytes(b"a" * 1_000_000)
    before = hashed(wheel)
    add = tarfile.TarFile.addfile

    def late(tar: tarfile.TarFile, entry: tarfile.TarInfo, source: Any) -> None:
        if entry.name.endswith("mine.whl"):
            os.truncate(wheel, 500_000)
        add(tar, entry, source)

    monkeypatch.setattr(tarfile.TarFile, "addfile", late)
    with pytest.raises(ImageError, match=rf"{wheel} changed while kit prepared the build"):
        build_with_wheel(wheel, before)


def test_a_wheel_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=rf"{tmp_path}/mine\.whl: No such file or directory$"):
        build_with_wheel(tmp_path / "mine.whl")


def test_a_build_asks_no_credential_helper_and_sends_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that Docker Desktop left, and a helper that fails, have nothing to do with kit."""
    auths = {"r.example.com": {"auth": base64.b64encode(b"ann:s3cret").decode()}}
    config = {"auths": auths, "credsStore": "desktop", "credHelpers": {"gcr.io": "gcloud"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setattr(docker.APIClient, "_retrieve_server_version", lambda api: "1.45")
    client = sdk.connect()
    headers: list[Any] = []

    def post(url: str, **options: Any) -> None:
        headers.append(options["headers"])
        raise KeyboardInterrupt

    monkeypatch.setattr(client.api, "_post", post)
    with pytest.raises(KeyboardInterrupt):
        Engine(client).build(CONTENT, beside={}, arguments={}, on_step=lambda _: None)
    assert [set(one) for one in headers] == [{"Content-Type"}]


def test_a_failure_shows_no_login() -> None:
    messages = [stream("Step 3/9 : RUN pip install https://ann:s3cret@h/x\n"), stream("from https://s3cret@h/x\n")]
    with pytest.raises(ImageError) as caught:
        build(Api([*messages, {"error": "odd: https://ann:s3cret@h/x"}]))
    assert "s3cret" not in f"{caught.value.message}{caught.value.hint}"
    assert "from https://…@h/x" in caught.value.message
