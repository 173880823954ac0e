"""A launch from kit's side, against a fake ssh on the PATH that runs the launcher here, or misbehaves."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kit.errors import KitError, NotReadyError, StepError, UnreachableError
from kit.events import OutputLine
from kit.model.host import Host, Login
from kit.model.launch import LaunchPlan, Placement
from kit.remote.launch import Ended, Launch, new_run_id, sweep
from kit.remote.transport import Completed
from tests.fakes import launcher
from tests.fakes.facts import host, node
from tests.fakes.reporter import Remembering

HEAD = Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None)

Ssh = Callable[[str], Launch]


@pytest.fixture
def reporter() -> Remembering:
    return Remembering()


@pytest.fixture
def with_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reporter: Remembering) -> Ssh:
    """A launch whose ssh is this shell script; `$last` in it is the remote command."""

    def make(script: str) -> Launch:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        file = folder / "ssh"
        file.write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return Launch(HEAD, "kit-lab-mpihead", reporter)

    return make


@pytest.fixture
def local(tmp_path: Path, with_ssh: Ssh) -> Launch:
    """ssh runs the remote command here, and docker exec runs the launcher."""
    (tmp_path / "cluster.json").write_text('{"kit": 1, "name": "lab"}\n')
    launch = with_ssh('exec sh -c "$last"')
    argv = shlex.join(launcher.argv(tmp_path / "cluster.json", tmp_path / "runs", grace_s=0.5))
    docker = tmp_path / "bin" / "docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >"{tmp_path}/docker-told"\nexec {argv}\n')
    docker.chmod(0o755)
    return launch


def plan(*argv: str, **env: str) -> LaunchPlan:
    placement = Placement(nodes=(node(1),), counts=(1,))
    return LaunchPlan(run_id="r1", placement=placement, hostfile="10.0.0.1 slots=1\n", argv=argv, env=env)


def texts(reporter: Remembering, stream: str = "stdout") -> list[str]:
    return [line.text for line in reporter.lines if line.stream == stream]


@pytest.mark.skipif(os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password")
class TestAgainstTheLauncher:
    def test_one_that_is_abandoned_ends(self, local: Launch, tmp_path: Path) -> None:
        local.start()
        local.abandon()
        assert local.leads_to(HEAD, "kit-lab-mpihead")
        assert not local.leads_to(HEAD, "kit-other-mpihead")
        assert not (tmp_path / "runs").exists()

    def test_a_whole_launch(self, local: Launch, reporter: Remembering, tmp_path: Path) -> None:
        local.open()
        assert json.loads(local.record) == {"kit": 1, "name": "lab"}
        told = (tmp_path / "docker-told").read_text()
        assert told == "exec --interactive kit-lab-mpihead python3 -IS /opt/kit/bin/kit-launch\n"
        ended = local.run(plan("sh", "-c", 'echo "one  $A"; echo two; echo bad >&2', A="a b"), tagged=False)
        local.close()
        assert ended == Ended(exit_code=0, stopped=False)
        assert texts(reporter) == ["one  a b", "two"]
        assert texts(reporter, "stderr") == ["bad"]

    @pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
    def test_the_exit_code_is_the_jobs(self, local: Launch, script: str, code: int) -> None:
        local.open()
        assert local.run(plan("sh", "-c", script), tagged=False).exit_code == code

    def test_half_a_line_before_the_mark_is_still_a_line(self, local: Launch, reporter: Remembering) -> None:
        local.open()
        ended = local.run(plan("sh", "-c", "printf half >&2; printf last; exit 4"), tagged=False)
        assert ended.exit_code == 4
        assert texts(reporter, "stderr") == ["half"]
        assert texts(reporter) == ["last"]

    def test_a_rank_cannot_pass_for_the_launcher(self, local: Launch, reporter: Remembering) -> None:
        script = r"printf '\036kit-exit nonsense\n\036kit-exit 0 and more\n' >&2; exit 3"
        local.open()
        assert local.run(plan("sh", "-c", script), tagged=False).exit_code == 3
        assert len(texts(reporter, "stderr")) == 2

    @pytest.mark.parametrize("tagged", [True, False])
    def test_ranks_become_sources_when_asked_for(self, tagged: bool, local: Launch, reporter: Remembering) -> None:
        script = r"printf '\036kit-line 13 o . 7\nhi 13\nx\036kit-line 2 e . 2\ne\n' >&2; echo mpirun"
        local.open()
        local.run(plan("sh", "-c", script), tagged=tagged)
        source = ["13", "2"] if tagged else ["", ""]
        assert sorted(reporter.lines, key=lambda line: line.text) == [
            OutputLine(text="e", stream="stderr", source=source[1]),
            OutputLine(text="hi 13", stream="stdout", source=source[0]),
            OutputLine(text="mpirun", stream="stdout", source=""),
            OutputLine(text="x", stream="stdout", source=source[0]),
        ]

    def test_bytes_that_are_no_text(self, local: Launch, reporter: Remembering) -> None:
        local.open()
        local.run(plan("printf", r"a\377b\n"), tagged=False)
        assert texts(reporter) == ["a\ufffdb"]

    def test_the_harmless_warning_is_dropped(self, local: Launch, reporter: Remembering) -> None:
        warning = "[gpu1:1] plm:rsh: Warning: setpgid(1,1) failed in parent with errno=Permission denied(13)"
        local.open()
        local.run(plan("sh", "-c", f"echo '{warning}' >&2; echo kept >&2"), tagged=False)
        assert texts(reporter, "stderr") == ["kept"]

    def test_stop(self, local: Launch, reporter: Remembering) -> None:
        local.open()
        up = threading.Event()
        report = reporter.report

        def watch(event: object) -> None:
            report(event)  # type: ignore[arg-type]
            up.set()

        reporter.report = watch  # type: ignore[method-assign, assignment]
        running = threading.Thread(
            target=local.run, args=(plan("sh", "-c", "echo up; exec sleep 600"),), kwargs={"tagged": False}
        )
        running.start()
        assert up.wait(30)
        assert local.stop() == Ended(exit_code=143, stopped=True)
        running.join(30)
        assert not running.is_alive()

    def test_close_before_any_launch(self, local: Launch, tmp_path: Path) -> None:
        local.open()
        local.close()
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("script", "kind", "message", "hint"),
    [
        ("echo 'ssh: connect to host 10.0.0.1 port 22: Connection refused' >&2; exit 255", UnreachableError,
         "no SSH connection to 10.0.0.1: ssh: connect", "ssh 10.0.0.1"),
        ("echo 'sudo: a password is required' >&2; exit 1", NotReadyError, "cannot become root", "sudo without"),
        ("echo 'Error response from daemon: No such container: kit-lab-mpihead' >&2; exit 1", NotReadyError,
         "no cluster runs here", "run: kit deploy"),
        ("echo 'Error response from daemon: container 12 is not running' >&2; exit 1", NotReadyError,
         "no cluster runs here", "run: kit deploy"),
        ("echo 'sh: 1: exec: docker: not found' >&2; exit 127", NotReadyError, "launcher did not start", "kit deploy"),
        ("exit 0", NotReadyError, "did not start: exit 0", "kit deploy"),
        ("echo welcome to gpu1; echo '{\"json\": 1}'; exit 0", NotReadyError, "did not start", "kit deploy"),
    ],
)  # fmt: skip
def test_a_launcher_that_does_not_answer(
    with_ssh: Ssh, script: str, kind: type[KitError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        with_ssh(script).open()
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.host == "gpu1"


HELLO = """echo '{"kit-launch": 1, "record": "r"}'"""


def test_a_login_that_says_something_of_its_own(with_ssh: Ssh) -> None:
    launch = with_ssh(f"echo 'Welcome to Ubuntu'; echo; {HELLO}; cat >/dev/null")
    launch.open()
    launch.close()
    assert launch.record == "r"


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        (f"{HELLO}; read -r line; exit 255", UnreachableError, "the connection to the head broke"),
        (f"{HELLO}; read -r line; exit 137", NotReadyError, "without a word (exit 137)"),
        # It is gone before it is asked.
        (f"{HELLO}; exec <&-; exit 137", NotReadyError, "without a word (exit 137)"),
    ],
)
def test_a_launcher_that_goes(with_ssh: Ssh, script: str, kind: type[KitError], message: str) -> None:
    launch = with_ssh(script)
    launch.open()
    with pytest.raises(kind) as caught:
        launch.run(plan("true", LONG="x" * 200_000), tagged=False)
    assert message in caught.value.message
    assert caught.value.host == "gpu1"
    assert launch.stop() is None


class Answering:
    """A transport that gives each host its own answer."""

    def __init__(self, answers: dict[str, Completed | KitError], one: Host) -> None:
        self.host = one
        self._answers = answers

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        answer = self._answers[self.host.name]
        if isinstance(answer, KitError):
            raise answer
        return answer

    def close(self) -> None:
        pass


def test_sweep_does_not_take_silence_for_none() -> None:
    answers: dict[str, Completed | KitError] = {
        "gpu1": Completed(code=0, stdout=b"0\n", stderr=b""),
        "gpu2": Completed(code=0, stdout=b"2\n", stderr=b""),
        "gpu3": Completed(code=1, stdout=b"", stderr=b"sudo: a password is required"),
        "gpu4": Completed(code=0, stdout=b"", stderr=b""),
        "gpu5": UnreachableError("gone", host="gpu5"),
    }
    left, failures = sweep([host(n) for n in range(1, 6)], "r1", lambda one: Answering(answers, one))
    assert left == {"gpu1": 0, "gpu2": 2}
    assert set(failures) == {"gpu3", "gpu4", "gpu5"}
    assert isinstance(failures["gpu3"], StepError)


def test_run_ids_differ_and_sort_by_time() -> None:
    first, second = new_run_id(), new_run_id()
    assert first != second
    assert first[:8].isdigit()
    assert "/" not in first
