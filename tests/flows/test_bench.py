"""kit bench on VMs in memory, with a real launcher and programs that only pretend to measure."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.errors import InputError, Interrupted, KitError, NotReadyError, UnreachableError
from kit.events import OutputLine, Phase
from kit.flows.bench import listing
from kit.flows.bench.facts import _without_values, look
from kit.flows.bench.launch import Kept
from kit.flows.bench.measure import BenchRequest, BenchResult, bench, bench_plan
from kit.flows.context import Context
from kit.flows.queue.cordon import cordon
from kit.flows.run.run import run
from kit.model.bench import META, SAMPLES, Sample
from kit.model.launch import RunRequest
from kit.model.result import RunResult
from kit.model.values import replace
from kit.plan.bench.cases import LADDER, BenchOptions
from kit.plan.bench.record import samples_of
from kit.plan.run.logevents import FIRST_RANK
from kit.remote.bench.session_folder import BenchFolder, find, sessions
from tests.fakes.cluster import Cluster
from tests.fakes.fleet import Fleet
from tests.fakes.head import until
from tests.fakes.reporter import Remembering

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)

# What they print is what their namesakes in the image print, with figures that nobody measured.
PROGRAMS = {
    "true": "exit 0",
    "hvd_check": """echo '{"right": true, "ranks": RANKS}'""",
    "mpi_perf": """echo '{"workload": "perf", "ranks": RANKS, "through": "mpi", "hosts": 1, "tests": []}'""",
    "mxnet_benchmark": """echo a word first >&2
echo '{"workload": "training", "simulated": false, "ranks": RANKS, "img_sec_total": 1.5, "iters": [1.5]}'""",
}


class Bench:
    """A cluster whose ranks find such programs, and a folder for sessions."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.calls = folder / "calls"
        folder.mkdir()
        for name, text in PROGRAMS.items():
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        """On rank 0, each call is a line of `calls`."""
        file = self.cluster.head.folder / "bin" / name
        text = text.replace("RANKS", "'$OMPI_COMM_WORLD_SIZE'")
        begin = f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exit 0\necho {name} "$OMPI_COMM_WORLD_SIZE" >>{self.calls}\n'
        file.write_text(f"#!/bin/sh\n{begin}{text}\n")
        file.chmod(0o755)

    @property
    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def context(self, **spec: object) -> Context:
        return replace(self.cluster.context(**spec), folder=self.folder)

    def run(self, *, resume: str | None = None, force: bool = False, now: bool = False, **choices: Any) -> BenchResult:
        folder = choices.pop("folder", None)
        given = {"preset": "egs", "ranks": (1, 2), "repeats": 2, **choices} if resume is None else {}
        spec = given.pop("spec", {}) if resume is None else choices.get("spec", {})
        request = BenchRequest(options=BenchOptions(**given), resume=resume, folder=folder, force=force, now=now)
        return bench(self.context(**spec), request)

    def samples(self) -> Sequence[Sample]:
        return samples_of((sessions(self.folder)[-1] / SAMPLES).read_text())


@pytest.fixture
def one(cluster: Cluster, tmp_path: Path) -> Bench:
    return Bench(cluster, tmp_path / "work")


def kept(samples: Sequence[Sample]) -> list[tuple[str, int, bool]]:
    return [(sample.case.rpartition("/")[2], sample.repeat, sample.warmup) for sample in samples]


def test_a_whole_session(one: Bench) -> None:
    result = one.run()
    assert result.failed == ()
    assert kept(result.samples) == [
        ("2", 1, True), ("1", 1, False), ("2", 1, False), ("1", 2, False), ("2", 2, False),
    ]  # fmt: skip
    assert [sample.result["ranks"] for sample in result.samples] == [2, 1, 2, 1, 2]
    assert one.called == [f"mxnet_benchmark {n}" for n in (2, 1, 2, 1, 2)]
    # What is on the disk is what came back.
    assert one.samples() == result.samples
    session = json.loads((result.folder / META).read_text())
    assert result.folder.parent == one.folder / "bench"
    assert (session["preset"], session["cluster"], len(session["cases"])) == ("egs", "lab", 2)
    assert [host["name"] for host in session["facts"]["hosts"]] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    phases = [event.name for event in one.cluster.reporter.of(Phase)]
    assert phases[-1].startswith("5/5  mxnet resnet18_v1, 2 ranks  (2 of 2; about ")
    one.cluster.head.nothing_left()


def test_a_sample_says_what_its_run_used(one: Bench) -> None:
    one.cluster.head.values.update(attempt_GUARD_AFTER_S=0.0, metrics_EVERY_S=0.05)
    one.cluster.reach()
    # It goes on until somebody has read its host and seen it there. The first reading may come before the rank.
    name, file = "mxnet_benchmark", "$KIT_OUTPUT_DIR/../metrics.jsonl"
    seen = f"""grep -qs '"memory":[1-9]' {file}"""
    one.program(name, f"until {seen}; do sleep 0.05; done\n{PROGRAMS[name]}")
    one.run(ranks=(1,), repeats=1)
    samples = one.samples()
    assert samples
    for sample in samples:
        assert sample.used is not None
        assert sample.used["memory"] > 0
        assert sample.used["of_cores"] == os.cpu_count()


@pytest.mark.parametrize("source", FIRST_RANK)
def test_what_the_first_rank_prints_is_kept_however_it_is_headed(reporter: Remembering, source: str) -> None:
    kept = Kept(reporter, show=False)
    for name in (source, "1", "worker 1", "server 0", "scheduler"):
        kept.report(OutputLine(text=f"from {name}", stream="stdout", source=name))
    assert list(kept.lines) == [f"from {source}"]


def test_the_ladder(one: Bench) -> None:
    result = one.run(preset=LADDER, ranks=(1, 8), repeats=1)
    assert result.failed == ()
    assert [call.split()[0] for call in one.called] == [
        "true", "hvd_check", "mpi_perf", "mpi_perf", "mxnet_benchmark", "mxnet_benchmark", "mxnet_benchmark",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("program", "text", "rung", "why"),
    [
        ("true", "exit 3", "reach", "exit code 3"),
        ("hvd_check", """echo '{"right": false, "ranks": RANKS}'""", "hello", "a wrong sum"),
        ("hvd_check", """echo '{"right": true, "ranks": 3}'""", "hello", "3 ranks took part, and not 8"),
        ("mpi_perf", "echo no object", "ring", "mpi_perf ended well and printed no result"),
        ("mxnet_benchmark", "echo out of luck >&2; exit 9", "training", "out of luck"),
    ],
)
def test_the_ladder_ends_at_the_rung_that_fails(one: Bench, program: str, text: str, rung: str, why: str) -> None:
    one.program(program, text)
    result = one.run(preset=LADDER, ranks=(), repeats=1)
    (failed,) = result.failed
    assert result.samples[-1] == failed
    assert why in (failed.failure or "")
    warning = one.cluster.reporter.warnings[-1]
    assert warning.text.startswith(f"rung {rung} failed: ")
    assert "Once it passes, it proves that" in warning.text
    assert warning.hint
    one.cluster.head.nothing_left()


def test_a_host_that_is_away_is_where_the_ladder_ends(one: Bench) -> None:
    one.cluster.fleet["gpu3"].faults.add("unreachable")
    result = one.run(preset=LADDER, ranks=(), repeats=1)
    assert [sample.case for sample in result.samples] == ["reach"]
    assert "gpu3: no SSH connection" in (result.failed[0].failure or "")
    # A table of a cluster that is not whole would be none of it.
    with pytest.raises(UnreachableError, match="no SSH connection"):
        one.run()


def test_in_a_preset_the_others_go_on(one: Bench) -> None:
    one.program("mxnet_benchmark", f"[ $OMPI_COMM_WORLD_SIZE = 1 ] && exit 5\n{PROGRAMS['mxnet_benchmark']}")
    result = one.run()
    assert [sample.case.rpartition("/")[2] for sample in result.failed] == ["1"]
    # What failed is not tried again and again.
    assert kept(result.samples) == [("2", 1, True), ("1", 1, False), ("2", 1, False), ("2", 2, False)]
    # But when the session is resumed.
    one.program("mxnet_benchmark", PROGRAMS["mxnet_benchmark"])
    again = one.run(resume="")
    assert again.failed == ()
    assert again.folder == result.folder
    assert sorted(kept(one.samples())) == [
        ("1", 1, False),
        ("1", 2, False),
        ("2", 1, False),
        ("2", 1, True),
        ("2", 2, False),
    ]


def test_a_case_that_takes_too_long(one: Bench) -> None:
    one.program("mxnet_benchmark", "sleep 600")
    result = one.run(ranks=(1,), timeout_s=0.5)
    assert [(sample.failure is not None and "0.5" in sample.failure) or sample.failure for sample in result.failed] == [
        True
    ]
    one.cluster.head.nothing_left()


def test_now_reaches_every_run(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def noted(context: Context, request: RunRequest) -> RunResult:
        asked.append(request.now)
        return run(context, request)

    monkeypatch.setattr("kit.flows.bench.launch.run", noted)
    one.run(ranks=(1,))
    count = len(asked)
    one.run(ranks=(1,), now=True)
    assert asked == [False] * count + [True] * count


def test_ctrl_c_at_the_very_end_of_a_run_ends_the_session(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(context: Context, request: RunRequest) -> RunResult:
        return replace(run(context, request), interrupted=len(one.called) == 2)

    monkeypatch.setattr("kit.flows.bench.launch.run", late)
    mine = one.folder / "bench" / "mine"
    with pytest.raises(Interrupted, match=r"had ended by itself; .* 1 samples are kept in") as caught:
        one.run(folder=mine)
    # Its id would name no folder.
    assert f"kit bench --resume --session {mine};" in (caught.value.hint or "")
    # The Ctrl-C may have disturbed its result.
    assert kept(one.run(resume="").samples) == [
        ("2", 1, True), ("1", 1, False), ("2", 1, False), ("1", 2, False), ("2", 2, False),
    ]  # fmt: skip


def test_ctrl_c_keeps_what_there_is_and_resume_goes_on(one: Bench) -> None:
    # The third launch waits for somebody to be impatient.
    hang = f"[ $(wc -l <{one.calls}) = 3 ] && sleep 600\n"
    one.program("mxnet_benchmark", hang + PROGRAMS["mxnet_benchmark"])

    def press() -> None:
        until(lambda: len(one.called) == 3)
        # Before kit counts them, and between two runs, this would end the tests.
        until(lambda: signal.getsignal(signal.SIGINT) is not signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(Interrupted, match="2 samples are kept in") as caught:
        one.run()
    finger.join()
    one.cluster.head.nothing_left()
    name = sessions(one.folder)[-1].name
    assert "kit bench --resume" in (caught.value.hint or "")
    assert name in (caught.value.hint or "")
    assert kept(one.samples()) == [("2", 1, True), ("1", 1, False)]
    # Half a line, as a kit that is killed may leave it.
    with (sessions(one.folder)[-1] / SAMPLES).open("a") as file:
        file.write('{"case": "egs/mx')
    before = (sessions(one.folder)[-1] / META).read_bytes()
    result = one.run(resume=name[:12])
    assert kept(result.samples)[2:] == [("2", 1, False), ("1", 2, False), ("2", 2, False)]
    assert one.samples() == result.samples
    assert len(one.called) == 6
    assert (sessions(one.folder)[-1] / META).read_bytes() == before
    # And there is nothing more to do.
    assert one.run(resume="").samples == result.samples
    assert len(one.called) == 6


def test_a_session_of_a_cluster_that_changed(one: Bench) -> None:
    one.run(repeats=1)
    with pytest.raises(InputError, match=r"the cluster has changed since .*settings") as caught:
        one.run(resume="", spec={"env": {"HOROVOD_CYCLE_TIME": "9"}})
    assert "--force" in (caught.value.hint or "")
    one.run(resume="", force=True, spec={"env": {"HOROVOD_CYCLE_TIME": "9"}})
    assert any("has changed since" in warning.text for warning in one.cluster.reporter.warnings)
    with pytest.raises(InputError, match="a session of cluster lab"):
        bench(replace(one.context(), spec=replace(one.context().spec, name="other")),
              BenchRequest(options=BenchOptions(), resume=""))  # fmt: skip


def test_a_session_has_the_slots_that_its_runs_have(one: Bench) -> None:
    """Those of the hosts file, although the cluster was deployed with others."""
    one.run(repeats=1)
    vm = one.cluster.fleet["gpu1"]
    vm.host = replace(vm.host, slots=5)
    survey = look(one.context())
    assert (survey.facts.nodes[0].slots, survey.recorded["nodes"][0]["slots"]) == (5, 5)
    assert [host["slots"] for host in survey.recorded["hosts"]] == [5, 2, 2, 2]
    with pytest.raises(InputError, match=r"the cluster has changed since .*hosts"):
        one.run(resume="")


def test_a_session_of_an_earlier_kit_goes_on(one: Bench) -> None:
    """An earlier kit recorded fewer fields of a node and of mpi."""
    file = one.run(repeats=1).folder / META
    session = json.loads(file.read_text())
    del session["facts"]["nodes"][0]["mig"], session["facts"]["settings"]["mpi"]["allreduce"]
    file.write_text(json.dumps(session))
    one.run(resume="")
    session["facts"]["nodes"][0]["cores"] += 1
    file.write_text(json.dumps(session))
    with pytest.raises(InputError, match=r"the cluster has changed since .*hosts"):
        one.run(resume="")


def test_beside_another_run_it_does_not_begin(one: Bench) -> None:
    one.cluster.fleet["gpu1"].living = ["20261121-101500-3fa2"]
    with pytest.raises(NotReadyError, match=r"other runs are active.*20261121-101500-3fa2") as caught:
        one.run(repeats=1, ranks=(1,))
    assert "--force" in (caught.value.hint or "")
    assert not (one.folder / "bench").exists()
    result = one.run(repeats=1, ranks=(1,), force=True)
    assert all("another run was on the cluster" in (sample.disturbed or "") for sample in result.samples)


def test_cordoned_hosts_are_not_measured(one: Bench) -> None:
    """kit run leaves them out, so a case of all hosts would lack slots. A broken one may also be away."""
    cordon(one.context(), "gpu[2,4]", "moved")
    one.cluster.fleet["gpu1"].cordoned = True
    one.cluster.fleet["gpu4"].faults.add("unreachable")
    result = one.run(repeats=1)
    assert [node["name"] for node in result.session.facts["nodes"]] == ["gpu1", "gpu3"]
    assert (len(result.samples), result.failed) == (3, ())
    (warning,) = one.cluster.reporter.warnings
    assert warning.text.startswith("gpu[2,4] are cordoned: moved, by ")
    assert warning.text.endswith("; kit bench does not measure them")
    cordon(one.context(), "gpu[1,3]", "moved")
    with pytest.raises(NotReadyError, match="gpu1 is cordoned: moved") as caught:
        one.run(repeats=1)
    assert caught.value.hint == "end that: kit hosts uncordon gpu1"


def test_a_value_that_may_be_a_secret_is_not_kept(one: Bench) -> None:
    env = {"HOROVOD_CYCLE_TIME": "9", "KIT_COMPRESSION": "fp16", "API_TOKEN": "geheim"}
    args = ["-x", "HF_TOKEN=geheim", "-x", "HOME", "-x", "OMP_NUM_THREADS=2", "--mca", "btl_tcp_links", "2"]
    result = one.run(repeats=1, ranks=(1,), spec={"env": env, "mpi": {"args": args}})
    text = (result.folder / META).read_text()
    assert "geheim" not in text
    settings = json.loads(text)["facts"]["settings"]
    assert settings["env"] == {**env, "API_TOKEN": "(set)"}
    assert settings["mpi"]["args"] == ["-x", "HF_TOKEN=(set)", *args[2:]]


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ("-xTOKEN=a=b -xOMP_NUM_THREADS=2 -xterm 1", "-xTOKEN=(set) -xOMP_NUM_THREADS=2 -xterm 1"),
        ("--mca mca_base_env_list TOKEN=a;NCCL_DEBUG=INFO", "--mca mca_base_env_list TOKEN=(set);NCCL_DEBUG=INFO"),
        ("-mca mca_base_env_list NCCL_DEBUG=INFO,TOKEN=a", "-mca mca_base_env_list NCCL_DEBUG=(set)"),
        ("--tune a=b -x", "--tune a=b -x"),
    ],
)  # fmt: skip
def test_words_of_mpirun_are_kept_without_values_of_variables(args: str, kept: str) -> None:
    assert " ".join(_without_values(args.split())) == kept


def test_disturbed_samples_are_marked(one: Bench) -> None:
    one.cluster.fleet["gpu1"].busy = 3.0
    one.cluster.fleet["gpu4"].living = ["20261121-101500-3fa2"]
    result = one.run(repeats=1, ranks=(1,))
    for sample in result.samples:
        assert "3.0 of 8 cores of gpu1 were busy" in (sample.disturbed or "")
        assert "another run was on the cluster: 20261121-101500-3fa2" in (sample.disturbed or "")
    # A load on a host with no rank of the case is none of its business.
    one.cluster.fleet["gpu4"].living = []
    one.cluster.fleet["gpu1"].busy, one.cluster.fleet["gpu2"].busy = 0.0, 3.0
    assert {sample.disturbed for sample in one.run(repeats=1, ranks=(1,)).samples} == {None}


def test_a_network_probe_that_fails_is_cleaned_up_after(one: Bench) -> None:
    # The fake hosts' addresses are none of this machine's, so nobody can listen there.
    result = one.run(preset="networks", networks=("bare",), ranks=(), repeats=2)
    (failed,) = result.failed
    assert "gpu1: the network probe failed: tcp probe: " in (failed.failure or "")
    assert len(result.samples) == 1
    for name in ("gpu1", "gpu2"):
        assert [change.split("-")[0] for change in one.cluster.fleet[name].changed if "clean" in change] == [
            "clean bench"
        ]


def test_a_node_that_does_not_run_is_named(one: Bench) -> None:
    one.cluster.fleet["gpu2"].containers[0].running = False
    result = one.run(preset=LADDER, ranks=(), repeats=1)
    assert "gpu2: its node does not run" in (result.failed[0].failure or "")
    one.cluster.fleet["gpu2"].containers[0].running = True
    one.cluster.fleet["gpu2"].faults.add("sshd dies")
    with pytest.raises(NotReadyError, match=r"sshd does not listen on 10\.0\.0\.2:33"):
        one.run()


@pytest.mark.parametrize(("flavour", "through"), [("cpu", False), ("cuda-mxnet", True), ("cuda-pytorch", False)])
def test_the_image_decides_whether_gpus_count(one: Bench, flavour: str, through: bool) -> None:
    one.cluster.fleet["gpu1"].gpus = 2
    planned = bench_plan(one.context(image={"flavour": flavour}), BenchOptions())
    (case,) = [case for case in planned.cases if case.id == "collectives"]
    assert ("nccl" in case.command) == through
    trained = planned.cases[-1].command
    assert trained[trained.index("--batch-size") + 1] == ("8" if flavour == "cpu" else "64")


def test_one_process_with_several_gpus_holds_them_all(one: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one slot, it would see one GPU. This cluster was deployed before its hosts had GPUs."""
    one.cluster.fleet["gpu1"].gpus = 2
    monkeypatch.setattr("kit.flows.bench.facts.flavour_of", lambda _tag: "cuda-mxnet")
    result = one.run(preset="kvstore", stores=("device",), ranks=(), repeats=1)
    (failed,) = result.failed
    assert "has no GPU, and each rank gets 2" in (failed.failure or "")


def test_a_cluster_that_is_not_there(fleet: Fleet, reporter: Remembering, tmp_path: Path) -> None:
    context = replace(fleet.context(reporter), folder=tmp_path)
    with pytest.raises(NotReadyError, match="no cluster lab runs here") as caught:
        bench(context, BenchRequest(options=BenchOptions()))
    assert caught.value.hint == "run: kit deploy"
    assert not (tmp_path / "bench").exists()


def test_a_dry_run_starts_nothing(one: Bench) -> None:
    planned = bench_plan(one.context(), BenchOptions(preset="egs"))
    assert [case.np for case in planned.cases] == [1, 2, 4, 8]
    assert (planned.launches, one.called) == (13, [])
    assert not (one.folder / "bench").exists()


def test_a_wrong_name_leaves_no_folder(one: Bench) -> None:
    with pytest.raises(InputError, match="unknown value 'eggs'"):
        one.run(preset="eggs")
    assert not (one.folder / "bench").exists()


# The folder


def test_a_session_is_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no session yet"):
        find(tmp_path, "")
    for name in ("20260101-000000-egs", "20260102-000000-ladder"):
        folder = BenchFolder(tmp_path / "bench" / name)
        folder.begin("{}\n")
        folder.close()
    assert find(tmp_path, "").name == "20260102-000000-ladder"
    assert find(tmp_path, "20260101").name == "20260101-000000-egs"
    assert find(tmp_path / "bench", "20260101-000000-egs") == tmp_path / "bench" / "20260101-000000-egs"
    assert find(Path("elsewhere"), str(tmp_path / "bench" / "20260101-000000-egs")).name == "20260101-000000-egs"
    with pytest.raises(InputError, match="more than one session begins"):
        find(tmp_path, "2026")
    with pytest.raises(InputError, match="there is no session 'x'"):
        find(tmp_path, "x")


def test_a_session_of_dir_is_found_from_where_it_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The project has one of this name, too: kit -C PROJECT bench --dir mine."""
    for path in (tmp_path / "mine", tmp_path / "project" / "mine"):
        folder = BenchFolder(path)
        folder.begin("{}\n")
        folder.close()
    monkeypatch.chdir(tmp_path)
    assert find(tmp_path / "project", "mine").absolute() == tmp_path / "mine"
    monkeypatch.chdir("/")
    assert find(tmp_path / "project", "mine") == tmp_path / "project" / "mine"


def test_a_full_disk_leaves_no_half_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("kit.remote.bench.session_folder.os.fsync", full)
        with pytest.raises(KitError, match="No space left"):
            BenchFolder(tmp_path / "bench/20260101-000000-egs").begin("{}\n")
    assert sessions(tmp_path) == []
    # As a kit leaves it that was killed at this moment.
    (tmp_path / "bench/20260101-000000-egs/session.json").touch()
    assert sessions(tmp_path) == []


def test_a_full_disk_in_a_session_names_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--dir would begin a new session, and --resume refuses it."""

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = BenchFolder(tmp_path / "my disk")
    folder.begin("{}\n")
    with monkeypatch.context() as patched:
        patched.setattr("kit.remote.bench.session_folder.os.fsync", full)
        with pytest.raises(KitError, match="No space left on device; earlier samples are kept") as caught:
            folder.append("a line\n")
    folder.close()
    way_on = f"free space there or make it writable, then: kit bench --resume --session '{folder.path}'"
    assert caught.value.hint == way_on
    (folder.path / SAMPLES).write_text('{"half')
    with monkeypatch.context() as patched:
        patched.setattr("kit.remote.bench.session_folder.os.ftruncate", lambda file, _size: full(file))
        with pytest.raises(KitError, match="No space left on device; earlier samples are kept") as caught:
            folder.open()
    folder.close()
    assert caught.value.hint == way_on


def test_a_session_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "bench/20260101-000000-egs").mkdir(parents=True)
    (tmp_path / "bench/20260101-000000-egs/session.json").write_text("{}")
    rows, problems = listing.sessions(tmp_path)
    assert rows == ()
    assert [problem.exit_code for problem in problems] == [2]
    assert "20260101-000000-egs/session.json: is not a session of kit bench" in str(problems[0])


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    first, second = BenchFolder(tmp_path), BenchFolder(tmp_path)
    first.begin("{}\n")
    with pytest.raises(NotReadyError, match="another kit bench is writing"):
        second.open()
    with pytest.raises(InputError, match="already has a session"):
        second.begin("{}\n")
    first.close()
    second.open()
    second.append("a line\n")
    second.close()
    assert (tmp_path / SAMPLES).read_text() == "a line\n"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KitError, match="cannot write into") as caught:
        BenchFolder(tmp_path / "file" / "below").begin("{}")
    assert "--dir" in (caught.value.hint or "")
