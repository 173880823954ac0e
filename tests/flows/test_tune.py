"""kit tune as a whole: hosts in memory, and an mpi_perf whose figures the tests make."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.cli.text.tune import text
from kit.config.yaml import load_spec
from kit.errors import HostsFailed, InputError, InputErrors, Interrupted, NotReadyError, StepError, UnreachableError
from kit.events import OutputLine, Warned
from kit.flows.cluster.deploy import deploy
from kit.flows.context import Context
from kit.flows.tune import tune as tune_flow
from kit.flows.tune.tune import TuneRequest, tune
from kit.model.launch import LaunchPlan, Node, Placement, RunRequest
from kit.model.queue import Cordon, HostRow, HostRows
from kit.model.result import RunResult
from kit.model.run import Failure
from kit.model.tune import Machine, TuneResult
from kit.model.values import replace
from kit.plan.tune.candidates import MIB, RULES, parameters_of
from kit.remote.cluster.observe import observe
from kit.remote.ssh.transport import Transport
from tests.fakes import launcher
from tests.fakes.facts import DOCKER0, interfaces
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering

KIT_YAML = "# mine\nname: lab   # the lab\n\nmpi:\n  yield_when_idle: true  # cores are shared\n"
RATE = 25e6


def wire(nodes: Any, *_rest: Any, seconds: float) -> Mapping[str, float]:
    return {node.name: 24e6 for node in nodes}


class Wires:
    """TCP of several networks, by how their addresses begin: bytes/s, or an error; each call is remembered."""

    def __init__(self, **rates: float | Exception) -> None:
        self.rates = {name.replace("net", "10.").replace("_", "."): rate for name, rate in rates.items()}
        self.calls: list[str] = []

    def __call__(self, nodes: Any, *_rest: Any, seconds: float) -> Mapping[str, float]:
        begins = next(begins for begins in self.rates if nodes[0].address.startswith(begins))
        self.calls.append(begins)
        rate = self.rates[begins]
        if isinstance(rate, Exception):
            raise rate
        # The last host's link is the slowest.
        return {node.name: rate * (1 if node is nodes[-1] else 2) for node in nodes}


class Perf:
    """Stands for `kit run -- mpi_perf`: the rate depends on the parameters alone."""

    def __init__(self, share: Callable[[dict[str, str]], float]) -> None:
        self.share, self.calls = share, []  # type: ignore[var-annotated]
        # Seconds after which a run is ended.
        self.limits: list[float] = []
        self.now: set[bool] = set()
        self.code = 0
        self.raises: BaseException | None = None

    def __call__(self, context: Context, request: RunRequest) -> RunResult:
        words = request.command
        self.calls.append((context.spec.mpi.args, words))
        assert words[:2] == ("mpi_perf", "allreduce")
        assert request.policy.timeout is not None
        self.limits.append(request.policy.timeout)
        self.now.add(request.now)
        if self.raises:
            raise self.raises
        share = self.share(parameters_of(context.spec.mpi.args))
        rows = [self.row(int(size), share) for size in words[words.index("--sizes") + 1].split(",")]
        if share:
            context.reporter.report(OutputLine(text="a word before", stream="stdout"))
            context.reporter.report(OutputLine(text=json.dumps({"tests": [{"rows": rows}]}), stream="stdout"))
        else:
            context.reporter.report(OutputLine(text="no such transport", stream="stderr"))
        plan = LaunchPlan(run_id="r", placement=Placement(nodes=(), counts=()), hostfile="", argv=())
        return RunResult(plan=plan, exit_code=self.code or (0 if share else 1), seconds=1.0)

    @staticmethod
    def row(size: int, share: float) -> dict[str, Any]:
        rate = (share or 1.0) * RATE * size / (size + MIB / 4)
        once = 2 * 7 / 8 * size / rate
        return {"bytes": size, "samples": [once * (1 + 0.001 * n) for n in range(4)]}


def like_a_real_one(parameters: dict[str, str]) -> float:
    share = 0.55
    if "coll_tuned_dynamic_rules_filename" in parameters:
        share = 0.87
    if parameters.get("btl_tcp_flags"):
        share += 0.06
    return share


@pytest.fixture
def perf() -> Perf:
    return Perf(like_a_real_one)


def two_nics(name: str) -> dict[str, str]:
    number = name.removeprefix("gpu")
    return {"eth0": f"10.0.0.{number}/24", "eth1": f"10.1.0.{number}/24"}


class Bed:
    def __init__(self, fleet: Fleet, reporter: Remembering, folder: Path) -> None:
        self.fleet, self.reporter, self.file = fleet, reporter, folder / "kit.yaml"
        self.file.write_text(KIT_YAML)
        deploy(fleet.context(reporter))

    def tune(self, perf: Perf, *, wire: Any = wire, **request: Any) -> TuneResult:
        spec = load_spec(self.file.read_text(), source="kit.yaml")
        context = replace(self.fleet.context(self.reporter), spec=spec)
        return tune(context, TuneRequest(file=self.file, **request), run=perf, wire=wire)


@pytest.fixture
def bed(fleet: Fleet, reporter: Remembering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    def machine(_transport: Transport, node: Node) -> Machine:
        return Machine(
            name=node.name, slots=node.slots, threads=16, cores=4 * node.slots, address=node.address,
            addresses=interfaces(docker0=DOCKER0, **two_nics(node.name)), up=("eth0", "eth1", "docker0"),
        )  # fmt: skip

    monkeypatch.setattr("kit.flows.tune.tune.machine", machine)
    return Bed(fleet, reporter, tmp_path)


def test_it_writes_what_gains_and_nothing_the_second_time(bed: Bed, perf: Perf) -> None:
    first = bed.tune(perf)
    assert first.written
    assert first.before is not None
    assert first.before.timing is not None
    assert first.after is not None
    assert first.after.timing is not None
    assert first.after.name == "duplex-ring"
    assert first.after.timing.busbw > 1.6 * first.before.timing.busbw
    after = bed.file.read_text()
    assert [line for line in after.splitlines() if line and line in KIT_YAML.splitlines()] == [
        line for line in KIT_YAML.splitlines() if line
    ]
    spec = load_spec(after, source="kit.yaml")
    assert parameters_of(spec.mpi.args) == dict(first.after.parameters)
    assert spec.mpi.yield_when_idle is True
    assert after.count("# kit tune: ") == len(first.changed)
    assert "Takes effect at the next run: mpi.args." in text(first)
    assert "kit deploy, which recreates the containers: env." in text(first)

    second = bed.tune(perf)
    assert (second.changed, second.kept, second.written, second.diff) == ((), (), False, "")
    assert bed.file.read_text() == after
    assert "Nothing to change" in text(second)


def test_slots_of_the_hosts_file_count_although_the_cluster_was_deployed_with_others(bed: Bed, perf: Perf) -> None:
    """kit run starts ranks on them, so the figures and the settings are for these."""
    for name in ("gpu1", "gpu2", "gpu3"):
        bed.fleet[name].host = replace(bed.fleet[name].host, slots=4)
    # Without a number in the hosts file, runs have what deploy recorded.
    bed.fleet["gpu4"].host = replace(bed.fleet["gpu4"].host, slots=None)
    result = bed.tune(perf, dry_run=True)
    assert [machine.slots for machine in result.machines] == [4, 4, 4, 2]


def test_a_dry_run_shows_the_same_and_writes_nothing(bed: Bed, perf: Perf) -> None:
    dry = bed.tune(perf, dry_run=True)
    assert bed.file.read_text() == KIT_YAML
    assert not dry.written
    assert "+  # kit tune: an all-reduce of" in dry.diff
    wet = bed.tune(perf)
    assert (wet.diff, wet.changed) == (dry.diff, dry.changed)


def test_what_a_person_set_stays_unless_forced(bed: Bed, perf: Perf) -> None:
    own = "--mca btl_tcp_sndbuf 1048576"
    by_hand = KIT_YAML + f"  args: {own}\nenv:\n  OMP_NUM_THREADS: 7\n"
    bed.file.write_text(by_hand)
    result = bed.tune(perf, dry_run=True)
    kept = {setting.path: setting for setting in result.kept}
    assert (kept["env.OMP_NUM_THREADS"].value, kept["env.OMP_NUM_THREADS"].wanted) == ("7", "4")
    assert kept["mpi.args"].wanted.startswith(own + " --mca btl_tcp_flags")
    assert not {setting.path for setting in result.changed} & set(kept)
    assert "kit keeps your env.OMP_NUM_THREADS: 7." in text(result)
    # What was measured had the person's own words in it.
    assert all(args[:3] == ("--mca", "btl_tcp_sndbuf", "1048576") for args, _ in perf.calls)

    bed.tune(perf, force=True)
    spec = load_spec(bed.file.read_text(), source="kit.yaml")
    assert spec.env["OMP_NUM_THREADS"] == "4"
    assert spec.mpi.args[:4] == ("--mca", "btl_tcp_sndbuf", "1048576", "--mca")


def test_a_word_with_a_blank_stays_one_word(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML + '  args: [-x, "NOTE=a b"]\n')
    bed.tune(perf, force=True)
    assert load_spec(bed.file.read_text(), source="kit.yaml").mpi.args[:3] == ("-x", "NOTE=a b", "--mca")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KIT_YAML + "env: {A: b,\n  C: d}\n", "env is not written as KEY: VALUE lines"),
        (json.dumps(yaml.safe_load(KIT_YAML)), "kit tune cannot add to this file safely"),
        (KIT_YAML + "...\n", "kit tune cannot add to this file safely"),
    ],
)
def test_a_file_that_cannot_be_edited_loses_no_measurement(bed: Bed, perf: Perf, text: str, message: str) -> None:
    bed.file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        bed.tune(perf)
    # For several problems, kit prints those alone, and not the hint of all.
    assert not isinstance(caught.value, InputErrors)
    assert "measured: " in str(caught.value.hint)
    assert "env.OMP_NUM_THREADS: 4" in str(caught.value.hint)


def test_words_of_a_person_outlive_the_mark_of_tune(bed: Bed, perf: Perf) -> None:
    """--force puts kit's mark on the line, which also has the words of the person."""
    own = ("--bind-to", "core", "-mca", "btl_tcp_sndbuf", "1048576")
    bed.file.write_text(KIT_YAML + f"  args: {' '.join(own)}\n")
    bed.tune(perf, force=True)
    forced = load_spec(bed.file.read_text(), source="kit.yaml").mpi.args
    assert forced[:6] == (*own, "--mca")

    again = Perf(like_a_real_one)
    result = bed.tune(again)
    assert "mpi.args" not in {setting.path for setting in result.changed} | {setting.path for setting in result.kept}
    assert all(args[:5] == own for args, _ in again.calls)
    # What is in use is not measured a second time as a candidate. The words alone are one.
    assert len({args for args, _ in again.calls}) == len(result.tried) + 1
    assert any(args == own for args, _ in again.calls)

    # Now kit's own words cost something, so they go, and the person's stay.
    bed.tune(Perf(lambda parameters: 0.9 if len(parameters) == 1 else 0.3))
    assert load_spec(bed.file.read_text(), source="kit.yaml").mpi.args == own


def test_where_nothing_gains_mpi_stays_unchanged(bed: Bed) -> None:
    result = bed.tune(Perf(lambda _parameters: 0.9))
    assert result.after == result.before
    assert "mpi.args" not in {setting.path for setting in result.changed}


def test_no_gain_with_small_messages_says_what_more_time_would_show(bed: Bed) -> None:
    def large_ones_alone(parameters: dict[str, str]) -> float:
        return like_a_real_one(parameters) if enough else 0.55

    enough = False
    short = bed.tune(Perf(large_ones_alone), minutes=1.0, dry_run=True)
    (advice,) = [line for line in short.advice if "--minutes" in line]
    assert advice.startswith("no algorithm gained with messages of 1 MB, the largest that the time allowed, ")
    minutes = float(advice.partition("--minutes ")[2].split()[0])
    assert 1 < minutes < 10
    # What it says is so, gain or none.
    perf = Perf(large_ones_alone)
    longer = bed.tune(perf, minutes=minutes, dry_run=True)
    assert longer.before is not None
    assert longer.before.timing is not None
    assert longer.before.timing.bytes == 8 * MIB
    assert not [line for line in longer.advice if "--minutes" in line]
    enough = True
    assert bed.tune(Perf(large_ones_alone), minutes=minutes, dry_run=True).changed


def test_a_candidate_that_fails_is_reported_and_not_tried_again(bed: Bed) -> None:
    perf = Perf(lambda parameters: 0.0 if parameters.get("btl_tcp_links") else like_a_real_one(parameters))
    result = bed.tune(perf)
    failed = {candidate.name: candidate.failure for candidate in result.tried if candidate.failure}
    assert failed
    assert set(failed.values()) == {"mpi_perf failed: no such transport"}
    assert sum("btl_tcp_links" in args for args, _ in perf.calls) == len(failed)
    assert result.after is not None
    assert result.after.name == "duplex-ring"


def test_a_failure_in_the_second_round_of_what_is_in_use_does_not_undo_the_first(bed: Bed, perf: Perf) -> None:
    def disturbed(context: Context, request: RunRequest) -> RunResult:
        again = not context.spec.mpi.args and any(args == () for args, _ in perf.calls)
        result = perf(context, request)
        return replace(result, stopped="its time of 30 s was over", exit_code=124) if again else result

    spec = load_spec(bed.file.read_text(), source="kit.yaml")
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    result = tune(context, TuneRequest(file=bed.file), run=disturbed, wire=wire)
    assert result.before is not None
    assert (result.before.failure, len(result.before.timing.seconds if result.before.timing else ())) == (None, 4)
    assert [line for line in result.skipped if "did not end within" in line]
    assert result.after is not None
    assert result.after.name == "duplex-ring"


def cordon(bed: Bed, monkeypatch: pytest.MonkeyPatch, *out: str) -> None:
    hosts = [
        HostRow(name=name, address=vm.internal, cordon=Cordon(host=name, why="moved") if name in out else None)
        for name, vm in bed.fleet.vms.items()
    ]
    # One that the hosts file lacks is no matter here.
    hosts.append(HostRow(name="gpu9", address="", cordon=Cordon(host="gpu9", why="moved")))
    monkeypatch.setattr("kit.flows.queue.cordon.rows", lambda _: HostRows(cluster="lab", hosts=tuple(hosts)))
    monkeypatch.setattr(tune_flow, "observe", lambda *args, **words: replace(observe(*args, **words), cordoned=True))


def test_a_network_that_cordoned_hosts_may_lack_is_not_written(
    bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next kit deploy would find no address of theirs in it."""
    cordon(bed, monkeypatch, "gpu4")
    wires = Wires(net0=11.9e6, net1=118e6)
    result = bed.tune(perf, wire=wires)
    assert (wires.calls, result.wire, result.networks) == (["10.0"], 11.9e6, ())
    assert "network" not in {setting.path for setting in result.changed}
    assert "kit compared no other network, because cordoned hosts may not be in it" in text(result)
    assert result.after is not None


@pytest.mark.parametrize("all_of_them", [False, True])
def test_cordoned_hosts_are_not_measured(
    bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    """kit run leaves them out. It refused the hosts of kit tune, which names all."""
    cordon(bed, monkeypatch, *(("gpu1", "gpu2", "gpu3", "gpu4") if all_of_them else ("gpu2", "gpu4")))
    measured: list[str | None] = []

    def noted(context: Context, request: RunRequest) -> RunResult:
        measured.append(request.hosts)
        return perf(context, request)

    if all_of_them:
        with pytest.raises(NotReadyError, match="gpu1 is cordoned: moved") as caught:
            tuned_with(bed, noted)
        # kit tune has no -H.
        assert caught.value.hint == "end that: kit hosts uncordon gpu1"
        assert measured == []
        return
    result = tuned_with(bed, noted)
    assert set(measured) == {"gpu1,gpu3"}
    assert [machine.name for machine in result.machines] == ["gpu1", "gpu3"]
    assert "gpu[2,4] are cordoned: moved; kit tune does not measure them" in [
        warning.text for warning in bed.reporter.warnings
    ]


def test_a_run_that_a_person_stops_ends_the_tuning(bed: Bed, perf: Perf) -> None:
    """As somebody who waits for the slots. A candidate is not to blame for it."""

    def stopped(context: Context, request: RunRequest) -> RunResult:
        result = perf(context, request)
        return replace(result, stopped="stopped by ann@desk", exit_code=143) if len(perf.calls) == 3 else result

    with pytest.raises(NotReadyError, match=r"wrote nothing: its run r was ended \(stopped by ann@desk\)"):
        tuned_with(bed, stopped)
    assert len(perf.calls) == 3
    assert bed.file.read_text() == KIT_YAML


def test_ranks_that_do_not_start_are_not_a_lack_of_minutes(bed: Bed, perf: Perf) -> None:
    decide = launcher.load("kitrun.decide")
    progress = decide.Progress(began=0.0, run_began=0.0, now=61.0, spoke=0.0, up=12, ranks=16)
    late = decide.limit({"start_timeout": 60.0, "timeout": 90.0}, progress)

    def unstarted(context: Context, request: RunRequest) -> RunResult:
        return replace(perf(context, request), stopped=late.why, exit_code=late.code)

    with pytest.raises(StepError, match="12 of 16 ranks were up after 60 s") as caught:
        tuned_with(bed, unstarted)
    assert caught.value.hint == "see why: kit logs r; then: kit doctor"


@pytest.mark.parametrize("now", [False, True])
def test_now_reaches_every_run(bed: Bed, perf: Perf, now: bool) -> None:
    bed.tune(perf, now=now)
    assert perf.now == {now}


def test_what_all_is_held_against_is_not_given_up_early(bed: Bed, perf: Perf) -> None:
    bed.tune(perf, minutes=1)
    first, *others = perf.limits
    assert first >= 90
    assert max(others[:-1]) < 60


def test_what_would_stall_with_a_persons_words_is_not_tried(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML + "  args: --mca btl_tcp_links 2\n")
    bed.tune(perf, dry_run=True)
    assert perf.calls
    assert not any("btl_tcp_flags" in args for args, _ in perf.calls)


def test_an_algorithm_that_a_person_chose_is_not_taken_over(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML + "  args: --mca coll_tuned_allreduce_algorithm 3\n")
    bed.tune(perf, dry_run=True)
    assert any("btl_tcp_flags" in args for args, _ in perf.calls)
    assert not any("coll_tuned_dynamic_rules_filename" in args for args, _ in perf.calls)


def test_ctrl_c_leaves_the_file(bed: Bed, perf: Perf) -> None:
    perf.raises = Interrupted("run r was stopped; ranks left: 0")
    with pytest.raises(Interrupted):
        bed.tune(perf)
    assert bed.file.read_text() == KIT_YAML
    assert [path.name for path in bed.file.parent.iterdir()] == ["kit.yaml"]


def test_ctrl_c_at_the_very_end_of_a_run_ends_the_tuning(bed: Bed, perf: Perf) -> None:
    def late(context: Context, request: RunRequest) -> RunResult:
        return replace(perf(context, request), interrupted=True)

    spec = load_spec(bed.file.read_text(), source="kit.yaml")
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    with pytest.raises(Interrupted, match="run r had already ended"):
        tune(context, TuneRequest(file=bed.file), run=late, wire=wire)
    assert len(perf.calls) == 1
    assert bed.file.read_text() == KIT_YAML


def test_an_image_without_the_program_is_reported(bed: Bed, perf: Perf) -> None:
    perf.code = 127
    with pytest.raises(NotReadyError, match="has no mpi_perf"):
        bed.tune(perf)


def test_no_cluster_is_reported_before_anything_is_measured(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML.replace("name: lab", "name: other"))
    with pytest.raises(NotReadyError, match="no cluster other is deployed here"):
        bed.tune(perf)
    assert perf.calls == []


def test_tcp_that_cannot_be_measured_is_no_reason_to_stop(bed: Bed, perf: Perf, reporter: Remembering) -> None:
    def blocked(*_words: Any, **_more: Any) -> Mapping[str, float]:
        raise StepError("TCP could not be measured", hint="ports", host="gpu2")

    result = bed.tune(perf, wire=blocked)
    assert result.wire is None
    assert result.written
    assert any(isinstance(event, Warned) and "gpu2" in event.text for event in reporter.events)


@pytest.mark.parametrize("run_s", [20.0, 50.0])
def test_the_minutes_are_kept(bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch, run_s: float) -> None:
    clock = [0.0]
    monkeypatch.setattr("kit.flows.tune.tune.time.monotonic", lambda: clock[0])

    def slow(context: Context, request: RunRequest) -> RunResult:
        clock[0] += run_s
        return perf(context, request)

    spec = load_spec(KIT_YAML, source="kit.yaml")
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    result = tune(context, TuneRequest(file=bed.file, minutes=2.0), run=slow, wire=wire)
    assert clock[0] <= 2.0 * 60 + run_s
    assert result.skipped


def test_the_last_run_may_take_all_the_time_that_is_left(bed: Bed, perf: Perf) -> None:
    """It measures sizes as large as that time allows."""
    bed.tune(perf, minutes=5)
    *others, last = perf.limits
    assert max(others) < 120
    assert last > 240


def test_a_faster_network_is_written_first_and_the_rest_is_for_after_the_deploy(bed: Bed, perf: Perf) -> None:
    wires = Wires(net0=11.9e6, net1=118e6)
    result = bed.tune(perf, wire=wires)
    # An all-reduce of the network that is left would tune the wrong one.
    assert (perf.calls, result.before, result.after, result.tried) == ([], None, None, ())
    assert result.wire == 11.9e6
    assert [(item.network, item.rate) for item in result.networks] == [("10.1.0.0/24", 118e6)]
    # Both were measured again before kit recreates containers.
    assert wires.calls == ["10.0", "10.1", "10.0", "10.1"]
    changed = {item.path: item for item in result.changed}
    assert changed["network"].value == "10.1.0.0/24"
    assert "env.OMP_NUM_THREADS" in changed
    assert "mpi.args" not in changed
    after = bed.file.read_text()
    assert after.startswith(KIT_YAML)
    spec = load_spec(after, source="kit.yaml")
    assert spec.network == "10.1.0.0/24"
    shown = text(result)
    assert "TCP, all links in both directions at once: 11.9 MB/s on the slowest link" in shown
    assert "10.1.0.0/24 (eth1), not in use: 118.0 MB/s on the slowest" in shown
    assert "+# kit tune: with TCP on all links at once, the slowest link of this network (eth1) reaches 118.0" in shown
    assert "Run kit deploy, which moves it to 10.1.0.0/24, then kit tune again for mpi.args" in shown
    effect = "Takes effect after the next kit deploy, which recreates the containers: network, env.OMP_NUM_THREADS"
    assert effect in shown

    # Before the deploy nothing more is to be changed, and the deploy is still what is missing.
    second = bed.tune(perf, wire=wires)
    assert (second.changed, second.kept, second.written, perf.calls) == ((), (), False, [])
    assert bed.file.read_text() == after
    assert "Run kit deploy" in text(second)
    assert "Nothing to change" in text(second)


def test_after_the_deploy_the_rest_is_tuned_and_the_network_stays(bed: Bed, perf: Perf) -> None:
    wires = Wires(net0=11.9e6, net1=118e6)
    bed.tune(perf, wire=wires)
    for vm in bed.fleet.vms.values():
        vm.internal = vm.internal.replace("10.0.", "10.1.")
    deploy(replace(bed.fleet.context(bed.reporter), spec=load_spec(bed.file.read_text(), source="kit.yaml")))
    result = bed.tune(perf, wire=wires)
    assert result.wire == 118e6
    assert [(item.network, item.rate) for item in result.networks] == [("10.0.0.0/24", 11.9e6)]
    changed = {item.path for item in result.changed}
    assert "mpi.args" in changed
    assert "network" not in changed
    third = bed.tune(perf, wire=wires)
    assert (third.changed, third.diff) == ((), "")
    assert load_spec(bed.file.read_text(), source="kit.yaml").network == "10.1.0.0/24"


@pytest.mark.parametrize("rate", [20e6, 24e6, 26e6])
def test_a_network_that_is_not_faster_is_in_the_table_alone(bed: Bed, perf: Perf, rate: float) -> None:
    result = bed.tune(perf, wire=Wires(net0=24e6, net1=rate))
    assert "network" not in {item.path for item in result.changed}
    assert result.after is not None
    assert [item.rate for item in result.networks] == [rate]
    assert f"10.1.0.0/24 (eth1), not in use: {rate / 1e6:.1f} MB/s" in text(result)
    assert text(result).count("10.1.0.0/24") == 1


def test_a_moment_of_noise_moves_no_cluster(bed: Bed, perf: Perf) -> None:
    wires = Wires(net0=20e6, net1=30e6)

    def noisy(nodes: Any, *rest: Any, seconds: float) -> Mapping[str, float]:
        rates = wires(nodes, *rest, seconds=seconds)
        # From the second time on, the network in use is as fast as the other.
        wires.rates["10.0."] = 29e6
        return rates

    wires.rates = {"10.0.": 20e6, "10.1.": 30e6}
    result = bed.tune(perf, wire=noisy)
    assert result.wire == 29e6
    assert "network" not in {setting.path for setting in result.changed}


def test_a_network_of_a_person_stays_and_is_tuned(bed: Bed, perf: Perf) -> None:
    bed.file.write_text("network: 10.0.0.7/24  # the one with the firewall\n" + KIT_YAML)
    wires = Wires(net0=11.9e6, net1=118e6)
    result = bed.tune(perf, wire=wires, dry_run=True)
    (kept,) = result.kept
    assert (kept.path, kept.value, kept.wanted) == ("network", "10.0.0.0/24", "10.1.0.0/24")
    assert "kit keeps your network: 10.0.0.0/24. It would write 10.1.0.0/24: with TCP on all links" in text(result)
    assert perf.calls
    assert "mpi.args" in {setting.path for setting in result.changed}

    bed.tune(perf, wire=wires, force=True)
    assert load_spec(bed.file.read_text(), source="kit.yaml").network == "10.1.0.0/24"


def test_internal_of_the_hosts_file_is_reported_and_nothing_is_written(bed: Bed, perf: Perf) -> None:
    vm = bed.fleet["gpu2"]
    vm.host = replace(vm.host, internal=vm.internal)
    result = bed.tune(perf, wire=Wires(net0=11.9e6, net1=118e6))
    assert "network" not in {setting.path for setting in result.changed} | {setting.path for setting in result.kept}
    assert "Change it to gpu2 internal=10.1.0.2; or remove internal= from gpu2" in text(result)
    assert perf.calls


def test_a_variable_for_the_network_is_reported_and_nothing_is_written(bed: Bed, perf: Perf) -> None:
    spec = replace(load_spec(KIT_YAML, source="kit.yaml"), network="10.0.0.0/24")
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    result = tune(context, TuneRequest(file=bed.file), run=perf, wire=Wires(net0=11.9e6, net1=118e6))
    assert "network" not in {setting.path for setting in result.changed}
    assert "--network or KIT_NETWORK is 10.0.0.0/24" in text(result)


def test_a_network_that_nobody_answers_on_is_reported_and_no_failure(bed: Bed, perf: Perf) -> None:
    gone = [StepError("TCP could not be measured: timed out", host=name) for name in ("gpu1", "gpu2")]
    result = bed.tune(perf, wire=Wires(net0=24e6, net1=HostsFailed("measuring TCP: 2 of 4 hosts failed", gone)))
    assert result.wire == 24e6
    assert result.written
    assert "10.1.0.0/24 (eth1), but it could not be measured and is not used: gpu1: TCP could not" in text(result)


def test_networks_leave_the_time_to_mpi(bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("kit.flows.tune.tune.time.monotonic", lambda: clock[0])
    wires = Wires(net0=24e6, net1=118e6)

    def slow(nodes: Any, *rest: Any, seconds: float) -> Mapping[str, float]:
        clock[0] += 61.0
        return wires(nodes, *rest, seconds=seconds)

    monkeypatch.setattr("kit.flows.tune.wires.NETWORKS_SHARE", -0.1)
    result = bed.tune(perf, wire=slow, minutes=2.0)
    assert wires.calls == ["10.0"]
    assert "TCP over 10.1.0.0/24: no time left" in result.skipped
    assert "10.1.0.0/24 (eth1), not in use" not in text(result)


def test_tcp_that_fails_on_every_host_is_no_reason_to_stop(bed: Bed, perf: Perf, reporter: Remembering) -> None:
    gone = [StepError("TCP could not be measured", host=name) for name in ("gpu1", "gpu2")]
    result = bed.tune(perf, wire=Wires(net0=HostsFailed("measuring TCP: 2 of 4 hosts failed", gone)))
    assert (result.wire, result.networks) == (None, ())
    assert any(isinstance(event, Warned) and "gpu1" in event.text for event in reporter.events)


def test_what_an_earlier_tune_wrote_for_another_network_goes_back(bed: Bed, perf: Perf) -> None:
    owned = "".join(
        f"  # kit tune: a slow network\n  {name}: {value}\n"
        for name, value in (("HOROVOD_FUSION_THRESHOLD", 4 * MIB), ("HOROVOD_CYCLE_TIME", 10))
    )
    bed.file.write_text(f"{KIT_YAML}  # kit tune: two NUMA nodes\n  bind_to: socket\nenv:\n{owned}")
    # The rate rises with the size, and small messages are quick.
    monotone = Perf(like_a_real_one)
    monotone.row = lambda size, share: {"bytes": size, "samples": [2e-8 * size**0.4] * 4}  # type: ignore[method-assign]
    result = bed.tune(monotone)
    changed = {item.path: item.value for item in result.changed}
    assert changed["mpi.bind_to"] == "auto"
    assert changed["env.HOROVOD_FUSION_THRESHOLD"] == "134217728"
    assert changed["env.HOROVOD_CYCLE_TIME"] == "1"
    second = bed.tune(monotone)
    assert (second.changed, second.diff) == ((), "")


def test_defaults_are_not_written_where_no_tune_wrote_a_value(bed: Bed) -> None:
    by_hand = f"{KIT_YAML}  bind_to: socket\n"
    bed.file.write_text(by_hand)
    result = bed.tune(Perf(lambda _parameters: 0.9), force=True)
    assert "mpi.bind_to" not in {item.path for item in result.changed} | {item.path for item in result.kept}


def test_gpus_get_no_fusion_and_no_half_precision_of_mpi(bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(_transport: Transport, node: Node) -> Machine:
        return Machine(name=node.name, slots=node.slots, threads=16, cores=8, gpus=("T4",) * node.slots)

    monkeypatch.setattr("kit.flows.tune.tune.machine", machine)
    monkeypatch.setattr("kit.flows.tune.tune.flavour_of", lambda _tag: "cuda-tensorflow")
    result = bed.tune(perf, fp16=True)
    paths = {item.path for item in result.changed}
    assert not paths & {"env.HOROVOD_FUSION_THRESHOLD", "env.KIT_COMPRESSION"}
    assert "env.HOROVOD_CYCLE_TIME" in paths
    assert len([line for line in result.advice if "kit tune measures MPI" in line]) == 1
    assert not [line for line in result.advice if "ResNet-50" in line]
    assert not [words for _, words in perf.calls if words[words.index("--sizes") + 1].count(",") == 1]

    # The programs of this image use no GPU, so that gradients travel by MPI.
    monkeypatch.setattr("kit.flows.tune.tune.flavour_of", lambda _tag: "cpu")
    paths = {item.path for item in bed.tune(perf, fp16=True).changed}
    assert "env.KIT_COMPRESSION" in paths


@pytest.fixture
def pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.flows.tune.tune.flavour_of", lambda _tag: "cuda-pytorch")


@pytest.mark.usefixtures("pytorch")
def test_an_image_without_horovod_gets_only_what_pytorch_uses(bed: Bed, perf: Perf) -> None:
    wires = Wires(net0=118e6, net1=11.9e6)
    result = bed.tune(perf, wire=wires, fp16=True)
    assert (perf.calls, result.before, result.tried, result.skipped) == ([], None, (), ())
    assert [item.path for item in result.changed] == ["env.OMP_NUM_THREADS"]
    assert (result.wire, [item.rate for item in result.networks]) == (118e6, [11.9e6])
    assert "Consider: the image has no Horovod, and PyTorch exchanges gradients by Gloo or NCCL, not by" in text(result)

    # Its network counts as much as that of any other image, and after the deploy there is nothing more to tune.
    faster = bed.tune(perf, wire=Wires(net0=11.9e6, net1=118e6))
    assert [item.path for item in faster.changed] == ["network"]
    assert "Run kit deploy, which moves it to 10.1.0.0/24." in text(faster)


@pytest.mark.parametrize("horovod", [True, False])
def test_no_network_is_measured_beside_a_run(
    bed: Bed, perf: Perf, request: pytest.FixtureRequest, horovod: bool
) -> None:
    """An all-reduce would be refused for its slots, but only after TCP has filled the links of that run."""
    if not horovod:
        request.getfixturevalue("pytorch")
    bed.fleet["gpu1"].living = ["20260101-000000-aaaa"]
    wires = Wires(net0=118e6, net1=11.9e6)
    with pytest.raises(NotReadyError, match=r"the run 20260101-000000-aaaa is active, .*; nothing was measured"):
        bed.tune(perf, wire=wires)
    assert wires.calls == []


def test_fp16_is_written_with_consent_alone(bed: Bed, perf: Perf) -> None:
    without = bed.tune(perf)
    assert "env.KIT_COMPRESSION" not in {item.path for item in without.changed}
    assert "kit tune --fp16 measures it, and writes it if it gains" in text(without)

    result = bed.tune(perf, fp16=True)
    (setting,) = result.changed
    assert (setting.path, setting.value) == ("env.KIT_COMPRESSION", "fp16")
    sizes = [words[words.index("--sizes") + 1] for _, words in perf.calls]
    whole, half = next(map(int, item.split(",")) for item in sizes if item.count(",") == 1)
    assert half * 2 == whole
    assert f"an all-reduce of {whole // MIB} MB on 8 ranks takes" in setting.reason
    assert load_spec(bed.file.read_text(), source="kit.yaml").env["KIT_COMPRESSION"] == "fp16"
    assert "measures it, and writes it" not in text(result)

    after = bed.file.read_text()
    for again in (bed.tune(perf, fp16=True), bed.tune(perf)):
        assert (again.changed, again.diff) == ((), "")
        assert "half precision" not in text(again)
    assert bed.file.read_text() == after


def test_compression_of_a_person_stays(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML + "env:\n  KIT_COMPRESSION: none\n")
    result = bed.tune(perf, fp16=True, dry_run=True)
    kept = {setting.path: setting for setting in result.kept}
    assert (kept["env.KIT_COMPRESSION"].value, kept["env.KIT_COMPRESSION"].wanted) == ("none", "fp16")


def test_half_the_bytes_that_gain_nothing_or_fail_are_reported(
    bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flat(size: int, share: float) -> dict[str, Any]:
        return {"bytes": size, "samples": [0.5 / (share or 1.0)] * 4}

    monkeypatch.setattr(perf, "row", flat)
    result = bed.tune(perf, fp16=True, dry_run=True)
    assert "env.KIT_COMPRESSION" not in {item.path for item in result.changed}
    assert "half precision on the wire gains nothing beyond the noise" in text(result)

    def broken(context: Context, request: RunRequest) -> RunResult:
        sizes = request.command[request.command.index("--sizes") + 1]
        return replace(perf(context, request), exit_code=1 if sizes.count(",") == 1 else 0)

    spec = load_spec(KIT_YAML, source="kit.yaml")
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    result = tune(context, TuneRequest(file=bed.file, fp16=True, dry_run=True), run=broken, wire=wire)
    assert any(item.startswith("half the bytes, for --fp16: mpi_perf failed") for item in result.skipped)


def tuned_with(bed: Bed, run: Any, **request: Any) -> TuneResult:
    spec = load_spec(bed.file.read_text(), source="kit.yaml")
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    return tune(context, TuneRequest(file=bed.file, **request), run=run, wire=wire)


def is_best(context: Context) -> bool:
    """Return whether these are the words of duplex-ring, which like_a_real_one makes the fastest."""
    return len(parameters_of(context.spec.mpi.args)) == 3 and "btl_tcp_flags" in context.spec.mpi.args


@pytest.mark.parametrize(("stopped", "code"), [(None, 1), ("its time was over", 124)])
def test_a_candidate_that_fails_in_the_second_round_is_not_chosen(
    bed: Bed, perf: Perf, stopped: str | None, code: int
) -> None:
    """Sums that are wrong, or a hang, once in two runs."""

    def sometimes(context: Context, request: RunRequest) -> RunResult:
        again = is_best(context) and any(args == context.spec.mpi.args for args, _ in perf.calls)
        result = perf(context, request)
        return replace(result, exit_code=code, stopped=stopped) if again else result

    result = tuned_with(bed, sometimes)
    best = next(one for one in result.tried if one.name == "duplex-ring")
    assert (best.timing, bool(best.failure)) == (None, True)
    assert result.after is not None
    assert result.after.name == "ring"
    assert "btl_tcp_flags" not in load_spec(bed.file.read_text(), source="kit.yaml").mpi.args


def test_a_candidate_keeps_its_first_round_if_the_minutes_end_the_second(
    bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("kit.flows.tune.tune.time.monotonic", lambda: clock[0])

    def stopped_at_the_end(context: Context, request: RunRequest) -> RunResult:
        again = is_best(context) and any(args == context.spec.mpi.args for args, _ in perf.calls)
        clock[0] += 350.0
        result = perf(context, request)
        return replace(result, stopped="its time was over", exit_code=124) if again else result

    result = tuned_with(bed, stopped_at_the_end, minutes=60)
    assert [line for line in result.skipped if "duplex-ring, round 2 of 2: it did not end within" in line]
    assert result.after is not None
    assert result.after.name == "duplex-ring"


@pytest.mark.parametrize("fp16", [False, True])
def test_a_candidate_that_fails_with_other_sizes_is_not_written(bed: Bed, perf: Perf, fp16: bool) -> None:
    def one_size_alone(context: Context, request: RunRequest) -> RunResult:
        sizes = request.command[request.command.index("--sizes") + 1]
        result = perf(context, request)
        return replace(result, exit_code=1) if "," in sizes and is_best(context) else result

    result = tuned_with(bed, one_size_alone, fp16=fp16)
    assert result.after == result.before
    paths = {setting.path for setting in result.changed}
    assert not paths & {"mpi.args", "env.KIT_COMPRESSION", "env.HOROVOD_CYCLE_TIME"}
    assert "env.OMP_NUM_THREADS" in paths
    assert next(one.failure for one in result.tried if one.name == "duplex-ring")
    assert any(line.startswith("message sizes: mpi_perf failed") for line in result.skipped)


def test_arguments_that_fail_with_every_candidate_are_an_error(bed: Bed) -> None:
    by_hand = KIT_YAML + "  args: --mca btl_tcp_if_include eth9\n"
    bed.file.write_text(by_hand)
    with pytest.raises(StepError, match="mpi_perf failed: no such transport"):
        bed.tune(Perf(lambda _parameters: 0.0))
    assert bed.file.read_text() == by_hand


def test_what_works_where_the_current_arguments_fail_is_in_the_table(bed: Bed) -> None:
    bed.file.write_text(KIT_YAML + "  # kit tune: another image\n  args: --mca btl_tcp_links 2\n")
    result = bed.tune(Perf(lambda parameters: 0.0 if "btl_tcp_links" in parameters else like_a_real_one(parameters)))
    shown = text(result)
    assert "All-reduce of" in shown
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("current")] == [["current", "failed"]]
    assert [line for line in shown.splitlines() if line.startswith("duplex-ring") and line.endswith("taken")]


def test_a_host_that_is_lost_ends_the_tuning(bed: Bed, perf: Perf) -> None:
    """Otherwise each candidate after it would be the one that failed, and kit would write what the others gave."""

    def lost(context: Context, request: RunRequest) -> RunResult:
        result = perf(context, request)
        gone = Failure(kind="host", host="gpu3")
        return replace(result, exit_code=1, failure=gone) if len(perf.calls) > 3 else result

    with pytest.raises(UnreachableError, match="gpu3: the host was lost while kit tune measured, so kit wrote nothing"):
        tuned_with(bed, lost)
    assert len(perf.calls) == 4
    assert bed.file.read_text() == KIT_YAML


def test_a_head_that_cannot_be_reached_any_more_ends_the_tuning(bed: Bed, perf: Perf) -> None:
    def cut(context: Context, request: RunRequest) -> RunResult:
        if len(perf.calls) == 3:
            raise UnreachableError("no SSH connection", host="gpu1")
        return perf(context, request)

    with pytest.raises(UnreachableError, match="no SSH connection"):
        tuned_with(bed, cut)
    assert bed.file.read_text() == KIT_YAML


def test_no_network_is_compared_beside_a_run_of_horovod(bed: Bed, perf: Perf) -> None:
    """The run slows down the network that it uses, and the other would be written as the faster one."""
    bed.fleet["gpu1"].living = ["20260101-000000-aaaa"]
    wires = Wires(net0=11.9e6, net1=118e6)
    with pytest.raises(NotReadyError, match=r"the run 20260101-000000-aaaa is active, .*; nothing was measured"):
        bed.tune(perf, wire=wires)
    assert (wires.calls, perf.calls, bed.file.read_text()) == ([], [], KIT_YAML)


def test_the_limit_of_the_nodes_counts_for_threads(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML + "cpus: 4\n")
    values = {setting.path: setting.value for setting in bed.tune(perf).changed}
    assert values["env.OMP_NUM_THREADS"] == "2"


def test_networks_for_the_data_are_not_compared_with_the_one_for_the_rest(bed: Bed, perf: Perf) -> None:
    """The data is on them already, so another network: would recreate the containers for nothing."""
    bed.file.write_text(KIT_YAML + "interfaces: [10.0.0.0/24, 10.1.0.0/24]\n")
    wires = Wires(net0=11.9e6, net1=118e6)
    result = bed.tune(perf, wire=wires)
    assert (wires.calls, result.networks, result.wire) == (["10.0"], (), 11.9e6)
    changed = {setting.path for setting in result.changed}
    assert "network" not in changed
    assert "mpi.args" in changed
    assert "Consider: interfaces: in kit.yaml names the networks for the data" in text(result)


def test_a_variable_that_overrides_the_file_is_reported_and_nothing_is_written_there(
    bed: Bed, perf: Perf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run would ignore it, and the variable's words would be in the file as if kit tune had chosen them."""

    def machine(_transport: Transport, node: Node) -> Machine:
        return Machine(name=node.name, slots=2, threads=16, cores=8, sockets=2, numa=2)

    monkeypatch.setattr("kit.flows.tune.tune.machine", machine)
    spec = load_spec(KIT_YAML, source="kit.yaml")
    own = ("--mca", "btl_tcp_sndbuf", "1048576")
    spec = replace(spec, mpi=replace(spec.mpi, args=own, bind_to="core"))
    context = replace(bed.fleet.context(bed.reporter), spec=spec)
    result = tune(context, TuneRequest(file=bed.file, force=True), run=perf, wire=wire)
    paths = {setting.path for setting in result.changed} | {setting.path for setting in result.kept}
    assert not paths & {"mpi.args", "mpi.bind_to"}
    assert "btl_tcp_sndbuf" not in bed.file.read_text()
    shown = text(result)
    assert "KIT_MPI_ARGS is '--mca btl_tcp_sndbuf 1048576' and overrides mpi.args of kit.yaml" in shown
    assert "KIT_MPI_BIND_TO is 'core' and overrides mpi.bind_to of kit.yaml, so kit does not change that." in shown
    assert all(args[:3] == own for args, _ in perf.calls)

    # The same value in both places is no contradiction.
    context = replace(context, spec=replace(spec, mpi=replace(spec.mpi, args=(), bind_to="socket")))
    result = tune(context, TuneRequest(file=bed.file), run=perf, wire=wire)
    assert {"mpi.args", "mpi.bind_to"} <= {setting.path for setting in result.changed}


def test_a_variable_leaves_the_words_of_tune_in_the_file(bed: Bed, perf: Perf) -> None:
    bed.tune(perf)
    after = bed.file.read_text()
    spec = load_spec(after, source="kit.yaml")
    # Words that kit tune would know as its own in the file, and that the user chose by the variable.
    chosen = ("--mca", "btl_tcp_links", "2")
    context = replace(bed.fleet.context(bed.reporter), spec=replace(spec, mpi=replace(spec.mpi, args=chosen)))
    again = Perf(like_a_real_one)
    tune(context, TuneRequest(file=bed.file), run=again, wire=wire)
    assert all(args[:3] == chosen for args, _ in again.calls)
    assert bed.file.read_text() == after


def test_a_gain_with_small_messages_is_not_called_none(bed: Bed) -> None:
    """kit tune takes back its ring, which costs something with these messages."""
    ring = "coll_tuned_dynamic_rules_filename"
    words = f"--mca coll_tuned_use_dynamic_rules 1 --mca {ring} {RULES}"
    bed.file.write_text(f"{KIT_YAML}  # kit tune: larger messages\n  args: {words}\n")
    result = bed.tune(Perf(lambda parameters: 0.3 if ring in parameters else 0.6), minutes=1.0)
    assert result.after is not None
    assert result.after.name == "default"
    assert not [line for line in result.advice if "no algorithm gained" in line]


def test_open_mpis_own_choice_is_not_measured_twice(bed: Bed, perf: Perf) -> None:
    bed.file.write_text(KIT_YAML + "  allreduce: openmpi\n")
    assert "openmpi" not in [one.name for one in bed.tune(perf, dry_run=True).tried]


def test_a_file_that_changed_meanwhile_loses_no_measurement(bed: Bed, perf: Perf) -> None:
    def edited_meanwhile(context: Context, request: RunRequest) -> RunResult:
        bed.file.write_text(KIT_YAML + "cpus: 4\n")
        return perf(context, request)

    with pytest.raises(InputError, match="changed while kit tune measured") as caught:
        tuned_with(bed, edited_meanwhile)
    assert "run kit tune again; measured: " in str(caught.value.hint)
    assert "env.OMP_NUM_THREADS: 4" in str(caught.value.hint)
    assert bed.file.read_text() == KIT_YAML + "cpus: 4\n"


@pytest.mark.parametrize("faster", [False, True])
def test_done_is_reported_once_and_after_the_last_measurement(
    bed: Bed, perf: Perf, reporter: Remembering, faster: bool
) -> None:
    bed.tune(perf, wire=Wires(net0=11.9e6, net1=118e6 if faster else 1e6), fp16=True)
    steps = [type(event).__name__ for event in reporter.events if getattr(event, "host", "") == "measure"]
    assert steps.count("HostDone") == 1
    assert steps[-1] == "HostDone"
