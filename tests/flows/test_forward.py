"""kit forward and kit tensorboard with OpenSSH's own client, a real sshd, and programs that listen on this machine."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.errors import EngineDownError, InputError, NotReadyError, StepError, UnreachableError
from kit.events import Event, Phase, Warned
from kit.flows import forward as forward_flow
from kit.flows import tensorboard as tensorboard_flow
from kit.flows.context import Context, open_context
from kit.flows.forward import forward
from kit.flows.run.listing import StoredRun
from kit.flows.tensorboard import tensorboard
from kit.model.forward import Board, Forwards, Wanted
from kit.model.host import Host, Inventory
from kit.model.run import Place, RunRecord
from kit.model.values import replace
from kit.remote.run import board
from kit.remote.ssh.tunnel import Tunnel
from tests.fakes.reporter import Remembering
from tests.fakes.sshd import Sshd
from tests.processes import files_of_processes
from tests.sockets import free_port, listening

RUN = "20261121-101500-3fa2"


def keygen(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


class Site:
    """A VM: an sshd of this machine, and a context that reaches it as gpu1."""

    def __init__(self, folder: Path, reporter: Remembering, *, forwards: bool = True) -> None:
        key = keygen(folder / "host")
        keygen(folder / "id")
        self.sshd = Sshd(folder / "host", forwards=forwards)
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.sshd.port} {key}\n")
        ssh = {"user": "root", "key": str(folder / "id"), "known_hosts": str(folder / "known_hosts")}
        inventory = Inventory(hosts=(Host(name="gpu1", address="127.0.0.1", port=self.sshd.port),), source="hosts")
        spec = spec_from({"name": "lab", "ssh": ssh})
        self.context: Context = open_context(inventory, spec, folder, reporter)
        self.reporter = reporter


@pytest.fixture
def site(tmp_path: Path, reporter: Remembering) -> Iterator[Site]:
    one = Site(tmp_path, reporter)
    yield one
    one.sshd.close()


@pytest.fixture
def web() -> Iterator[http.server.ThreadingHTTPServer]:
    """A program on the VM's loopback that answers each request with its path."""

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.path.encode())

        def log_message(self, *_words: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  (a test's own address)
        return str(answer.read().decode())


def while_open(work: Callable[[Callable[[Any], None]], None], look: Callable[[Any], None]) -> None:
    """Do the work, look at what it opened in another thread, then press Ctrl-C. What the look raises is raised."""
    errors: list[BaseException] = []
    main = threading.get_ident()

    def ready(value: Any) -> None:
        threading.Thread(target=check, args=(value,), daemon=True).start()

    def check(value: Any) -> None:
        try:
            look(value)
        except BaseException as error:
            errors.append(error)
        signal.pthread_kill(main, signal.SIGINT)

    with contextlib.suppress(KeyboardInterrupt):
        work(ready)
    if errors:
        raise errors[0]


def never(_value: object) -> None:
    raise AssertionError("nothing may be opened")


def ssh_of(folder: Path) -> list[Path]:
    """Return the processes of ssh that use this test's key."""
    found = []
    for file in files_of_processes("cmdline"):
        with contextlib.suppress(OSError):
            if str(folder / "id").encode() in file.read_bytes():
                found.append(file)
    return found


def test_a_port_is_on_the_loopback_and_nothing_is_left_after_ctrl_c(
    site: Site, web: http.server.ThreadingHTTPServer, tmp_path: Path
) -> None:
    far = web.server_address[1]
    seen: list[Any] = []

    def look(value: Forwards) -> None:
        (port,) = value.ports
        assert (value.host, port.port, port.address, value.run) == ("gpu1", far, "127.0.0.1", "")
        for path in ("/a", "/b"):
            assert get(f"http://127.0.0.1:{port.local}{path}") == path
        (process,) = ssh_of(tmp_path)
        seen.append((port.local, listening(int(process.parent.name))))

    while_open(
        lambda ready: forward(site.context, "gpu1", [Wanted(local=0, port=far)], is_run=False, ready=ready), look
    )
    ((local, sockets),) = seen
    assert sockets == {("127.0.0.1", local)}
    assert ssh_of(tmp_path) == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", local), timeout=5)
    assert site.reporter.events == []


def test_a_program_that_listens_on_another_address_is_found(site: Site) -> None:
    port = free_port("127.0.0.1")
    with socket.socket() as held, socket.create_server(("127.0.0.77", port)) as there:
        # Another test's program on the loopback itself would be found first.
        held.bind(("127.0.0.1", port))

        def look(value: Forwards) -> None:
            assert value.ports[0].address == "127.0.0.77"
            with socket.create_connection(("127.0.0.1", value.ports[0].local), timeout=20) as here:
                peer, _ = there.accept()
                peer.sendall(b"hello")
                peer.close()
                assert here.recv(9) == b"hello"
                # The end arrives as well.
                assert here.recv(9) == b""

        wanted = [Wanted(local=0, port=port)]
        while_open(lambda ready: forward(site.context, "gpu1", wanted, is_run=False, ready=ready), look)


def test_a_port_where_nothing_listens_is_reported_and_works_later(site: Site) -> None:
    with socket.socket() as later:
        # Kernels give other programs of this machine no such port, on whatever address.
        port = free_port("127.0.0.1")
        later.bind(("127.0.0.1", port))

        def look(value: Forwards) -> None:
            assert value.ports[0].address == ""
            local = ("127.0.0.1", value.ports[0].local)
            with socket.create_connection(local, timeout=20) as here:
                assert here.recv(9) == b""
            later.listen()
            with socket.create_connection(local, timeout=20):
                later.accept()[0].close()

        wanted = [Wanted(local=0, port=port)]
        while_open(lambda ready: forward(site.context, "gpu1", wanted, is_run=False, ready=ready), look)
    (warning,) = [event for event in site.reporter.events if isinstance(event, Warned)]
    assert f"port {port} of gpu1" in warning.text or f"to port {port}" in warning.text


def test_a_taken_port_is_refused_with_the_program_that_has_it(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as caught:
            forward(site.context, "gpu1", [Wanted(local=port, port=8888)], is_run=False, ready=never)
    name = Path("/proc/self/comm").read_text().strip()
    assert caught.value.message == f"port {port} of this machine is in use by {name} (pid {os.getpid()})"
    assert caught.value.hint == f"choose another: kit forward gpu1 {port + 1}:8888"
    assert site.sshd.connections == 0


def test_an_sshd_that_forwards_nothing_is_named(tmp_path: Path, reporter: Remembering) -> None:
    site = Site(tmp_path, reporter, forwards=False)

    def look(value: Forwards) -> None:
        with socket.create_connection(("127.0.0.1", value.ports[0].local), timeout=20) as here:
            assert here.recv(9) == b""

    wanted = [Wanted(local=0, port=site.sshd.port)]
    try:
        while_open(lambda ready: forward(site.context, "gpu1", wanted, is_run=False, ready=ready), look)
    finally:
        site.sshd.close()
    (warning,) = [event for event in reporter.events if isinstance(event, Warned)]
    assert warning.text.startswith("gpu1 forwards no connections: administratively prohibited")
    assert "AllowTcpForwarding" in (warning.hint or "")


def test_a_broken_connection_ends_it_with_an_error(site: Site) -> None:
    def cut(_value: Forwards) -> None:
        site.sshd.close()

    with pytest.raises(UnreachableError, match="gpu1: the connection broke"):
        forward(site.context, "gpu1", [Wanted(local=0, port=9)], is_run=False, ready=cut)


def test_a_login_that_cannot_become_root_is_quoted(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in (("id", "echo 1000"), ("sudo", "echo 'sudo: a password is required' >&2; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(StepError, match="gpu1: its table of sockets did not come: 'sudo: a password is req"):
        forward(site.context, "gpu1", [Wanted(local=0, port=9)], is_run=False, ready=never)


def record(**more: Any) -> RunRecord:
    places = (Place(node="gpu1", address="a", ranks=2), Place(node="gpu9", address="b", ranks=2))
    return RunRecord(id=RUN, cluster="lab", image="i", command=("ls",), places=places, **more)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for flow in (forward_flow, tensorboard_flow):
        monkeypatch.setattr(flow, "stored_run", lambda _context, _word: (record(state="ended"), {}))


def test_a_rank_names_its_host(site: Site) -> None:
    run: StoredRun = (record(), {})
    assert forward_flow.host_of(site.context, run, 1).name == "gpu1"
    with pytest.raises(InputError, match=r"rank 2 of run .* is on gpu9, which is not in hosts"):
        forward_flow.host_of(site.context, run, 2)
    with pytest.raises(InputError, match="has no rank 4") as caught:
        forward_flow.host_of(site.context, run, 4)
    assert caught.value.hint == "its ranks are 0 to 3"


def test_a_rank_of_torchrun_or_of_an_elastic_run_names_its_host(site: Site) -> None:
    last = replace(record(), places=record().places[::-1])
    assert forward_flow.host_of(site.context, (last, {"options": {"launcher": "torchrun"}}), 0).name == "gpu1"
    lost = {"places": [{"node": "gpu9", "out": True}, {"node": "gpu1"}]}
    assert forward_flow.host_of(site.context, (last, lost), 0).name == "gpu1"
    with pytest.raises(InputError, match="has no rank 2") as caught:
        forward_flow.host_of(site.context, (last, lost), 2)
    assert caught.value.hint == "its ranks are 0 to 1"


@pytest.mark.usefixtures("ended")
def test_a_run_that_has_ended_has_no_ports(site: Site) -> None:
    with pytest.raises(NotReadyError, match="has ended") as caught:
        forward(site.context, "latest", [Wanted(local=0, port=9)], is_run=True, ready=never)
    assert caught.value.hint == "name a host instead: kit forward gpu1 PORT"


DOCKER = """#!/bin/sh
# docker exec --interactive NAME WORD... on this machine
[ "$1" = exec ] || exit 64
shift
while [ "${1#-}" != "$1" ]; do shift; done
echo "$1" >"$NODE"
shift
exec "$@"
"""
BOARD = """#!{python}
import http.server, os, sys
class Words(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(" ".join(sys.argv[1:]).encode())
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Words)
open(os.environ["NODE"] + ".pid", "w").write(str(os.getpid()))
url = "http://127.0.0.1:%d/" % server.server_address[1]
print("TensorBoard 2.15.2 at %s (Press CTRL+C to quit)" % url, file=sys.stderr, flush=True)
server.serve_forever()
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node on this machine. Return the file that gets the name of the container."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("NODE", str(tmp_path / "node"))
    return tmp_path / "node"


def kit(site: Site, folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start kit itself, with files that name the VM."""
    (folder / "hosts").write_text(f"127.0.0.1 name=gpu1 port={site.sshd.port} user=root key={folder / 'id'}\n")
    (folder / "kit.yaml").write_text(f"name: lab\nssh:\n  known_hosts: {folder / 'known_hosts'}\n  keep: false\n")
    argv = [sys.executable, "-m", "kit.cli.main", "-C", str(folder), *words]
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_is_how_kit_forward_ends(site: Site, web: http.server.ThreadingHTTPServer, tmp_path: Path) -> None:
    far = web.server_address[1]
    with kit(site, tmp_path, "forward", "gpu1", f"0:{far}", "--json") as process:
        line = json.loads(process.stdout.readline() if process.stdout else "")
        local = line["ports"][0]["local"]
        assert line["kind"] == "forward"
        assert get(f"http://127.0.0.1:{local}/x") == "/x"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    assert ssh_of(tmp_path) == []


def guards_of(pid: int) -> list[int]:
    """Return the processes that this one has started and that wait to end its ssh."""
    guards = []
    for file in files_of_processes("stat"):
        with contextlib.suppress(OSError):
            parent = int(file.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"\0-O\0exit\0" in file.with_name("cmdline").read_bytes():
                guards.append(int(file.parent.name))
    return guards


@pytest.mark.parametrize("connected", [False, True])
def test_a_killed_kit_leaves_no_connection(
    site: Site, web: http.server.ThreadingHTTPServer, tmp_path: Path, connected: bool
) -> None:
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(kit(site, tmp_path, "forward", "gpu1", f"0:{web.server_address[1]}"))
        line = process.stdout.readline() if process.stdout else ""
        assert line.startswith("127.0.0.1:")
        assert line.endswith(f" → gpu1, port {web.server_address[1]}\n")
        if connected:
            # As a browser does, it keeps the connection.
            local = int(line.split()[0].rpartition(":")[2])
            stack.enter_context(socket.create_connection(("127.0.0.1", local), timeout=20))
            while site.sshd.extras != ["local forwarding"]:
                threading.Event().wait(0.01)
        left = [int(path.parent.name) for path in ssh_of(tmp_path)]
        assert left
        left += guards_of(process.pid)
        ends = [stack.enter_context(ending(pid)) for pid in left]
        # What Ctrl-C would reach is killed, too: the guard must not be among it.
        os.killpg(process.pid, signal.SIGKILL)
        for end in ends:
            assert select.select([end], [], [], 30)[0], "ssh or its guard is still there"


@contextlib.contextmanager
def ending(pid: int) -> Iterator[int]:
    """Yield a descriptor that becomes readable when the process ends."""
    descriptor = os.pidfd_open(pid)
    yield descriptor
    os.close(descriptor)


def test_nothing_is_left_of_a_tunnel_that_was_closed(site: Site) -> None:
    host = site.context.host("gpu1")
    with Tunnel(host, site.context.login(host), ["cat"], line=never, refused=never) as tunnel:
        tunnel.open()
        (guard,) = guards_of(os.getpid())
    assert guards_of(os.getpid()) == []
    assert not Path(f"/proc/{guard}").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpu1"], "port is missing"),
        (["gpu1", "0"], "port: '0' is not a port from 1 to 65535"),
        (["gpu1", "x:80"], "port: 'x' is not a port from 1 to 65535"),
        (["gpu7", "80"], "gpu7"),
        (["gpu1", "80", "--rank", "1"], "--rank needs a run"),
        (["gpu1", "6001:80", "6001:81"], "port 6001 of this machine is given twice"),
    ],
)
def test_words_that_are_wrong(site: Site, tmp_path: Path, words: list[str], message: str) -> None:
    process = kit(site, tmp_path, "forward", *words)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert message in err
    assert site.sshd.connections == 0


@pytest.mark.usefixtures("ended")
def test_tensorboard_runs_in_the_node_and_ends_with_kit(site: Site, node: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tensorboard"
    program.write_text(BOARD.format(python=sys.executable))
    program.chmod(0o755)

    def look(value: Board) -> None:
        assert (value.run, value.host, value.logdir) == (RUN, "gpu1", f"/var/lib/kit/runs/{RUN}/work/logs")
        assert get(value.url) == f"--logdir {value.logdir} --host 127.0.0.1 --port 0"

    while_open(
        lambda ready: tensorboard(site.context, "latest", logdir="work/logs", rank=None, port=0, ready=ready), look
    )
    # This machine has no such folder.
    (warning,) = site.reporter.warnings
    assert f"there is no folder /var/lib/kit/runs/{RUN}/work/logs in the node on gpu1 yet" in warning.text
    assert node.read_text() == "kit-lab-mpihead\n"
    pid = int((tmp_path / "node.pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
    assert ssh_of(tmp_path) == []


@pytest.mark.usefixtures("ended", "node")
def test_a_port_that_was_taken_while_tensorboard_started(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tensorboard"
    program.write_text(BOARD.format(python=sys.executable))
    program.chmod(0o755)
    with socket.socket() as other:
        report = site.reporter.report

        def taking(event: Event) -> None:
            if isinstance(event, Phase):
                other.bind(("127.0.0.1", port))
                other.listen()
            report(event)

        port = free_port("127.0.0.1")
        site.reporter.report = taking  # type: ignore[method-assign]
        with pytest.raises(StepError, match=f"ssh cannot listen on 127.0.0.1:{port}") as caught:
            tensorboard(site.context, "latest", logdir=None, rank=None, port=port, ready=never)
    assert caught.value.hint == "choose another port of this machine: --port 0 takes a free one"


def test_tensorboard_runs_as_the_user_of_the_ranks(tmp_path: Path) -> None:
    """Only root can become another user, so a stand-in of the image's kitrun.fence says when it would."""
    (tmp_path / "lib/kitrun").mkdir(parents=True)
    (tmp_path / "lib/kitrun/fence.py").write_text("import os\ndef become_user(): os.write(1, b'another user\\n')\n")
    (tmp_path / "tensorboard").write_text("#!/bin/sh\necho TensorBoard\n")
    (tmp_path / "tensorboard").chmod(0o755)
    argv = [*board.argv("node", "/logs")]
    words = argv[argv.index("python3") + 1 :]
    assert words[-2:] == ["/opt/kit/lib", "/logs"]
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [sys.executable, *words[:-2], str(tmp_path / "lib"), str(tmp_path)],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        # Its input lasts until TensorBoard has ended.
        assert process.stdout
        assert process.stdout.read() == "another user\nTensorBoard\n"
        assert process.wait(60) == 0


@pytest.mark.usefixtures("ended", "node")
def test_an_image_without_tensorboard_is_named_with_both_ways_out(site: Site) -> None:
    with pytest.raises(NotReadyError, match="gpu1: the image has no TensorBoard") as caught:
        tensorboard(site.context, "latest", logdir=None, rank=None, port=0, ready=never)
    assert f"kit pull {RUN} '**/*tfevents*' logs" in (caught.value.hint or "")
    assert "image.pip" in (caught.value.hint or "")


@pytest.mark.usefixtures("ended", "node")
@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_a_tensorboard_that_fails_is_quoted(site: Site, tmp_path: Path, end: str, code: int) -> None:
    program = tmp_path / "bin" / "tensorboard"
    program.write_text(f"#!/bin/sh\necho 'ImportError: no numpy' >&2\n{end}\n")
    program.chmod(0o755)
    with pytest.raises(StepError, match=f"gpu1: TensorBoard ended with exit code {code}: ImportError: no numpy"):
        tensorboard(site.context, "latest", logdir=None, rank=None, port=0, ready=never)


@pytest.mark.usefixtures("ended", "node")
def test_an_engine_that_is_down_is_named(site: Site, tmp_path: Path) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon at unix:///run/docker.sock.' >&2\nexit 1\n")
    with pytest.raises(EngineDownError, match="gpu1: no Docker Engine answers: Cannot connect") as caught:
        tensorboard(site.context, "latest", logdir=None, rank=None, port=0, ready=never)
    assert "systemctl start docker" in (caught.value.hint or "")
