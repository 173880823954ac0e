"""The lock's scripts run for real, in temporary folders and in each shell; and kit's side of it, through a fake ssh."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.errors import Interrupted, KitError, NotReadyError, SlowError, StepError, UnreachableError
from kit.model.host import Host, Login
from kit.model.plan import ComposeUp
from kit.model.values import replace
from kit.remote.cluster import lock, steps
from kit.remote.machine.operator import operator
from kit.remote.scripts import script
from kit.remote.ssh import attempts
from kit.remote.ssh.retry import pause_s
from kit.remote.ssh.transport import Completed
from tests.fakes.head import until
from tests.pipes import rest

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
shells = pytest.mark.parametrize("shell", SHELLS)
LONG = 60.0
HEAD = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)


def argv(words: Sequence[str], shell: str = "sh") -> list[str]:
    assert words[0] == "sh"
    return [*(["busybox", "sh"] if shell == "busybox" else [shell]), *words[1:]]


def run(words: Sequence[str], shell: str = "sh") -> str:
    return subprocess.run(argv(words, shell), capture_output=True, text=True, check=False, timeout=60).stdout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kit" / ".lock" / "lab"


class Holder:
    """lock.sh at work."""

    def __init__(self, file: Path, *, shell: str = "sh", silence: str = "30", who: str = "ann@laptop") -> None:
        words = argv(script("lock", str(file), silence, who, "kit deploy"), shell)
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    @property
    def held(self) -> bool:
        return self.line == "kit-lock held\n"

    def beat(self, text: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> str:
        """The end of its input, as when kit ends however it may. Returns what it still said."""
        return rest(self.process, timeout=60)[0]

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()


@shells
def test_the_end_of_the_input_frees_the_lock_and_leaves_nothing(file: Path, shell: str) -> None:
    with Holder(file, shell=shell) as holder:
        assert holder.held
        assert oct(file.stat().st_mode & 0o777) == "0o600"
        assert oct(file.parent.stat().st_mode & 0o777) == "0o700"
        assert oct(file.parent.parent.stat().st_mode & 0o777) == "0o755"
        assert holder.beat("1") == "1\n"
        assert holder.end() == ""
    assert not file.parent.parent.exists()


@shells
def test_a_second_one_is_refused_and_hears_of_the_first(file: Path, shell: str) -> None:
    with Holder(file, shell=shell) as first:
        with Holder(file, shell=shell, who="bob@pc") as second:
            assert second.line == "kit-lock taken\n"
            rest = second.end().splitlines()
        assert f"pid {first.process.pid}" in rest
        assert "who ann@laptop" in rest
        assert "what kit deploy" in rest
        assert first.beat("still") == "still\n"
        first.end()
    with Holder(file, shell=shell, who="bob@pc") as third:
        assert third.held


@shells
def test_silence_frees_the_lock(file: Path, shell: str) -> None:
    """A line that was cut: the input does not end, but brings nothing."""
    with Holder(file, shell=shell, silence="1") as holder:
        assert holder.held
        assert holder.process.wait(LONG) == 0
        assert not file.exists()


@shells
def test_each_beat_restarts_the_time_of_silence(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    """The process that counts the seconds hears every beat. Here it counts none, and at the end says so."""
    tools = tmp_path / "bin"
    tools.mkdir()
    count = 'echo "$1" >>counted; shift; [ ! -e over ] || exit 124; exec "$@"'
    (tools / "timeout").write_text(f"#!/bin/sh\ncd {tools}\n{count}\n")
    (tools / "timeout").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with Holder(file, shell=shell, silence="17") as holder:
        for number in range(4):
            assert holder.beat(str(number)) == f"{number}\n"
            until(partial(lambda lines: (tools / "counted").read_text() == lines, "17\n" * (number + 2)))
        (tools / "over").touch()
        assert holder.beat("last") == "last\n"
        assert holder.process.wait(LONG) == 0
        assert not file.exists()


@shells
def test_a_killed_holder_leaves_a_stale_lock_that_stops_nobody(file: Path, shell: str) -> None:
    with Holder(file, shell=shell) as holder:
        assert run(script("lock_status", str(file)), shell).startswith("kit-lock held\n")
        holder.process.kill()
        holder.process.wait()
        # At once, though a child that reads the input may live a little longer.
        status = run(script("lock_status", str(file)), shell)
        assert status.startswith("kit-lock stale\n")
        assert "who ann@laptop" in status
        with Holder(file, shell=shell, who="bob@pc") as second:
            assert second.held
            status = run(script("lock_status", str(file)), shell)
            assert status.startswith("kit-lock held\n")
            assert "who bob@pc" in status
            assert "ann" not in status
            second.end()
    assert run(script("lock_status", str(file)), shell) == "kit-lock free\n"


@shells
def test_release_ends_the_holder(file: Path, shell: str) -> None:
    with Holder(file, shell=shell) as holder:
        assert run(script("lock_release", str(file), "1"), shell) == "kit-lock changed\n"
        assert holder.beat("1") == "1\n"
        assert run(script("lock_release", str(file), str(holder.process.pid)), shell) == "kit-lock released\n"
        assert holder.process.wait(60) == -signal.SIGTERM
        assert not file.parent.exists()


class Lingering:
    """What a holder that is gone may leave for a moment: a child that has the lock open, and was just begun.

    `sleep` of scripts reports its calls: the shell that waits for the child calls it.
    """

    def __init__(self, file: Path, tools: Path) -> None:
        with subprocess.Popen(["true"]) as holder:
            self.pid = holder.pid
        file.parent.mkdir(parents=True)
        file.write_text(f"pid {self.pid}\nsince 1\nwho ann@laptop\nwhat kit deploy\n")
        self._lock = file.open("a")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.waited = tools / "waited"
        tools.mkdir()
        (tools / "sleep").write_text(f'#!/bin/sh\n: >"{self.waited}"\nexec {shutil.which("sleep")} "$@"\n')
        (tools / "sleep").chmod(0o755)

    def goes_when_waited_for(self, process: subprocess.Popen[str]) -> None:
        until(lambda: self.waited.exists() or process.poll() is not None)
        self._lock.close()


@pytest.fixture
def lingering(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lingering:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Lingering(file, tmp_path / "bin")


@shells
def test_a_child_of_a_killed_holder_does_not_keep_the_next_out(file: Path, lingering: Lingering, shell: str) -> None:
    words = argv(script("lock", str(file), "30", "bob@pc", "kit deploy"), shell)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        lingering.goes_when_waited_for(second)
        assert second.communicate(timeout=LONG)[0] == "kit-lock held\n"
    assert not file.exists()


@shells
def test_a_child_of_an_ended_holder_does_not_stop_a_release(file: Path, lingering: Lingering, shell: str) -> None:
    words = argv(script("lock_release", str(file), str(lingering.pid)), shell)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as release:
        lingering.goes_when_waited_for(release)
        assert release.communicate(timeout=LONG)[0] == "kit-lock released\n"
    assert not file.exists()


def test_release_ends_a_holder_that_hangs(file: Path) -> None:
    with Holder(file) as holder:
        holder.process.send_signal(signal.SIGSTOP)
        # A TERM that comes before it is stopped would end it.
        os.waitid(os.P_PID, holder.process.pid, os.WSTOPPED)
        assert run(script("lock_release", str(file), str(holder.process.pid))) == "kit-lock released\n"
        assert holder.process.wait(60) == -signal.SIGKILL


def test_release_ends_no_process_that_does_not_hold_the_lock(file: Path) -> None:
    """The number of a holder that is gone may be anybody's by now."""
    file.parent.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as innocent:
        file.write_text(f"pid {innocent.pid}\nsince 1\nwho ann@laptop\nwhat kit deploy\n")
        assert run(script("lock_status", str(file))).startswith("kit-lock stale\n")
        assert run(script("lock_release", str(file), str(innocent.pid))) == "kit-lock released\n"
        assert innocent.poll() is None
        innocent.kill()
    assert not file.exists()


def test_release_of_nothing(file: Path) -> None:
    assert run(script("lock_release", str(file), "1")) == "kit-lock released\n"


def test_without_flock(file: Path, tmp_path: Path) -> None:
    for tool in ("sh", "cat"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    done = subprocess.run(
        script("lock", str(file), "30", "a@b", "kit deploy"),
        env={"PATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"kit-lock no-flock\n"
    assert not file.parent.exists()


@shells
def test_never_two_at_once(file: Path, shell: str) -> None:
    """Each takes the lock and gives it back at once, so that file and folders come and go under the others."""
    inside, most, held = 0, 0, 0
    counter = threading.Lock()

    def one() -> None:
        nonlocal inside, most, held
        for _ in range(12):
            with Holder(file, shell=shell) as holder:
                if not holder.held:
                    assert holder.line == "kit-lock taken\n", holder.process.stderr and holder.process.stderr.read()
                    continue
                with counter:
                    inside += 1
                    held += 1
                    most = max(most, inside)
                time.sleep(0.002)
                with counter:
                    inside -= 1
                holder.end()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert held >= 12
    assert not file.parent.parent.exists()


# Compose under its lock


@pytest.fixture
def compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """compose_up.sh with a docker that is this shell script. Returns its words."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "compose.yaml").touch()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)

    def words(docker: str) -> list[str]:
        (tools / "docker").write_text(f"#!/bin/sh\n{docker}\n")
        (tools / "docker").chmod(0o755)
        return list(script("compose_up", str(tmp_path / "lab"), "--force-recreate"))

    return words


def test_compose_up_passes_on_how_it_ended(compose: Callable[[str], list[str]], tmp_path: Path) -> None:
    done = subprocess.run(compose('echo "$*"; echo why >&2; exit 3'), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    up = f"compose --file {tmp_path}/lab/compose.yaml up --detach --remove-orphans --force-recreate"
    assert done.stderr.splitlines() == [up, "why"]
    quiet = subprocess.run(compose("echo much"), capture_output=True, text=True, check=False)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


def test_compose_up_makes_the_mounted_folders_itself(compose: Callable[[str], list[str]], tmp_path: Path) -> None:
    """An engine that remaps users would make them for its own root."""
    seen = compose('stat -c "%A %n" lab/var lab/tmp >seen')
    assert subprocess.run(seen, umask=0o077, check=False).returncode == 0
    assert (tmp_path / "seen").read_text() == "drwxr-xr-x lab/var\ndrwxr-xr-x lab/tmp\n"


def test_compose_comes_to_its_end_where_nobody_listens_any_more(
    compose: Callable[[str], list[str]], tmp_path: Path
) -> None:
    words = compose("echo begun >log; sleep 0.5; echo more; echo more >&2; echo ended >>log")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "log").exists():
            time.sleep(0.01)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
    assert (tmp_path / "log").read_text() == "begun\nended\n"


def test_a_second_compose_waits_for_the_first(compose: Callable[[str], list[str]], tmp_path: Path) -> None:
    words = compose("echo begun >>log; sleep 0.3; echo ended >>log")
    with subprocess.Popen(words) as first, subprocess.Popen(words) as second:
        assert (first.wait(), second.wait()) == (0, 0)
    assert (tmp_path / "log").read_text() == "begun\nended\n" * 2


def test_what_a_killed_down_removed_while_compose_waited_for_it(
    compose: Callable[[str], list[str]], tmp_path: Path
) -> None:
    compose('echo "open $3: no such file or directory"; exit 14')
    (tmp_path / "lab" / "compose.yaml").unlink()
    up = ComposeUp(folder=str(tmp_path / "lab"), project="kit-lab", recreate=False, why="")
    execution: Any = SimpleNamespace(cluster="lab")
    with pytest.raises(StepError, match=r"/lab was removed meanwhile, as by an earlier kit down$") as caught:
        steps.compose_up(execution, Here(), up)
    assert caught.value.hint == "run: kit deploy"


@pytest.mark.parametrize("name", ["remove", "swarm_remove"])
def test_a_look_and_a_deploy_wait_for_what_a_killed_down_still_removes(
    compose: Callable[[str], list[str]], tmp_path: Path, name: str
) -> None:
    # Of a manager. Every question after that of its state comes while kit's things are removed.
    lock = tmp_path / ".lock" / "lab.compose"
    compose(f'[ "$1" != info ] || {{ echo true active n1; exit; }}; flock -n {lock} true 9>&-; echo $? >>log')
    arguments = (str(tmp_path / "lab"), "all")
    assert (
        subprocess.run(list(script(name, "none-such", *arguments)), stdout=subprocess.PIPE, check=False).returncode == 0
    )
    asked = (tmp_path / "log").read_text().split()
    assert asked
    assert {*asked} == {"1"}
    # It ends with the script.
    assert subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 0


# The audit


def test_the_audit_grows_by_lines(tmp_path: Path) -> None:
    folder, there = tmp_path / "lab", tmp_path / ".audit" / "lab"

    def append(text: str) -> None:
        subprocess.run(script("audit", str(folder), str(there)), input=text, text=True, check=True)

    append("one\n")
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    for text in ("one\n", "two\n", "three\n"):
        append(text)
    assert (oct(there.stat().st_mode & 0o777), oct(there.parent.stat().st_mode & 0o777)) == ("0o600", "0o700")
    assert run(script("tail", str(there), "2")) == "two\nthree\n"
    # A disk was full meanwhile.
    there.write_text("one\ntw")
    append("three\n")
    append("four\n")
    assert there.read_text() == "one\ntw\nthree\nfour\n"
    # The VM lost its power, and its file system left zeros.
    there.write_bytes(b"one\n\0\0")
    append("two\n")
    assert there.read_bytes() == b"one\n\0\0\ntwo\n"
    assert run(script("tail", str(folder / "none"), "2")) == ""


# kit's side

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)
Ssh = Callable[[str], None]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    """An ssh on the PATH that is this shell script; `$last` in it is the remote command."""

    def make(text: str) -> None:
        tools = tmp_path / "ssh-bin"
        tools.mkdir(exist_ok=True)
        (tools / "ssh").write_text(f"#!/bin/sh\nfor last; do :; done\n{text}\n")
        (tools / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    make('echo "Welcome to gpu1"; exec sh -c "$last"')
    return make


@contextlib.contextmanager
def taken(file: Path) -> Iterator[lock.Lock]:
    held = lock.take(HEAD, str(file), "kit deploy")
    try:
        yield held
    finally:
        held.release()


def lost(held: lock.Lock) -> bool:
    try:
        held.check()
    except NotReadyError:
        return True
    return False


class Here:
    """A transport to this machine."""

    host = Host(name="gpu1", address="10.0.0.1")

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=timeout_s)
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        pass


def test_kit_stops_believing_before_the_vm_does() -> None:
    assert lock.BEAT_S < lock.TRUST_S < lock.SILENCE_S


@needs_root
class TestKitsSide:
    def test_take_look_release(self, ssh: Ssh, file: Path) -> None:
        with taken(file) as held:
            held.check()
            status = lock.look(Here(), "lab", str(file))
            assert status.state == "held"
            assert status.holder is not None
            assert (status.holder.who, status.holder.what) == (operator(), "kit deploy")
            assert status.holder.since.startswith("20")
            assert 0 <= status.holder.age_s < 60
        assert lock.look(Here(), "lab", str(file)).state == "free"
        assert not file.parent.exists()
        # Threads of a change check it once more while Ctrl-C ends the change: nobody lost the lock.
        with pytest.raises(Interrupted):
            held.check()

    def test_the_second_sees_who_and_what_to_do(self, ssh: Ssh, file: Path) -> None:
        with taken(file), pytest.raises(NotReadyError) as caught:
            lock.take(HEAD, str(file), "kit down")
        assert f"{operator()} holds the lock of the cluster since 20" in caught.value.message
        assert caught.value.message.endswith("for kit deploy")
        assert "kit lock release" in str(caught.value.hint)
        assert (caught.value.host, caught.value.exit_code) == ("gpu1", 5)

    def test_one_that_is_taken_away_is_noticed(self, ssh: Ssh, file: Path) -> None:
        with taken(file) as held:
            status = lock.look(Here(), "lab", str(file))
            lock.take_away(Here(), str(file), status.holder)
            until(lambda: lost(held))
            with taken(file):
                with pytest.raises(NotReadyError, match="another holder"):
                    lock.take_away(Here(), str(file), status.holder)
                assert lock.look(Here(), "lab", str(file)).state == "held"

    def test_beats_keep_it(self, ssh: Ssh, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = 1000.0
        monkeypatch.setattr(lock, "_now", lambda: clock)
        monkeypatch.setattr(lock, "BEAT_S", 0.05)
        with taken(file) as held:
            assert isinstance(held, lock.SshLock)

            def beat_of_now_is_back() -> bool:
                return held._sure == clock

            for passed in (0.9, 0.9, 0.9):
                clock += passed * lock.TRUST_S
                held.check()
                until(beat_of_now_is_back)
            clock += 1.1 * lock.TRUST_S
            until(beat_of_now_is_back)
            held.check()

    def test_kit_gives_up_before_the_vm_does(self, ssh: Ssh, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A line that swallows the beats: kit takes the lock for lost while the VM still holds it."""
        clock = 1000.0
        monkeypatch.setattr(lock, "_now", lambda: clock)
        monkeypatch.setattr(lock, "BEAT_S", 0.1)
        ssh('echo "kit-lock held"; exec sleep 60')
        held = lock.take(HEAD, str(file), "kit deploy")
        try:
            clock += 0.9 * lock.TRUST_S
            held.check()
            clock += 0.2 * lock.TRUST_S
            with pytest.raises(NotReadyError):
                held.check()
        finally:
            monkeypatch.setattr(lock, "RELEASE_TIMEOUT_S", 0.1)
            held.release()


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("echo 'kit-lock no-flock'; exit 1", StepError, "there is no flock"),
        ("echo 'Connection refused' >&2; exit 255", UnreachableError, "to root@10.0.0.1: Connection refused"),
        ("echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255", UnreachableError,
         "hung up"),
        ("echo 'sudo: a password is required' >&2; exit 1", StepError, "cannot be held: sudo: a password"),
        ("echo 'kit-lock taken'; exit 1", NotReadyError, "somebody holds the lock"),
    ],
)  # fmt: skip
def test_a_lock_that_cannot_be_had(  # noqa: PLR0917
    ssh: Ssh, file: Path, text: str, kind: type[KitError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*words: Any) -> float | None:
        return None if pause_s(*words) is None else 0.001

    monkeypatch.setattr(attempts, "pause_s", none)
    ssh(text)
    with pytest.raises(kind, match=words) as caught:
        lock.take(HEAD, str(file), "kit deploy")
    assert caught.value.host == "gpu1"
    assert caught.value.hint


def test_a_head_whose_shell_hangs_is_not_waited_for_without_end(ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    """sshd lets kit in, and then nothing comes: its disk hangs, for example."""
    monkeypatch.setattr(lock, "ANSWER_S", 0.01)
    ssh("exec sleep 60")
    with pytest.raises(SlowError, match="did not answer within 0 s whether the lock") as caught:
        lock.take(HEAD, "/kit/lab", "kit down")
    assert caught.value.host == "gpu1"
    assert "kit ssh gpu1" in str(caught.value.hint)


def test_the_limit_of_the_answer_does_not_end_a_lock_that_is_held(ssh: Ssh, file: Path) -> None:
    ssh('echo "kit-lock held"; exec cat')
    with taken(file) as held:
        until(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))
        held.check()


@needs_root
def test_a_kept_connection_that_is_dead_is_replaced_once(ssh: Ssh, file: Path, tmp_path: Path) -> None:
    """The master is gone or its host rebooted: ssh ends with 255 and often prints nothing."""
    socket = tmp_path / "socket"
    head = replace(HEAD, socket=str(socket))
    socket.touch()
    ssh(f'rm {socket} 2>/dev/null && exit 255; exec sh -c "$last"')
    held = lock.take(head, str(file), "kit deploy")
    held.check()
    held.release()
    socket.touch()
    ssh(f"echo try >>{tmp_path}/tries; exit 255")
    with pytest.raises(UnreachableError, match="exit 255"):
        lock.take(head, str(file), "kit deploy")
    assert (tmp_path / "tries").read_text() == "try\n" * 2


@needs_root
def test_a_head_that_hangs_up_is_asked_again(ssh: Ssh, file: Path, tmp_path: Path) -> None:
    hung_up = "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255"
    ssh(f'[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; {hung_up}; }}; exec sh -c "$last"')
    with taken(file) as held:
        held.check()


def test_what_ssh_is_asked_is_quoted(ssh: Ssh, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "operator", lambda: "a'b;c@d")
    ssh(f'printf %s "$last" >{tmp_path}/calls; echo "kit-lock no-flock"')
    with pytest.raises(StepError):
        lock.take(HEAD, str(file), "kit deploy")
    assert shlex.split((tmp_path / "calls").read_text())[-4:] == [str(file), "30", "a'b;c@d", "kit deploy"]
