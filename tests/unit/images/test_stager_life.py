"""kit-data's life: when it ends, who may order what, hosts that cannot talk, and where secrets must never be."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.stagers import Stagers, tree

station, events = launcher.load("kitdata.station"), launcher.load("kitdata.events")
MakeStagers = Callable[[int], Stagers]
MB = 1 << 20


@pytest.fixture
def make_stagers(tmp_path: Path) -> Iterator[MakeStagers]:
    made: list[Stagers] = []

    def make(count: int) -> Stagers:
        made.append(Stagers(count, tmp_path))
        return made[-1]

    yield make
    for stagers in made:
        stagers.close()


def fill(stagers: Stagers, megabytes: int) -> None:
    for number in range(megabytes):
        (stagers.source / str(number)).write_bytes(os.urandom(MB))


# Short times, and no end before a file opens the gate: so a slow machine changes nothing.
SHORT = """
import os
from kitdata import station
finished = station.Station.finished.fget
station.Station.finished = property(lambda self: os.path.exists({gate!r}) and finished(self))
station.IDLE_S, station.UNUSED_S, station.LEAD_S = 0.5, {unused}, {lead}
"""


def end_of(stagers: Stagers) -> list[int]:
    """Open the gate, and return the exit codes."""
    stagers.release()
    return [stager.process.wait(60) for stager in stagers.all if stager.process is not None]


def test_it_ends_when_nobody_ever_ordered_anything(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(1)
    (host,) = stagers.all
    host.hook = SHORT.format(gate=str(stagers.gate), unused=0.5, lead=60)
    host.start()
    assert end_of(stagers) == [0]


def test_one_with_nothing_to_do_has_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(station, "time", SimpleNamespace(monotonic=lambda: now[0]))
    one = station.Station(str(tmp_path), str(tmp_path))
    assert not one.finished
    now[0] += station.UNUSED_S + 1
    assert one.finished
    with one.at_work():
        now[0] += 1000
        assert not one.finished
    assert not one.finished
    now[0] += station.IDLE_S + 1
    assert one.finished


def test_between_a_join_and_its_lead_no_earlier_staging_is_watched(tmp_path: Path) -> None:
    one = station.Station(str(tmp_path), str(tmp_path))

    def watch() -> dict[str, Any]:
        said: list[dict[str, Any]] = []
        one.carry_out({"op": "watch"}, said.append, io.BytesIO())
        return said[-1]

    one._lead = SimpleNamespace(id="earlier", events=events.Events({"id": "earlier"}))
    one._lead.events.add({"done": {}})
    assert watch() == {"done": {}}
    one._member = SimpleNamespace(id="new")
    assert watch()["failed"]["kind"] == "not-staged"


def test_it_ends_some_time_after_its_last_staging(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    fill(stagers, 1)
    for stager in stagers.all:
        stager.hook = SHORT.format(gate=str(stagers.gate), unused=0.5, lead=60)
    stagers.staged()
    assert end_of(stagers) == [0, 0]
    stagers.gate.unlink()
    # The next one is a new process, with what is on the disk.
    assert stagers.staged().answers[-1]["done"]["new"] == 0


def test_a_host_whose_lead_never_comes_forgets_the_staging(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(1)
    stagers.all[0].hook = SHORT.format(gate=str(stagers.gate), unused=0.5, lead=1.0)
    stagers.join()
    assert end_of(stagers) == [0]


def test_a_signal_ends_it_at_once(make_stagers: MakeStagers) -> None:
    (host,) = make_stagers(1).all
    host.start()
    host.signal(signal.SIGTERM)
    assert host.process is not None
    assert host.process.wait(60) == 0


def test_members_forget_a_lead_that_is_silent(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    fill(stagers, 20)
    # In place of 15 s. The lead sends a beat every two.
    stagers.all[1].hook = "from kitdata import member\nmember.SILENCE_S = 4.0\n"
    stagers.hold(0)
    order = stagers.stage()
    order.until("plan")
    stagers.all[0].signal(signal.SIGSTOP)
    stagers.all[1].wait_until_free()
    stagers.release()
    # Two hosts can begin another staging without it, once the third has forgotten it as well.
    order = stagers.order(stagers.all[2], op="stop", id=stagers.id)
    assert order.end() == {"stopped": True}
    assert stagers.staged(stagers.all[1:]).answers[-1]["done"]["hosts"] == ["gpu2", "gpu3"]


def test_two_stagings_at_once_are_refused(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    fill(stagers, 8)
    stagers.hold(0)
    first = stagers.stage()
    first.until("plan")
    order = stagers.order(stagers.all[0], op="join", id="x", address="127.0.0.1", certificate="", key="")
    assert order.end()["failed"]["kind"] == "busy"
    stagers.release()
    assert "done" in first.end()


@pytest.mark.parametrize(
    "order", [{"op": "nothing"}, {}, {"op": "stage", "id": "x"}, {"op": "join"}, {"op": "watch"}, {"op": ["x"]}]
)
def test_an_order_that_makes_no_sense_fails_alone(make_stagers: MakeStagers, order: dict[str, object]) -> None:
    stagers = make_stagers(1)
    (host,) = stagers.all
    host.start()
    assert "failed" in stagers.order(host, **order).end()
    assert "hello" in stagers.order(host, op="hello").end()


def test_an_address_of_all_networks_is_refused(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(1)
    stagers.all[0].address = "0.0.0.0"  # noqa: S104
    with pytest.raises(AssertionError, match="not an address of the cluster"):
        stagers.join()


UNREACHABLE = """
from kitdata import tls
connect = tls.connect
def cut(address, port, client, hello):
    if hello.get("role") == "pieces" and address in {addresses!r}:
        raise OSError(113, "No route to host")
    return connect(address, port, client, hello)
tls.connect = cut
"""


def test_two_hosts_that_cannot_talk_get_their_pieces_by_another_way(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    fill(stagers, 30)
    stagers.all[1].hook = UNREACHABLE.format(addresses=[stagers.all[2].address])
    done = stagers.staged().answers[-1]["done"]
    assert (done["lost"], done["read"]) == ([], 30 * MB)
    assert stagers.all[2].tree() == tree(stagers.source)


def test_a_host_that_no_other_can_reach_is_lost(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    fill(stagers, 30)
    for stager in stagers.all[:2]:
        stager.hook = UNREACHABLE.format(addresses=[stagers.all[2].address])
    order = stagers.staged()
    assert order.answers[-1]["done"]["lost"] == ["gpu3"]
    assert "reach" in order.all("lost")[0]["text"]
    assert stagers.all[1].tree() == tree(stagers.source)


# The connection ends in the middle of every fifth piece.
CUTS = """
from kitdata import passing, tls, wire
send, count = wire.send, []
def cut(peer, value):
    send(peer, value)
    count.append(1)
    if "piece" in value and len(count) % 5 == 0:
        tls.hang_up(peer)
wire.send = cut
"""


def test_connections_that_break_lose_nothing(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    fill(stagers, 60)
    for stager in stagers.all:
        stager.hook = CUTS
    done = stagers.staged().answers[-1]["done"]
    assert (done["lost"], done["read"]) == ([], 60 * MB)
    assert all(stager.tree() == tree(stagers.source) for stager in stagers.all)


FULL = """
import errno
from kitdata import disk
def full(self, *arguments):
    raise OSError(errno.ENOSPC, "No space left on device")
disk.Folder._put = full
"""


def test_the_lead_goes_on_when_its_own_disk_is_full(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(3)
    fill(stagers, 10)
    stagers.all[0].hook = FULL
    done = stagers.staged().answers[-1]["done"]
    assert (done["hosts"], done["lost"]) == (["gpu2", "gpu3"], ["gpu1"])
    assert stagers.all[1].tree() == tree(stagers.source)


def test_a_member_that_cannot_be_reached_at_the_beginning_is_lost(make_stagers: MakeStagers) -> None:
    stagers = make_stagers(2)
    fill(stagers, 2)
    members = stagers.join()
    stagers.all[1].kill()
    request = {
        "data": "d", "cluster": "c", "stage": "disk", "split": "none", "size": None, "limit": 0,
        "source": stagers.folder(), "members": members,
    }  # fmt: skip
    order = stagers.order(stagers.all[0], op="stage", id=stagers.id, request=request)
    assert order.end()["done"]["lost"] == ["gpu2"]


SECRET = "a-very-secret-key"
# A source with a bug, whose error has the secret in it.
LEAKS = """
from kitdata import opening, source
class Leaks(source.Source):
    label, parallel = "s3://bucket", 1
    def __init__(self, remote, env, label, **_):
        self.env = env
    def entries(self):
        {entries}
    def entry(self, path):
        raise KeyError(str(self.env))
    def read(self, entry, offset, length):
        raise KeyError(str(self.env))
    def close(self):
        pass
opening.Rclone = Leaks
"""


@pytest.mark.parametrize(
    "entries",
    ["raise KeyError(str(self.env))", "from kitdata.source import Entry; yield Entry('a', 1, 1)"],
    ids=["list", "read"],
)
def test_secrets_are_in_no_event_log_or_file(
    make_stagers: MakeStagers, entries: str, capfd: pytest.CaptureFixture[str]
) -> None:
    stagers = make_stagers(2)
    for stager in stagers.all:
        stager.hook = LEAKS.format(entries=entries)
    env = {"RCLONE_CONFIG_KIT_SECRET_ACCESS_KEY": SECRET}
    order = stagers.stage(source={"kind": "rclone", "remote": "kit:bucket", "env": env, "label": "s3://bucket"})
    assert order.end()["failed"]["kind"] == "internal", order.answers
    watch = stagers.order(stagers.all[0], op="watch")
    watch.end()
    captured = capfd.readouterr()
    assert SECRET not in f"{order.answers} {watch.answers} {captured.out} {captured.err}"
    for stager in stagers.all:
        assert stager.process is not None
        for name in ("cmdline", "environ"):
            assert SECRET.encode() not in Path(f"/proc/{stager.process.pid}/{name}").read_bytes()
        folders = (stager.folder, Path(stager.env["KIT_DATA_SOCKET"]).parent)
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if SECRET.encode() in path.read_bytes()]
        # Nor is a private key left.
        assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes()]
