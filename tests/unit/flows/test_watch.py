"""What kit top watches of a run: its hosts, its ranks, and the last line of each, with a real launcher."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import pytest

from kit.errors import InputError
from kit.events import Silent
from kit.flows.context import Context
from kit.flows.watch import watching
from kit.model.watch import RankReading, Seen
from tests.fakes.head import Head, until
from tests.fakes.loopback import Loopback

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)


@pytest.fixture
def context(head: Head, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("PATH", f"{head.reached_by_ssh()}:{os.environ['PATH']}")
    return Loopback(2).context(Silent())


def test_the_ranks_of_a_run_with_their_last_lines(head: Head, context: Context) -> None:
    script = (
        f"echo first; printf 'half of %s' $OMPI_COMM_WORLD_RANK; while [ ! -e {head.folder}/go ]; do sleep 0.02; done"
    )
    door, answer = head.ranks(2, f"{script}; echo; echo")
    with watching(context, run=answer["started"][:12], every=0.05) as watched:
        assert watched.run is not None
        assert watched.run.id == answer["started"]
        # Only the host of the run.
        assert [one.host for one in watched.wait()] == ["gpu1"]
        until(lambda: watched.last() == {0: "half of 0", 1: "half of 1"})
        until(lambda: {one.rank for one in ranks_of(watched.now(), answer["started"])} == {0, 1})
        assert not watched.over
        (head.folder / "go").touch()
        until(lambda: watched.over)
        # Empty lines hide nothing.
        assert watched.last() == {0: "half of 0", 1: "half of 1"}
    door.story()


def ranks_of(seen: Sequence[Seen], run: str) -> list[RankReading]:
    return [rank for one in seen if one.reading for rank in one.reading.ranks if rank.run == run]


def test_only_the_end_of_a_long_log_is_read(head: Head, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.flows.watch.LAST", 1000)
    # What is printed after a pause is another record.
    pauses = [f"while [ ! -e {head.folder}/{name} ]; do sleep 0.02; done" for name in ("early", "late")]
    second = f"{pauses[0]}; seq 2000; {pauses[1]}; echo late"
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then echo early; else {second}; fi'
    door, answer = head.ranks(2, script)
    log = head.runs / answer["started"] / "log"
    until(lambda: b"early\n" in log.read_bytes())
    (head.folder / "early").touch()
    until(lambda: b"\n2000\n" in log.read_bytes())
    (head.folder / "late").touch()
    door.story()
    with watching(context, run="", count=1) as watched:
        until(lambda: watched.over)
        watched.wait()
        assert watched.last() == {1: "late"}


def test_without_a_run_all_hosts_are_watched(context: Context) -> None:
    with watching(context, count=1) as watched:
        assert [one.host for one in watched.wait()] == ["gpu1", "gpu2"]
        assert (watched.run, watched.over, dict(watched.last())) == (None, False, {})
    with watching(context, hosts="gpu2", count=1) as watched:
        assert [one.host for one in watched.wait()] == ["gpu2"]


def test_no_such_run(head: Head, context: Context) -> None:
    head.done("true")
    with pytest.raises(InputError, match="no run 'zzz' on the head"), watching(context, run="zzz"):
        pass
