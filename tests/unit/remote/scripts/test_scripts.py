"""The shell scripts, run for real: in temporary folders, against real processes, with a stub `docker` where needed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kit.remote import scripts, setup
from kit.remote.cluster.observe import listener_word, parse
from kit.remote.scripts import kernel, script
from tests.fakes.facts import host
from tests.fakes.shell import bare_path

SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]
# What the scripts may count on everywhere; docker, ip and nvidia-smi are not among it.
TOOLS = [
    "awk", "cat", "chmod", "chown", "cut", "date", "df", "dirname", "find", "grep", "kill", "mkdir", "mktemp", "mv",
    "nproc", "rm", "rmdir", "sed", "sha256sum", "sleep", "stat", "tail", "timeout", "tr", "uname", "wc", "env",
    "sh",
]  # fmt: skip


def run(
    argv: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None, shell: str = "sh"
) -> subprocess.CompletedProcess[bytes]:
    assert argv[0] == "sh"
    path = shutil.which(shell) or shell
    return subprocess.run([path, *argv[1:]], input=stdin, env=env, capture_output=True, check=False, timeout=60)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with the usual tools only. A test may put a stub of docker there."""
    return bare_path(tmp_path / "bin", TOOLS)


def stub(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{shutil.which('sh')}\n{text}\n")
    path.chmod(0o755)


# observe


@pytest.mark.parametrize("shell", SHELLS)
def test_observe_reads_this_machine(tmp_path: Path, shell: str) -> None:
    done = run(script("observe", str(tmp_path / "none"), "no/such:image", "state"), shell=shell)
    assert done.stdout.endswith(b"@@ end\n")
    facts = parse(host(1), done.stdout.decode())
    assert facts.arch == os.uname().machine
    assert facts.cores > 0
    assert facts.memory_mib > 0
    assert facts.disk_free_mib > 0
    assert (facts.image_id, facts.files, facts.host_key, facts.record) == (None, {}, None, None)


@pytest.mark.parametrize("shell", SHELLS)
def test_observe_ends_where_tools_are_missing(tmp_path: Path, bare: Path, shell: str) -> None:
    done = run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare)}, shell=shell)
    assert done.stdout.endswith(b"@@ end\n")
    facts = parse(host(1), done.stdout.decode())
    assert (facts.engine, facts.compose, facts.interfaces, facts.gpus) == ("", None, (), ())


@pytest.mark.parametrize("shell", SHELLS)
def test_nvidia_smi_is_noticed_at_once(bare: Path, shell: str) -> None:
    stub(bare, "nvidia-smi", 'echo "$*"; echo complaint >&2; exit 9')
    begun = time.monotonic()
    done = run(script("smi", "-q", "a  b"), env={"PATH": str(bare)}, shell=shell)
    assert (done.stdout, done.stderr) == (b"-q a  b\ncomplaint\n", b"")
    # Its timer ends after 23 s.
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("body", ["exec sleep 50", "trap '' TERM; while :; do sleep 1; done"])
def test_nvidia_smi_that_is_late_is_ended(bare: Path, shell: str, body: str) -> None:
    stub(bare, "nvidia-smi", body)
    argv = [word.replace("-k 2 20 ", "-k 0.2 0.2 ") for word in script("smi")]
    done = run(argv, env={"PATH": str(bare)}, shell=shell)
    assert (done.stdout, done.stderr) == (b"nvidia-smi did not answer within 20 s\n", b"")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["smi", "tune_facts"])
def test_nvidia_smi_that_cannot_be_ended_is_left(tmp_path: Path, bare: Path, shell: str, name: str) -> None:
    stub(bare, "nvidia-smi", f"echo $$ >>{tmp_path}/hanging; exec sleep 50")
    argv = [word.replace("  sleep 23 &", "  sleep 0.3 &") for word in script(name, "192.0.2.1")]
    try:
        begun = time.monotonic()
        done = run(argv, env={"PATH": f"{bare}:/usr/bin:/bin"}, shell=shell)
        assert time.monotonic() - begun < 15
        lines = done.stdout.decode().splitlines()
        assert lines[-1] == {"smi": "nvidia-smi did not answer within 20 s", "tune_facts": "end"}[name]
        assert not any(line.startswith("topo") for line in lines)
    finally:
        for pid in (tmp_path / "hanging").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def test_observe_ends_on_a_path_with_nothing(tmp_path: Path) -> None:
    done = run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(tmp_path)})
    assert done.stdout.endswith(b"@@ end\n")
    assert parse(host(1), done.stdout.decode()).cores == 0


@pytest.mark.parametrize("variable", [{"OMP_NUM_THREADS": "77"}, {"OMP_THREAD_LIMIT": "1"}])
def test_variables_of_the_login_are_no_number_of_cores(tmp_path: Path, bare: Path, variable: dict[str, str]) -> None:
    """nproc obeys both."""
    cores = len(os.sched_getaffinity(0))
    done = run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare), **variable})
    assert parse(host(1), done.stdout.decode()).cores == cores
    load = run(script("load", str(tmp_path / "none")), env={"PATH": os.environ["PATH"], **variable})
    assert load.stdout.splitlines()[0] == b"cores %d" % cores


DATA_ROOT = '{\n\t"debug": true,\n\t"data-root" :\n "/data/docker", "log-driver": "local"}'


def test_the_room_for_images_is_that_of_the_engines_data_root(
    tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "daemon.json"
    file.write_text(DATA_ROOT)
    monkeypatch.setattr(kernel, "DAEMON_JSON", str(file))
    assert kernel.data_root() == ["/data/docker"]
    for text in ("", "{}", '{"data-root": 1}', '{"data-root": "x"}', '{"data-root": "/a\\u0041"}'):
        file.write_text(text)
        assert kernel.data_root() == []
    # Without Python, the shell reads it.
    file.write_text(DATA_ROOT)
    for name in ("cat", "df"):
        (bare / name).unlink()
    real = shutil.which("cat")
    stub(bare, "cat", f'[ "$1" != /etc/docker/daemon.json ] || exec {real} {file}; exec {real} "$@"')
    stub(bare, "df", '[ "$2" = /data/docker ] || exit 1; echo Filesystem; echo /dev/x 9 1 4194304 1% /data')
    facts = parse(host(1), run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare)}).stdout.decode())
    assert facts.disk_free_mib == 4096


def test_observe_takes_the_words_of_its_tools(tmp_path: Path, bare: Path) -> None:
    stub(bare, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18")
    stub(bare, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    facts = parse(host(1), run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare)}).stdout.decode())
    assert (facts.gpus, facts.engine, facts.image_id) == ((), "", None)


@pytest.mark.parametrize(("verb", "what"), [("image", "images"), ("ps", "containers")])
@pytest.mark.parametrize("shell", SHELLS)
def test_observe_does_not_take_an_engine_that_is_busy_for_one_that_is_empty(
    tmp_path: Path, bare: Path, shell: str, verb: str, what: str
) -> None:
    stub(bare, "docker", f"""[ "$1" != {verb} ] || exit 124; [ "$1" != info ] || echo '{{"ServerVersion": "1"}}'""")
    done = run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare)}, shell=shell)
    assert (done.returncode, done.stderr) == (75, f"the engine did not report its {what} within 10 s\n".encode())
    assert b"@@ end" not in done.stdout
    # An engine that does not answer is a separate fact.
    stub(bare, "docker", "exit 124")
    done = run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare)}, shell=shell)
    assert done.returncode == 0
    facts = parse(host(1), done.stdout.decode())
    assert (facts.engine, facts.slow) == ("", True)


def test_observe_reads_the_folder_and_nothing_of_the_users(tmp_path: Path, bare: Path) -> None:
    folder = tmp_path / "kit"
    (folder / "ssh").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "data" / "precious").write_text("a volume of the user's\n")
    (folder / "cluster.json").write_text('{"kit": 1}\n')
    (folder / "ssh" / "host_ed25519").write_text("private\n-----END KEY-----\n")
    (folder / "ssh" / "host_ed25519.pub").write_text("ssh-ed25519 AAAA kit\n")
    (folder / "ssh" / "id_ed25519.pub").write_text("ssh-ed25519 BBBB without its private half\n")
    (folder / "ssh" / "host_ed25519").chmod(0o600)
    done = run(script("observe", str(folder), "x", "state"), env={"PATH": str(bare)})
    facts = parse(host(1), done.stdout.decode())
    assert set(facts.files) == {"cluster.json", "ssh/host_ed25519", "ssh/host_ed25519.pub", "ssh/id_ed25519.pub"}
    assert facts.files["ssh/host_ed25519"] == hashlib.sha256(b"private\n-----END KEY-----\n").hexdigest()
    assert facts.modes["ssh/host_ed25519"] == "600"
    assert facts.host_key == "ssh-ed25519 AAAA kit"
    assert facts.client_key is None
    assert facts.record == '{"kit": 1}'
    assert b"private" not in done.stdout.replace(b"its private half", b"")


def test_observe_sees_a_listener(bare: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run(script("observe", str(tmp_path), "x", "state"), env={"PATH": str(bare)})
    assert f"127.0.0.1:{port}" in parse(host(1), done.stdout.decode()).listening


# write_file

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: run the tests as root")


@root_only
@pytest.mark.parametrize("shell", SHELLS)
def test_write_file(tmp_path: Path, shell: str) -> None:
    folder = tmp_path / "opt" / "kit" / "lab"
    content = bytes(range(256)) * 40
    done = run(script("write_file", str(folder), "ssh/key", "600", str(len(content))), stdin=content, shell=shell)
    assert (done.returncode, done.stderr) == (0, b"")
    target = folder / "ssh" / "key"
    assert target.read_bytes() == content
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert (target.stat().st_uid, target.stat().st_gid) == (0, 0)
    for path in (folder, folder / "ssh"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert [path.name for path in (folder / "ssh").iterdir()] == ["key"]


@root_only
def test_write_file_replaces_whole(tmp_path: Path) -> None:
    folder = tmp_path / "kit" / "lab"
    for content, mode in ((b"first and longer", "600"), (b"second", "644"), (b"", "644")):
        assert run(script("write_file", str(folder), "f", mode, str(len(content))), stdin=content).returncode == 0
        assert (folder / "f").read_bytes() == content
        assert oct(stat.S_IMODE((folder / "f").stat().st_mode)) == f"0o{mode}"


@root_only
@pytest.mark.parametrize("fault", ["cut off", "bad mode", "is a folder"])
def test_write_file_fails_whole(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "kit" / "lab"
    assert run(script("write_file", str(folder), "f", "600", "3"), stdin=b"old").returncode == 0
    size, mode, path = "3", "600", "f"
    if fault == "cut off":
        size = "4"
    elif fault == "bad mode":
        mode = "rubbish"
    else:
        path = "d"
        (folder / "d" / "of a person").mkdir(parents=True)
    done = run(script("write_file", str(folder), path, mode, size), stdin=b"new")
    assert done.returncode != 0
    assert done.stderr
    assert (folder / "f").read_bytes() == b"old"
    assert sorted(p.name for p in folder.iterdir()) == (["d", "f"] if fault == "is a folder" else ["f"])
    if fault == "is a folder":
        assert [path.name for path in (folder / "d").iterdir()] == ["of a person"]


@root_only
def test_write_file_replaces_what_an_engine_made_in_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "kit" / "lab"
    (folder / "node-hosts").mkdir(parents=True)
    done = run(script("write_file", str(folder), "node-hosts", "644", "3"), stdin=b"new")
    assert (done.returncode, done.stderr, (folder / "node-hosts").read_bytes()) == (0, b"", b"new")


@pytest.mark.skipif(shutil.which("flock") is None, reason="flock of util-linux is not here")
@pytest.mark.parametrize("shell", SHELLS)
def test_observe_lists_the_active_runs(tmp_path: Path, shell: str) -> None:
    """A run is active if its supervisor lives and it has not ended. Only the lock shows that."""
    held = []
    states = ((True, False), (False, False), (True, True), (False, True))
    for number, (watched, ended) in enumerate(states):
        name = f"20261121-101500-000{number}"
        run_folder = tmp_path / "var" / "runs" / name
        run_folder.mkdir(parents=True)
        (run_folder / "record.json").write_text("{}")
        file = (run_folder / "lock").open("w")
        if watched:
            fcntl.flock(file, fcntl.LOCK_EX)
        if ended:
            (run_folder / "end.json").write_text("{}")
        held.append(file)
    (tmp_path / "var" / "runs" / "half").mkdir()
    # What somebody started in the head's shell: mpirun holds the lock.
    (tmp_path / "var" / "runs" / ".by-hand").mkdir()
    for number, running in ((7, True), (8, False)):
        file = (tmp_path / "var" / "runs" / ".by-hand" / f"by-hand-{number}").open("w")
        if running:
            fcntl.flock(file, fcntl.LOCK_EX)
        held.append(file)
    done = run(script("observe", str(tmp_path), "no/such:image", "state"), shell=shell)
    assert parse(host(1), done.stdout.decode()).living == ("20261121-101500-0000", "by-hand-7")
    for file in held:
        file.close()


# runs and ranks


@contextlib.contextmanager
def marked(code: str = "import sys; sys.stdin.read()", **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with these marks in its environment; it says that it is there before the test goes on."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"print('here', flush=True); {code}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **env},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def mark() -> str:
    """A run's id that nobody else on this machine has."""
    return f"test-{uuid.uuid4().hex[:12]}"


def test_ranks_finds_the_cluster_and_no_other(mark: str) -> None:
    ours = {"KIT_CLUSTER": mark, "KIT_RUN": "r1"}
    with (
        marked(**ours, OMPI_COMM_WORLD_RANK="3") as third,
        marked(**{**ours, "KIT_RUN": "r2"}, OMPI_COMM_WORLD_RANK="0") as other_run,
        marked(**ours),  # mpirun itself: in the run, but no rank
        marked(KIT_CLUSTER=mark + "x", KIT_RUN="r1", OMPI_COMM_WORLD_RANK="1"),
        marked(KIT_CLUSTER=mark, OMPI_COMM_WORLD_RANK="2"),  # started by hand, not a run of kit
    ):
        done = run(script("ranks", mark))
    assert sorted(done.stdout.decode().splitlines()) == [f"r1 3 {third.pid}", f"r2 0 {other_run.pid}"]


def test_ranks_of_torchrun_have_its_numbers(mark: str) -> None:
    ours = {"KIT_CLUSTER": mark, "KIT_RUN": "r1", "KIT_AGENT": "torchrun"}
    with (
        marked(**ours, RANK="5") as rank,
        marked(**ours, OMPI_COMM_WORLD_RANK="1"),  # the host's kit-torchrun
        marked(**ours),  # torchrun itself
    ):
        done = run(script("ranks", mark))
    assert done.stdout.decode().splitlines() == [f"r1 5 {rank.pid}"]


def test_ranks_with_odd_values(mark: str) -> None:
    """What a rank has in its environment, in several lines, is of no other process and of no other run."""
    ours = {"KIT_CLUSTER": mark, "KIT_RUN": "r1", "OMPI_COMM_WORLD_RANK": "7"}
    odd = "1\nKIT_RUN=r9\n/proc/1/environ\n/proc/1/environ:KIT_RUN=r9\n/proc/1/environ:OMPI_COMM_WORLD_RANK=4"
    with marked(**ours, RANK=odd, MY_KIT_RUN="r8", KIT_RUN_2="r8") as one:
        done = run(script("ranks", mark))
    assert done.stdout.decode().splitlines() == [f"r1 7 {one.pid}"]


def test_many_ranks_take_no_more_programs_than_one(mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank's workers have its mark, too: thousands on a host with many cores."""
    for tool in ("grep", "sed", "tr", "awk", "xargs"):
        (tmp_path / tool).write_text(f'#!/bin/sh\necho {tool} >>{tmp_path}/started\nexec {shutil.which(tool)} "$@"\n')
        (tmp_path / tool).chmod(0o755)
    ours = {"KIT_CLUSTER": mark, "KIT_RUN": "r1", "OMPI_COMM_WORLD_RANK": "3"}
    started = []
    for count in (1, 5):
        with contextlib.ExitStack() as ranks, monkeypatch.context() as context:
            for _ in range(count):
                ranks.enter_context(marked(**ours))
            context.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            assert len(run(script("ranks", mark)).stdout.splitlines()) == count
        started.append(sorted((tmp_path / "started").read_text().split()))
        (tmp_path / "started").unlink()
    assert started[0] == started[1]


def test_ranks_of_a_cluster_without_runs(mark: str) -> None:
    assert run(script("ranks", mark)).stdout == b""


def test_stop_run_ends_the_run_and_nothing_else(mark: str) -> None:
    with marked(KIT_RUN=mark) as one, marked(KIT_RUN=mark) as two, marked(KIT_RUN=mark + "-2") as other:
        done = run(script("stop_run", mark))
        assert done.stdout.split() == [b"0"]
        assert (one.wait(), two.wait()) == (-15, -15)
        assert other.poll() is None


def test_stop_run_ends_what_ignores_the_first_word(mark: str) -> None:
    stubborn = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); "
    with marked(stubborn + "sys.stdin.read()", KIT_RUN=mark) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"deaf\n"
        done = run(script("stop_run", mark))
        assert done.stdout.split() == [b"0"]
        assert process.wait() == -9


def test_stop_run_with_nothing_to_stop(mark: str) -> None:
    done = run(script("stop_run", mark))
    assert (done.returncode, done.stdout.split()) == (0, [b"0"])


def test_end_exec_ends_the_command_with_its_descendants_and_nothing_else(mark: str) -> None:
    # A child without the mark, as env -i makes one; and a program that has the mark among its arguments.
    child = "import subprocess, sys; subprocess.Popen(['sleep', '60'], env={}); sys.stdin.read()"
    with marked(child, KIT_EXEC=mark) as one, marked(KIT_EXEC=mark) as two, marked(KIT_EXEC=mark + "0") as other:
        children = Path(f"/proc/{one.pid}/task/{one.pid}/children")
        while not children.read_text():
            time.sleep(0.01)
        sleeping = int(children.read_text())
        done = run(script("end_exec", mark))
        assert done.stdout.split() == [b"3", b"0"]
        assert (one.wait(), two.wait()) == (-15, -15)
        assert other.poll() is None
        with contextlib.suppress(ChildProcessError, FileNotFoundError):
            assert "\nState:\tZ" in Path(f"/proc/{sleeping}/status").read_text()


def test_end_exec_waits_for_a_command_that_is_about_to_start(mark: str) -> None:
    # As `docker exec`, which asks the engine first.
    starts = [sys.executable, "-c", "import os, time; time.sleep(0.7); os.execve('/bin/sleep', ['sleep', '60'], "]
    starts[-1] += f"{{'KIT_EXEC': '{mark}'}})"
    with subprocess.Popen([*starts, f"KIT_EXEC={mark}"]) as process:
        done = run(script("end_exec", mark))
        assert (done.stdout.split(), process.wait()) == ([b"1", b"0"], -15)


def test_end_exec_kills_what_ignores_it(mark: str, tmp_path: Path) -> None:
    # It is 2 s later at each look at /proc/uptime.
    clock = tmp_path / "cut"
    clock.write_text(f"#!/bin/sh\nn=$(cat {tmp_path}/n 2>/dev/null || echo 0)\necho $((n + 2)) | tee {tmp_path}/n\n")
    clock.chmod(0o755)
    stubborn = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); "
    with marked(stubborn + "sys.stdin.read()", KIT_EXEC=mark) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"deaf\n"
        slow = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = run(script("end_exec", mark), env=slow)
        assert done.stdout.split() == [b"1", b"0"]
        assert process.wait() == -9


def test_end_exec_with_nothing_to_end(mark: str) -> None:
    done = run(script("end_exec", mark))
    assert (done.returncode, done.stdout.split()) == (0, [b"0", b"0"])


# remove: flow tests and integration tests check the folder below /opt/kit; these check the docker commands

DOCKER = """
echo "$*" >>"$LOG"
case "$1 $2" in
  'ps --all')
    case $* in
      *kit.data*) printf '%b' "${STAGERS:-}" ;;
      *kit.plugin*) printf '%b' "${COPIES:-}" ;;
      *) printf '%b' "$IDS" ;;
    esac
    exit "${PS_CODE:-0}"
    ;;
  'info --format') echo "${ROOT:-}" ;;
  'inspect --format') echo /kit-lab-mpinode ;;
  'rm --force') exit "${RM_CODE:-0}" ;;
  'image ls')
    case $* in
      *kit-lab-nccl-plugin*) printf '%b' "${PLUGINS:-}" ;;
      *kit:*) printf '%b' "${EARLIER:-}" ;;
    esac
    ;;
  'image rm') [ "$3" != "${USED:-}" ] ;;
  'volume ls') printf '%b' "${VOLUMES:-}" ;;
  'image inspect') [ "$4$3" = "$HAVE" ] ;;
esac
"""


def removal(
    bare: Path,
    folder: str = "/opt/elsewhere",
    what: str = "keep",
    data: Sequence[object] = (),
    root: object = "/opt/kit",
    *,
    images: Sequence[str] = ("kit:1", "kit:2"),
    **env: str,
) -> tuple[subprocess.CompletedProcess[bytes], str]:
    log = bare.parent / "log"
    stub(bare, "docker", DOCKER)
    words = script("remove", "lab", folder, what, *images, "--", *map(str, data))
    words = [word.replace("/opt/kit", str(root)) for word in words]
    done = run(words, env={"PATH": str(bare), "LOG": str(log), "IDS": "", **env})
    return done, log.read_text()


def test_remove_takes_the_clusters_containers_by_label(bare: Path) -> None:
    done, calls = removal(bare, IDS="aa\\nbb\\n", HAVE="kit:2")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "container kit-lab-mpinode", "container kit-lab-mpinode", "image kit:2",
    ]  # fmt: skip
    assert "label=kit.cluster=lab" in calls
    assert "rm --force --volumes aa" in calls
    assert "rm --force --volumes bb" in calls
    assert "image rm kit:2" in calls
    assert "image rm kit:1" not in calls


def test_remove_takes_earlier_images_of_kit_that_no_container_uses(bare: Path) -> None:
    old, used, mine = "kit:cpu-0123456789ab", "kit:cuda-mxnet-0123456789ab", "kit:mine"
    earlier = f"{old}\n{mine}\n{used}\nreg.example.com/{old}\n"
    done, calls = removal(bare, EARLIER=earlier, USED=used)
    assert (done.returncode, done.stdout.decode()) == (0, f"image {old}\n")
    assert [line for line in calls.splitlines() if line.startswith("image rm")] == [
        f"image rm {old}",
        f"image rm {used}",
    ]
    (bare.parent / "log").unlink()
    done, calls = removal(bare, images=(), EARLIER=earlier)
    assert done.stdout == b""
    assert "image rm" not in calls


def test_remove_takes_what_a_killed_copy_of_a_plugin_left(bare: Path) -> None:
    done, calls = removal(bare, COPIES="cc\n", PLUGINS="kit-lab-nccl-plugin:01\n")
    assert done.stdout.decode().splitlines() == ["container cc", "image kit-lab-nccl-plugin:01"]
    assert "label=kit.plugin=lab" in calls
    assert "rm --force --volumes cc" in calls
    assert "image rm kit-lab-nccl-plugin:01" in calls


def test_remove_takes_the_mounts_of_data_sets(bare: Path) -> None:
    done, calls = removal(bare, VOLUMES="kit-lab-data-shared-1f\n")
    assert done.stdout.decode().splitlines() == ["volume kit-lab-data-shared-1f"]
    assert "volume ls --quiet --filter label=kit.cluster=lab\nvolume rm kit-lab-data-shared-1f\n" in calls


def test_remove_ends_the_stagers_of_the_cluster_alone(bare: Path) -> None:
    _, calls = removal(bare, STAGERS="aa lab/web\\nbb lab-2/web\\ncc lab/text\\ndd other/lab/x\\n")
    assert [line.split()[-1] for line in calls.splitlines() if line.startswith("rm --force")] == ["aa", "cc"]


def test_stagings_of_the_cluster_alone_end_and_nothing_else(bare: Path) -> None:
    log = bare.parent / "log"
    stub(bare, "docker", DOCKER)
    environ = {
        "PATH": str(bare),
        "LOG": str(log),
        "IDS": "ee\\n",
        "STAGERS": "aa lab/web\\nbb lab-2/web\\ncc lab/text\\n",
    }
    done = run(script("data_end", "lab"), env=environ)
    assert (done.returncode, done.stdout.decode().splitlines()) == (0, ["container kit-lab-mpinode"] * 2)
    assert [line.split()[-1] for line in log.read_text().splitlines() if line.startswith("rm --force")] == ["aa", "cc"]
    assert run(script("data_end", "lab"), env={**environ, "PS_CODE": "1"}).returncode == 1


def test_a_machine_without_an_engine_has_no_stagings(bare: Path) -> None:
    done = run(script("data_end", "lab"), env={"PATH": str(bare)})
    assert (done.returncode, done.stdout) == (0, b"")


def test_remove_keeps_staged_data_and_removes_empty_folders(bare: Path, tmp_path: Path) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    staged, coming, empty = (tmp_path / "nvme" / "kit-data" / "lab" / name for name in ("web", "text", "new"))
    for folder in (staged, coming, empty):
        (folder / "files").mkdir(parents=True)
    (staged / "staged.json").touch()
    (coming / "coming").mkdir()
    gone = tmp_path / "disk" / "kit-data" / "lab" / "gone"
    (gone / "files").mkdir(parents=True)
    done, _ = removal(bare, data=(staged, coming, empty, gone, tmp_path / "never"))
    assert done.stdout.decode() == "kept web\nkept text\n"
    assert (staged / "files").is_dir()
    assert (coming / "files").is_dir()
    assert not empty.exists()
    assert list((tmp_path / "disk").iterdir()) == []


def test_remove_names_data_on_a_disk_that_kit_yaml_does_not_name(bare: Path, tmp_path: Path) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    root, full, empty, other = (tmp_path / name for name in ("kit", "nvme", "ssd", "other"))
    for folder in (full / "kit-data/lab/web", empty / "kit-data/lab/text", other / "lab/photos"):
        (folder / "files").mkdir(parents=True)
    (full / "kit-data/lab/web/staged.json").touch()
    places = root / ".data/lab/.dirs"
    places.parent.mkdir(parents=True)
    # A disk that is gone, and a folder that is not kit's.
    places.write_text(f"{full}/kit-data/lab\n{empty}/kit-data/lab\n{tmp_path}/gone/kit-data/lab\n{other}/lab\n")
    done, _ = removal(bare, root=root)
    assert done.stdout.decode() == "kept web\n"
    assert (places.is_file(), list(empty.iterdir())) == (True, [])
    (full / "kit-data/lab/web/staged.json").unlink()
    done, _ = removal(bare, root=root)
    assert (done.stdout, list(full.iterdir()), (root / ".data").exists()) == (b"", [], False)
    assert (other / "lab/photos/files").is_dir()


def test_remove_with_nothing_there(bare: Path) -> None:
    done, _ = removal(bare)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("fault", [{"PS_CODE": "1"}, {"IDS": "aa\\n", "RM_CODE": "1"}])
def test_remove_stops_where_the_engine_does(bare: Path, fault: dict[str, str]) -> None:
    """A folder that goes before its containers would leave orphans."""
    done, calls = removal(bare, **fault)
    assert done.returncode == 1
    assert "image" not in calls


def test_remove_never_touches_a_folder_that_is_not_kits(bare: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    done, _ = removal(bare, str(precious))
    assert done.returncode == 0
    assert precious.is_dir()


@root_only
def test_remove_takes_the_folder(bare: Path) -> None:
    folder = Path("/opt/kit") / f"test-{uuid.uuid4().hex[:12]}"
    (folder / "ssh").mkdir(parents=True)
    (folder / "ssh" / "host_ed25519").write_text("x")
    done, _ = removal(bare, str(folder))
    assert done.stdout.decode() == f"folder {folder}\n"
    assert not folder.exists()
    # Another test may have a folder there, or make one now.
    end = time.monotonic() + 30
    while is_empty(folder.parent):
        assert time.monotonic() < end, "the empty folder of all clusters stays"
        time.sleep(0.01)


def is_empty(folder: Path) -> bool:
    """Return whether the folder is there and nothing is in it."""
    try:
        return not list(folder.iterdir())
    except FileNotFoundError:
        return False


@pytest.fixture
def deployed() -> Iterator[Path]:
    """A cluster's folder on this machine, with three runs: one checkpoint, empty folders, a link."""
    folder = Path("/opt/kit") / f"test-{uuid.uuid4().hex[:12]}"
    (folder / "code").mkdir(parents=True)
    (folder / "compose.yaml").write_text("x")
    for run_id, kinds in (("good", ("checkpoints", "output")), ("empty", ("output", "work/src"))):
        for kind in kinds:
            (folder / "var/runs" / run_id / kind).mkdir(parents=True)
        (folder / "var/runs" / run_id / "log").write_text("text")
    (folder / "var/runs/good/checkpoints/one").write_text("weights")
    (folder / "var/runs/linked").mkdir()
    (folder / "var/runs/linked/output").symlink_to("/etc")
    (folder / "var/runs/.starting").touch()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@root_only
def test_remove_keeps_what_runs_made(bare: Path, deployed: Path) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    done, _ = removal(bare, str(deployed))
    assert done.stdout.decode() == f"folder {deployed}, except what runs made\n"
    left = sorted(str(path.relative_to(deployed)) for path in deployed.rglob("*") if path.is_file())
    assert left == ["var/runs/good/checkpoints/one", "var/runs/good/log"]
    assert [path.name for path in (deployed / "var/runs").iterdir()] == ["good"]
    again, _ = removal(bare, str(deployed))
    assert again.stdout == b""
    assert (deployed / "var/runs/good/checkpoints/one").read_text() == "weights"
    purged, _ = removal(bare, str(deployed), "all")
    assert purged.stdout.decode() == f"folder {deployed}\n"
    assert not deployed.exists()


@root_only
@pytest.mark.parametrize("where", ["var/stubborn", "stubborn", "var/runs/stubborn"])
def test_remove_that_fails_keeps_what_runs_made(bare: Path, deployed: Path, where: str) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    rm = shutil.which("rm")
    (bare / "rm").unlink(missing_ok=True)
    # As for a file that is immutable.
    stub(bare, "rm", f'case "$*" in *stubborn*) echo "rm: cannot remove stubborn" >&2; exit 1 ;; esac; exec {rm} "$@"')
    (deployed / where).mkdir()
    done, _ = removal(bare, str(deployed))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"cannot remove stubborn" in done.stderr
    assert (deployed / "var/runs/good/checkpoints/one").read_text() == "weights"
    (deployed / where).rmdir()
    again, _ = removal(bare, str(deployed))
    assert again.returncode == 0
    assert (deployed / "var/runs/good/checkpoints/one").read_text() == "weights"


@root_only
def test_remove_keeps_what_it_cannot_read(bare: Path, deployed: Path) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    find = shutil.which("find")
    (bare / "find").unlink(missing_ok=True)
    # As for a file system that is gone for a moment.
    stub(bare, "find", f'case "$1" in */checkpoints) echo "find: $1: stale" >&2; exit 1 ;; esac; exec {find} "$@"')
    removal(bare, str(deployed))
    assert (deployed / "var/runs/good/checkpoints/one").read_text() == "weights"


@pytest.fixture
def home(deployed: Path) -> Path:
    """Return the home folder of a node whose runs made nothing, as kit-home leaves it."""
    shutil.rmtree(deployed / "var/runs")
    folder = deployed / "var/home/root"
    folder.mkdir(parents=True)
    (folder / ".bashrc").write_text("of the image")
    (folder / "keys").symlink_to("/root/keys")
    lines = subprocess.run(
        ["stat", "-c", "%s %Y %n", "./root/.bashrc", "./root/keys"], cwd=folder.parent, capture_output=True, check=True
    )
    (folder.parent / ".of-image").write_bytes(lines.stdout)
    return folder


@root_only
def test_remove_keeps_what_jobs_wrote_to_home(bare: Path, deployed: Path, home: Path) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    (home / ".cache/models").mkdir(parents=True)
    (home / ".cache/models/one").write_text("weights")
    (home / ".cache/models").chmod(0o750)
    done, _ = removal(bare, str(deployed))
    assert done.stdout.decode() == f"folder {deployed}, except what runs made\nhome stays\n"
    assert (home / ".cache/models/one").read_text() == "weights"
    assert (home / ".cache/models").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in deployed.iterdir()) == ["var"]
    again, _ = removal(bare, str(deployed))
    assert again.stdout.decode() == "home stays\n"
    purged, _ = removal(bare, str(deployed), "all")
    assert purged.stdout.decode() == f"folder {deployed}\n"
    assert not deployed.exists()


@root_only
def test_remove_takes_a_home_that_has_only_what_the_image_has(bare: Path, deployed: Path, home: Path) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    (home / ".cache").mkdir()
    done, _ = removal(bare, str(deployed))
    assert done.stdout.decode() == f"folder {deployed}\n"


@root_only
@pytest.mark.parametrize(
    "change",
    [
        "echo more >>root/.bashrc",
        "ln -s /data/mine root/mine",
        "ln -sfn /root/others root/keys",
        "rm .of-image",
        "mkfifo fifo; mv fifo .of-image",
        "ln -sf /etc/passwd .of-image",
        "mkdir ranks; echo x >ranks/'two\nlines'",
    ],
)
def test_remove_keeps_a_home_that_differs_from_the_image(bare: Path, deployed: Path, home: Path, change: str) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    subprocess.run(["sh", "-euc", change], cwd=home.parent, check=True)
    done, _ = removal(bare, str(deployed))
    assert "home stays" in done.stdout.decode().splitlines()
    assert (home / ".bashrc").is_file()


@root_only
@pytest.mark.parametrize("place", ["var", "var/home"])
def test_remove_follows_no_link_in_place_of_home(bare: Path, deployed: Path, tmp_path: Path, place: str) -> None:
    (bare / "head").symlink_to(shutil.which("head") or "")
    precious = tmp_path / "precious"
    (precious / "home/root").mkdir(parents=True)
    (precious / "home/root/mine").write_text("x")
    shutil.rmtree(deployed / "var")
    if place == "var/home":
        (deployed / "var").mkdir()
    (deployed / place).symlink_to(precious if place == "var" else precious / "home")
    done, _ = removal(bare, str(deployed))
    assert done.stdout.decode() == f"folder {deployed}\n"
    assert (precious / "home/root/mine").read_text() == "x"


def test_remove_finds_parts_of_images_that_have_no_name(bare: Path) -> None:
    """Docker 29 lists images without a name only with --all."""
    _, calls = removal(bare, ROOT="/var/lib/docker")
    assert "image ls --all --quiet --filter label=kit.ship.part=lab" in calls


@root_only
def test_remove_follows_no_link_of_a_rank(bare: Path, deployed: Path, tmp_path: Path) -> None:
    """Ranks can put a link in place of the folder of runs."""
    (bare / "head").symlink_to(shutil.which("head") or "")
    precious = tmp_path / "precious" / "good" / "output"
    precious.mkdir(parents=True)
    (precious / "file").write_text("x")
    (tmp_path / "precious" / "other").mkdir()
    shutil.rmtree(deployed / "var/runs")
    (deployed / "var/runs").symlink_to(tmp_path / "precious")
    done, _ = removal(bare, str(deployed))
    assert done.stdout.decode() == f"folder {deployed}\n"
    assert sorted(path.name for path in (tmp_path / "precious").iterdir()) == ["good", "other"]
    assert (precious / "file").read_text() == "x"


@pytest.mark.parametrize("code", [124, 143])
def test_remove_gives_up_an_engine_that_hangs_and_removes_nothing(bare: Path, tmp_path: Path, code: int) -> None:
    """Its containers come back with it."""
    (bare / "timeout").unlink()
    # As it ends where a minute has passed. busybox's ends with the signal that it sent.
    stub(bare, "timeout", f"exit {code}")
    (tmp_path / "lab").mkdir()
    (bare.parent / "log").touch()
    done, calls = removal(bare, str(tmp_path / "lab"))
    assert (done.returncode, done.stdout, calls) == (1, b"", "")
    assert b"the engine did not answer within 60 s" in done.stderr
    assert (tmp_path / "lab").exists()


def test_remove_on_a_host_without_docker(bare: Path) -> None:
    done = run(script("remove", "lab", "/opt/elsewhere", "keep"), env={"PATH": str(bare)})
    assert (done.returncode, done.stdout) == (0, b"")


# wait_sshd


def test_wait_sshd_finds_the_listener(bare: Path) -> None:
    stub(bare, "docker", "echo running:0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        word = listener_word("127.0.0.1", server.getsockname()[1])
        done = run(script("wait_sshd", word, "20", "kit-lab-mpinode"), env={"PATH": str(bare)})
    assert done.returncode == 0


def test_wait_sshd_prints_what_the_container_said(bare: Path) -> None:
    stub(bare, "docker", 'case $1 in inspect) echo exited:3 ;; logs) echo "sshd: no hostkeys available" ;; esac')
    word = listener_word("127.0.0.9", 1)
    done = run(script("wait_sshd", word, "20", "kit-lab-mpinode"), env={"PATH": str(bare)})
    assert done.returncode == 1
    assert done.stdout.decode().splitlines() == ["container kit-lab-mpinode: exited:3", "sshd: no hostkeys available"]


def test_wait_sshd_gives_up(bare: Path) -> None:
    stub(bare, "docker", "echo running:0")
    done = run(script("wait_sshd", listener_word("127.0.0.9", 1), "0", "c"), env={"PATH": str(bare)})
    assert done.returncode == 1
    assert b"container c: running:0" in done.stdout


def test_wait_sshd_looks_once_at_least(bare: Path) -> None:
    """However late it is when it comes to that: here a second passes at each look at /proc/uptime."""
    (bare / "cut").unlink()
    count = bare / "count"
    stub(bare, "cut", f"echo x >>{count}; wc -l <{count}")
    stub(bare, "docker", "echo running:0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        word = listener_word("127.0.0.1", server.getsockname()[1])
        done = run(script("wait_sshd", word, "0", "kit-lab-mpinode"), env={"PATH": str(bare)})
    assert done.returncode == 0
    done = run(script("wait_sshd", listener_word("127.0.0.9", 1), "0", "c"), env={"PATH": str(bare)})
    assert done.returncode == 1
    assert b"container c: running:0" in done.stdout


@pytest.mark.parametrize("step", [7200, -7200])
def test_wait_sshd_waits_as_long_whatever_the_clock_says(bare: Path, step: int) -> None:
    """A VM that has just started may set its clock by hours: here it does so each time that somebody asks."""
    for name in ("date", "cut", "sleep"):
        (bare / name).unlink()
    count = "$(($(wc -l <{}) {} ))"
    stub(bare, "date", f"echo x >>{bare}/asked; echo {count.format(f'{bare}/asked', f'* {step}')}")
    # It is a second later after each look.
    stub(bare, "cut", f"touch {bare}/slept; echo {count.format(f'{bare}/slept', '+ 5')}")
    stub(bare, "sleep", f"echo x >>{bare}/slept; [ $(wc -l <{bare}/slept) -lt 20 ] || touch {bare}/over")
    stub(bare, "docker", f"if [ -e {bare}/over ]; then echo exited:1; else echo running:0; fi")
    (bare / "touch").symlink_to(shutil.which("touch") or "")
    done = run(script("wait_sshd", listener_word("127.0.0.9", 1), "3", "c"), env={"PATH": str(bare)})
    assert b"container c: running:0" in done.stdout
    # Looks at 0, 1, 2 and 3 s.
    assert len((bare / "slept").read_text().splitlines()) == 4


def test_no_script_counts_by_a_clock_that_may_be_set() -> None:
    folders = (Path(scripts.__file__).parent, Path(setup.__file__).parent)
    lines = {(file.name, line.strip()) for folder in folders for file in folder.glob("*.sh")
             for line in file.read_text().splitlines() if "date +" in line}  # fmt: skip
    # Some print the time, beside that of a lock, a file or a data set.
    assert {name for name, _ in lines} == {"data_state.sh", "gpu_engine.sh", "lock.sh", "lock_status.sh"}
    assert not any("-le" in line or "-lt" in line or "-ge" in line for _, line in lines)


# peers


def test_peers_names_those_that_fail_and_why(bare: Path) -> None:
    stub(bare, "ssh", 'for word; do case $word in 10.0.0.1) exit 0 ;; 10.0.0.2) echo noise >&2; '
         'echo "Host key verification failed." >&2; exit 255 ;; 10.0.0.3) exit 7 ;; esac; done')  # fmt: skip
    done = run(script("peers", "10.0.0.1", "10.0.0.2", "10.0.0.3"), env={"PATH": str(bare)})
    assert sorted(done.stdout.decode().splitlines()) == [
        "10.0.0.2 Host key verification failed.", "10.0.0.3 exit 7",
    ]  # fmt: skip
