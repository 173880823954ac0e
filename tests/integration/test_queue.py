"""The line of waiting runs on real hosts. Nothing but the head's files knows it, and no sleep of a test decides.

Runs hold slots until a file appears on their hosts. So every turn is met where the test wants it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import Cluster, Done, objects, until
from tests.integration.test_fault_matrix import power
from tests.pipes import rest

GATE = "/dev/shm/kit-gate"
UNTIL_GATE = f"echo up; until [ -e {GATE}-$KIT_TEST_GATE ]; do sleep 0.1; done"


class Line:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.runs: list[str] = []

    def join(self, *words: str, script: str = "true") -> str:
        """Put a run in line, and return its id: the last word that kit prints."""
        done = self.good("run", "--queue", *words, "--", "sh", "-c", script)
        ids = done.stdout.split()
        self.runs += ids
        return ids[-1]

    def holder(self, gate: str, *words: str) -> str:
        """Put a run in line that goes on until `open` of its gate, and wait for its ranks."""
        run = self.join("-x", f"KIT_TEST_GATE={gate}", *words, script=UNTIL_GATE)
        until(f"run {run} has started", lambda: self.state(run) == "running")
        return run

    def open(self, gate: str) -> None:
        self.good("exec", "--", "touch", f"{GATE}-{gate}")

    def good(self, *words: str) -> Done:
        done = self.cluster.kit(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def line(self) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = objects(self.good("queue", "--json"))[-1]["runs"]
        return runs

    def waits(self, run: str, kind: str) -> dict[str, Any]:
        """Wait until the run waits for this reason, and return the reason."""

        def reason() -> dict[str, Any] | None:
            reasons: list[dict[str, Any]] = [one["reason"] for one in self.line() if one["id"] == run]
            return reasons[0] if reasons and reasons[0]["kind"] == kind else None

        return until(f"run {run} waits: {kind}", reason)

    def record(self, run: str) -> dict[str, Any]:
        runs = objects(self.good("runs", "--json"))[-1]["runs"]
        return next((one for one in runs if one["id"] == run), {})

    def state(self, run: str) -> str:
        return str(self.record(run).get("state", "waiting"))

    def ended(self, run: str, code: int = 0) -> dict[str, Any]:
        assert self.cluster.kit("wait", run).returncode == code
        return self.record(run)


@pytest.fixture
def line(cluster: Cluster) -> Iterator[Line]:
    one = Line(cluster)
    yield one
    for run in one.runs:
        cluster.kit("stop", run)
    cluster.kit("hosts", "uncordon", "gpu[1-4]")
    cluster.kit("exec", "--", "sh", "-c", f"rm -f {GATE}-*")
    cluster.wait_for_none()


def test_turns_backfill_and_ends(line: Line) -> None:
    """Eight slots. The first run has six for at most ten minutes; the second needs all."""
    first = line.holder("a", "--np", "6", "--timeout", "10m")
    second = line.join(script="echo $OMPI_COMM_WORLD_RANK of the second")
    reason = line.waits(second, "slots")
    assert reason["runs"] == [first]
    assert reason["at"]
    # It ends before the first can, and nobody knows that of the other one.
    short = line.holder("b", "--np", "2", "--timeout", "5m")
    long = line.join("--np", "1")
    after_bad = line.join("--np", "1", "--after", f"{short},failed")
    never = line.join("--np", "1", "--after", short)
    line.good("stop", short)
    # The slots of the short run are free, and the long one would delay the second.
    assert line.waits(long, "turn")["runs"] == [second]
    # Nor does a run get them that does not join the line, unless it ends in time or says `now`.
    refused = line.cluster.kit("run", "--np", "1", "--", "true")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert f"1 free slot is needed that are not reserved for run {second}, the first in line" in refused.stderr
    assert "reserved" not in line.good("run", "--np", "1", "--timeout", "1m", "--", "true").stderr
    assert f"reserved for run {second}" in line.good("run", "--np", "1", "--now", "--", "true").stderr
    line.waits(never, "never")
    assert [run["id"] for run in line.line()] == [second, long, after_bad, never]
    table = line.good("queue").stdout
    assert f"for slots of {first}" in table
    assert "by " in table

    with line.cluster.running("attach", second) as attach:
        assert attach.stderr
        assert f"run {second} waits in line: for slots of {first}" in attach.stderr.readline()
        line.open("a")
        out, err = rest(attach, timeout=120)
        assert (attach.returncode, sorted(out.splitlines())) == (
            0, [f"{rank} of the second" for rank in range(8)]
        ), err  # fmt: skip
    places = line.record(second)["places"]
    assert [(place["node"], place["ranks"]) for place in places] == [(f"gpu{n}", 2) for n in (1, 2, 3, 4)]
    for run in (long, after_bad):
        line.ended(run)
    assert [run["id"] for run in line.line()] == [never]
    line.good("queue", "rm", never)
    assert line.line() == []


def test_the_line_needs_no_operator_and_outlives_the_heads_container(line: Line) -> None:
    cluster = line.cluster
    line.holder("c")
    run = line.join("--np", "2", "-x", "WORD=s3cret", script="echo $WORD")
    line.waits(run, "slots")
    with cluster.running("attach", run) as attach:
        assert attach.stderr
        attach.stderr.readline()
        attach.send_signal(signal.SIGKILL)
        attach.wait()
    entry = f"/opt/kit/{cluster.name}/var/runs/.queue/{run}.json"
    assert cluster.head.text("stat", "-c", "%a %U", entry).split() == ["600", "root"]
    assert "s3cret" in cluster.head.text("cat", entry)
    assert "s3cret" not in line.good("queue", "--json").stdout + line.good("runs", "--json").stdout

    # The ranks on the other hosts end with the head's container, and the line starts the next run by itself.
    cluster.head.text("docker", "restart", "--time", "1", cluster.container(cluster.head))
    until(f"run {run} has started", lambda: line.state(run) == "ended")
    assert line.ended(run)["exit_code"] == 0
    assert cluster.kit("logs", run).stdout.splitlines() == ["s3cret"] * 2
    assert cluster.head.ssh("test", "-e", entry).returncode != 0


def test_the_line_goes_on_when_the_heads_vm_restarts(line: Line) -> None:
    cluster = line.cluster
    line.holder("d")
    run = line.join("--np", "2", script="echo $KIT_NODE")
    line.waits(run, "slots")
    power(cluster, cluster.head.name, "restart", "--time", "1")
    # Its engine starts the head's container, and the head starts the next run, whatever ended meanwhile.
    until("the head's VM answers", lambda: cluster.kit("runs").returncode == 0)
    until(f"run {run} has ended", lambda: line.state(run) == "ended")
    assert line.ended(run)["exit_code"] == 0
    assert len(line.good("logs", run).stdout.split()) == 2
    assert line.line() == []


def test_cordoned_hosts_get_no_run_from_the_line(line: Line, tmp_path: Path) -> None:
    line.good("hosts", "cordon", "gpu[1-2]", "--why", "their fans are loud")
    assert "their fans are loud" in line.good("hosts").stdout
    refused = line.cluster.kit("run", "-H", "gpu2", "--np", "1", "--", "true")
    assert refused.returncode == 5
    assert "gpu2 is cordoned: their fans are loud" in refused.stderr
    assert "kit hosts uncordon gpu2" in refused.stderr
    line.join("--np", "1", "--array", "0-2", script="echo $KIT_ARRAY_INDEX")
    runs = line.runs[-3:]
    known = objects(line.good("runs", "--json"))[-1]
    array = next(run["array"]["of"] for run in (*known["runs"], *known["waiting"]) if run["id"] == runs[0])
    awaited = line.good("wait", array, "--json")
    ended = [entry for entry in objects(awaited) if entry["kind"] == "run"]
    assert [(run["id"], run["exit_code"]) for run in ended] == [(run, 0) for run in runs]
    assert f"{array}: 3 of 3 runs succeeded" in awaited.stderr
    assert {place["node"] for run in ended for place in run["places"]} <= {"gpu3", "gpu4"}
    line.good("pull", array, "log", str(tmp_path))
    assert [(tmp_path / f"kit-{run}" / "log.txt").read_text() for run in runs] == ["0 | 0\n", "0 | 1\n", "0 | 2\n"]
    assert "3 runs had ended before" in line.good("stop", array).stdout
    line.good("hosts", "uncordon", "gpu[1-2]")
    all_hosts = line.join()
    assert len(line.ended(all_hosts)["places"]) == 4
