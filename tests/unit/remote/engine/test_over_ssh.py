"""The tunnel to a VM's engine, with an `ssh` in front that answers as an engine's socket does."""

from __future__ import annotations

import base64
import json
import sys
import textwrap
from pathlib import Path

import pytest

from kit.errors import AnswerError, UnreachableError
from kit.model.host import Login
from kit.model.plan import Pull
from kit.model.registry import RegistryLogin
from kit.model.secret import Secret
from kit.remote.engine import over_ssh, registry
from kit.remote.engine.client import Engine

LOGIN = Login(host="gpu1", address="10.0.0.1", user="ubuntu", port=2222, key=None, known_hosts=None)

SSH = """
import json, pathlib, sys
seen = pathlib.Path(__file__).with_name("seen")
with seen.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
print("kit-session", flush=True)
while True:
    words = sys.stdin.buffer.readline().split()
    if not words:
        break
    headers = []
    while (line := sys.stdin.buffer.readline().strip()):
        headers.append(line.decode())
    path = words[1].decode()
    if path == "/version":
        body = {"ApiVersion": "1.45"}
    elif "/images/create" in path:
        with seen.open("a") as file:
            file.write(json.dumps([h for h in headers if "auth" in h.lower()]) + "\\n")
        # A line, and then the end in the middle of a chunk, as when the VM goes away.
        chunk = b"20\\r\\n" + json.dumps({"status": "Pulling"}).encode()
        sys.stdout.buffer.write(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n" + chunk)
        sys.stdout.buffer.flush()
        sys.exit("Connection to 10.0.0.1 closed by remote host.")
    elif "/distribution/" in path:
        auth = [h for h in headers if h.lower().startswith("x-registry-auth")]
        body = {"Descriptor": {"digest": "sha256:dd"}, "Platforms": [{"architecture": "amd64"}], "auth": auth}
        with seen.open("a") as file:
            file.write(json.dumps(auth) + "\\n")
    elif "endless" in path:
        sys.stdout.buffer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\n\\r\\n")
        while True:
            sys.stdout.buffer.write(b"[" * 65536)
    else:
        body = {"Id": path, "Size": 3}
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: {len(text)}\\r\\n\\r\\n"
    sys.stdout.buffer.write(head.encode() + text)
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def install(text: str) -> None:
        program = tmp_path / "ssh"
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    install(textwrap.dedent(SSH))
    return tmp_path


def test_requests_go_through_one_ssh(ssh: Path) -> None:
    engine = Engine.over_ssh(LOGIN)
    image = engine.image("kit:cpu-0123")
    assert image is not None
    assert image.image_id == "/v1.45/images/kit:cpu-0123/json"
    engine.close()
    (argv,) = (ssh / "seen").read_text().splitlines()
    assert "docker system dial-stdio" in argv
    assert '"-l", "ubuntu"' in argv


def test_a_password_travels_in_a_request_and_on_no_command_line(ssh: Path) -> None:
    engine = Engine.over_ssh(LOGIN)
    digest = registry.look_up(engine, "r.io/kit:1", RegistryLogin(user="ann", secret=Secret(b"s3cret")))
    engine.close()
    assert (digest.digest, digest.arches) == ("sha256:dd", ("amd64",))
    argv, auth = (ssh / "seen").read_text().splitlines()
    assert "s3cret" not in argv
    assert "X-Registry-Auth" in auth


def test_what_ssh_says_is_reported(ssh: Path) -> None:
    (ssh / "ssh").write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    with pytest.raises(UnreachableError) as caught:
        Engine.over_ssh(LOGIN)
    assert "Permission denied (publickey)" in caught.value.message
    assert caught.value.host == "gpu1"


def test_a_host_that_prints_without_an_end_fills_nothing_and_hides_nothing(
    ssh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """kit keeps the end of standard error in memory, and nothing on this machine's disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    (ssh / "ssh").write_text(
        "#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' 'x' >&2\n"
        "echo >&2\necho 'Permission denied (publickey).' >&2\nexit 255\n"
    )
    tunnels = over_ssh._Tunnels(["ssh", "gpu1"], "gpu1")
    tunnels.open().close()
    text = tunnels.stderr()
    tunnels.close()
    assert text.endswith("Permission denied (publickey).")
    assert len(text) <= 1 << 16
    with pytest.raises(UnreachableError, match=r"Permission denied \(publickey\)"):
        Engine.over_ssh(LOGIN)


def test_an_address_that_is_turned_away_is_reported(ssh: Path) -> None:
    (ssh / "ssh").write_text(
        "#!/bin/sh\necho 'kex_exchange_identification: Connection closed by remote host' >&2\n"
        "echo 'Connection closed by 10.0.0.1 port 22' >&2\nexit 255\n"
    )
    with pytest.raises(UnreachableError, match="hung up before the login: kex_") as caught:
        Engine.over_ssh(LOGIN)
    assert "PerSourcePenalties" in str(caught.value.hint)


def test_a_line_that_is_cut_in_the_middle_of_a_pull(ssh: Path) -> None:
    engine = Engine.over_ssh(LOGIN)
    step = Pull(image="kit:1", source="r.io/kit:1", digest="sha256:dd", why="")
    with pytest.raises(UnreachableError) as caught:
        registry.pull(engine, step, None, lambda *_: None)
    engine.close()
    assert "closed by remote host" in caught.value.message
    assert caught.value.host == "gpu1"


def test_a_pull_of_a_base_sends_no_login_of_this_machine(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"auths": {"r.io": {"auth": base64.b64encode(b"ann:s3cret").decode()}}}
    (ssh / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("DOCKER_CONFIG", str(ssh))
    engine = Engine.over_ssh(LOGIN)
    with pytest.raises(UnreachableError):
        engine.pull("r.io/base:1", on_progress=lambda *_: None)
    engine.close()
    nothing = base64.urlsafe_b64encode(b"{}").decode()
    assert (ssh / "seen").read_text().splitlines()[1:] == [json.dumps([f"X-Registry-Auth: {nothing}"])]


def test_an_answer_without_end_is_that_hosts_error(ssh: Path) -> None:
    engine = Engine.over_ssh(LOGIN)
    with pytest.raises(AnswerError, match="more than 16777216 bytes") as caught:
        engine.image("kit:endless")
    engine.close()
    assert caught.value.host == "gpu1"


def test_no_ssh_is_left(ssh: Path) -> None:
    engine = Engine.over_ssh(LOGIN)
    processes = [process for process, *_ in engine._client._tunnels._open]
    assert [process.poll() for process in processes] == [None]
    engine.close()
    assert all(process.poll() is not None for process in processes)
