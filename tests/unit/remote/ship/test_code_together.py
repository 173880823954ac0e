"""A whole ship of code: a folder here, the operator, its porters as programs, and a store on each host.

What ssh would start on a VM is started here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.errors import StepError
from kit.events import HostStep, Note
from kit.model.code import Needed, Snapshot
from kit.model.host import Login
from kit.model.text import size
from kit.model.values import replace
from kit.remote.code.snapshot import take
from kit.remote.ship import porters, progress
from kit.remote.ship.broadcast import ship_code, ship_stored
from kit.remote.ship.faults import BaseMissingError
from kit.remote.ship.lanes import Target
from kit.remote.ship.packs import PackSpool
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.hold import Hold
from kit.remote.ship.result import Shipped
from tests.fakes.head import until
from tests.fakes.reporter import Remembering

HOSTS = ("head", "one", "two")


def target(name: str) -> Target:
    login = Login(host=name, address=name, user=None, port=None, key=None, known_hosts=None)
    return Target(login=login, address="127.0.0.1")


class Cluster:
    """Each host has a folder, in which its store is at the same path below."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = folder / "mine"
        self.code.mkdir()
        (self.code / "train.py").write_text("print('hello')\n")
        (self.code / "lib").mkdir()
        (self.code / "lib" / "net.py").write_text("layers = 3\n")
        self.reporter = Remembering()
        # What runs need, by the list of before a ship waits, and by that of afterwards.
        self.needed = Needed(at=time.time())
        self.needed_now = Needed(at=time.time())
        self.lists = 0

    def _renewed(self) -> Needed:
        self.lists += 1
        return self.needed_now

    def store(self, host: str) -> Path:
        return self.folder / host / "code"

    def ship(self, snapshot: Snapshot, base: Snapshot | None = None, hosts: tuple[str, ...] = HOSTS) -> Shipped:
        return ship_code(
            PackSpool(snapshot, base.manifest if base else None),
            store="code",
            owner="mine",
            targets=[target(name) for name in hosts],
            confirm="head",
            reporter=self.reporter,
            needed=self.needed,
            renewed=self._renewed,
        )

    def ship_from(
        self, source: str, snapshot: Snapshot, hosts: tuple[str, ...], *, base: Snapshot | None = None
    ) -> Shipped:
        return ship_stored(
            snapshot.digest,
            base=base.digest if base else None,
            source=target(source),
            store="code",
            owner="mine",
            targets=[target(name) for name in hosts],
            confirm="head",
            reporter=self.reporter,
            needed=self.needed,
            renewed=self._renewed,
        )

    def has(self, host: str, snapshot: Snapshot) -> bool:
        """Return whether the host has the manifest, and all its objects, with the right bytes."""
        path = self.store(host) / "manifests" / snapshot.digest
        if not path.exists():
            return False
        assert path.read_bytes() == snapshot.manifest
        for entry in manifest.parse(snapshot.manifest):
            if entry.kind == manifest.FILE:
                data = (self.store(host) / "objects" / entry.digest[:2] / entry.digest).read_bytes()
                assert data == (self.code / entry.path.decode()).read_bytes()
        return True

    def confirmed(self, snapshot: Snapshot) -> list[str]:
        path = self.store("head") / "confirmed" / snapshot.digest
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="kit-code-test-") as folder:
        made = Cluster(Path(folder))

        def local(login: Login, **_: Any) -> tuple[str, ...]:
            home = Path(folder) / login.host
            home.mkdir(exist_ok=True)
            return ("env", "-C", str(home), "sh", "-c")

        monkeypatch.setattr(porters, "openssh_argv", local)
        monkeypatch.setattr(porters, "marked", lambda argv: "exec " + shlex.join([sys.executable, *argv[1:]]))
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield made


def test_every_host_has_it_and_the_head_knows(cluster: Cluster) -> None:
    snapshot = take(cluster.code)
    shipped = cluster.ship(snapshot)
    assert not shipped.failures
    assert all(cluster.has(host, snapshot) for host in HOSTS)
    assert cluster.confirmed(snapshot) == sorted(HOSTS)
    # A small pack is not 0.0 MB.
    assert f"code: {size(shipped.sent)} left this machine" in cluster.reporter.of(Note)[-1].text
    # Neither a host nor this machine keeps the pack.
    assert all(not list(cluster.store(host).rglob("*.part")) for host in HOSTS)
    assert all(not (cluster.store(host) / "incoming").exists() for host in HOSTS)
    assert not list(cluster.folder.glob("kit-ship-*"))


@contextmanager
def first_ship(cluster: Cluster) -> Iterator[Hold]:
    """Hold the head as a ship does that began before, until it is released."""
    hold = Hold()
    hold.take(str(cluster.store("head") / "incoming"))
    try:
        yield hold
    finally:
        hold.release()


@pytest.mark.parametrize("is_source", [False, True])
def test_a_second_ship_waits_until_the_first_is_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_source: bool
) -> None:
    monkeypatch.setattr(progress, "SHORT_S", 0.0)
    snapshot = take(cluster.code)
    if is_source:
        cluster.ship(snapshot, hosts=("head",))
    waits = HostStep(host="head", text="waiting: another run sends code here", fraction=None)
    with ThreadPoolExecutor() as pool, first_ship(cluster) as first:
        rest = ("one", "two")
        second = (
            pool.submit(cluster.ship_from, "head", snapshot, rest) if is_source else pool.submit(cluster.ship, snapshot)
        )
        until(lambda: waits in cluster.reporter.events)
        # It holds no other host meanwhile.
        assert not any((cluster.store(host) / "incoming").exists() for host in rest)
        first.release()
        assert not second.result(60).failures
    assert all(cluster.has(host, snapshot) for host in HOSTS)


def test_a_ship_from_a_worker_takes_its_turn_at_the_head_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would hold the worker and wait for the head. The other ship holds the head and wants the worker."""
    monkeypatch.setattr(progress, "SHORT_S", 0.0)
    snapshot = take(cluster.code)
    cluster.ship(snapshot, hosts=("head", "one"))
    # It was taken down and deployed again.
    shutil.rmtree(cluster.store("head"))
    (cluster.code / "train.py").write_text("print('again')\n")
    newer = take(cluster.code)
    waits = HostStep(host="head", text="waiting: another run sends code here", fraction=None)
    with ThreadPoolExecutor() as pool, first_ship(cluster) as first:
        stored = pool.submit(cluster.ship_from, "one", snapshot, ("head", "two"))
        until(lambda: waits in cluster.reporter.events)
        assert not any((cluster.store(host) / "incoming").exists() for host in ("one", "two"))
        cluster.reporter.events.clear()
        ships = [stored, pool.submit(cluster.ship, newer)]
        until(lambda: waits in cluster.reporter.events)
        first.release()
        assert [ship.result(60).failures for ship in ships] == [{}, {}]
    assert all(cluster.has(host, newer) for host in HOSTS)
    assert cluster.confirmed(snapshot) == cluster.confirmed(newer) == sorted(HOSTS)


def test_a_ship_that_waited_keeps_what_runs_need_by_now(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run gets its code meanwhile, another one finds it there, and the code of a third one is needed no more."""
    monkeypatch.setattr(progress, "SHORT_S", 0.0)

    def version(number: int) -> Snapshot:
        (cluster.code / "train.py").write_text(f"print({number})\n")
        return take(cluster.code)

    # More than hosts keep, and all of them older than the list.
    old = [version(number) for number in range(70)]
    for snapshot in old:
        manifests = cluster.store("head") / "manifests"
        manifests.mkdir(parents=True, exist_ok=True)
        (manifests / snapshot.digest).write_bytes(snapshot.manifest)
        os.utime(manifests / snapshot.digest, (1, 1))
    unneeded, there, came, last = old[0], old[1], old[2], version(71)
    cluster.needed_now = Needed(digests=(there.digest,), at=time.time())
    waits = HostStep(host="head", text="waiting: another run sends code here", fraction=None)
    with ThreadPoolExecutor() as pool, first_ship(cluster) as first:
        second = pool.submit(cluster.ship, last, None, ("head",))
        until(lambda: waits in cluster.reporter.events)
        os.utime(manifests / came.digest)
        first.release()
        assert not second.result(60).failures
    assert cluster.lists == 1
    left = {path.name for path in manifests.iterdir()}
    assert {there.digest, came.digest, last.digest} < left
    assert unneeded.digest not in left
    # One that did not wait believes the first list.
    cluster.ship(last, hosts=("head",))
    assert cluster.lists == 1


def test_a_change_is_all_that_is_sent(cluster: Cluster) -> None:
    (cluster.code / "big").write_bytes(bytes(range(256)) * 4096)
    first = take(cluster.code)
    assert cluster.ship(first).sent > 10_000
    (cluster.code / "train.py").write_text("print('again')\n")
    second = take(cluster.code)
    pack = PackSpool(second, first.manifest)
    size = pack.pack.size
    pack.close()
    assert size < 2000
    shipped = cluster.ship(second, first)
    assert not shipped.failures
    assert size <= shipped.sent < size + 1000
    assert all(cluster.has(host, second) for host in HOSTS)


def test_a_host_without_the_base_says_so_and_the_others_get_it(cluster: Cluster) -> None:
    first = take(cluster.code)
    cluster.ship(first, hosts=("head", "one"))
    assert cluster.confirmed(first) == ["head", "one"]
    (cluster.code / "train.py").write_text("print('again')\n")
    second = take(cluster.code)
    shipped = cluster.ship(second, first)
    assert list(shipped.failures) == ["two"]
    assert isinstance(shipped.failures["two"], BaseMissingError)
    assert cluster.confirmed(second) == ["head", "one"]
    assert not cluster.ship(second, hosts=("head", "two")).failures
    assert cluster.has("two", second)
    assert cluster.confirmed(second) == sorted(HOSTS)


def test_a_host_that_cannot_store_it_is_named_and_the_others_get_it(cluster: Cluster) -> None:
    snapshot = take(cluster.code)
    cluster.store("one").mkdir(parents=True)
    (cluster.store("one") / "objects").write_text("a file where the store has a folder")
    shipped = cluster.ship(snapshot)
    assert list(shipped.failures) == ["one"]
    assert isinstance(shipped.failures["one"], StepError)
    assert "the code did not arrive" in shipped.failures["one"].message
    assert cluster.has("head", snapshot)
    assert cluster.has("two", snapshot)
    assert cluster.confirmed(snapshot) == ["head", "two"]


def test_what_is_there_is_not_sent_again(cluster: Cluster) -> None:
    snapshot = take(cluster.code)
    cluster.ship(snapshot, hosts=("head",))
    before = {path: path.stat().st_mtime_ns for path in cluster.store("head").rglob("objects/*/*")}
    assert not cluster.ship(snapshot, hosts=("head",)).failures
    # It was only asked.
    assert len(cluster.reporter.of(Note)) == 1
    assert not cluster.ship(snapshot).failures
    assert {path: path.stat().st_mtime_ns for path in cluster.store("head").rglob("objects/*/*")} == before
    assert cluster.confirmed(snapshot) == sorted(HOSTS)


@pytest.mark.parametrize(("source", "others"), [("head", ("one", "two")), ("one", ("head", "two"))])
def test_code_comes_from_a_host_that_has_it(cluster: Cluster, source: str, others: tuple[str, ...]) -> None:
    (cluster.code / "big").write_bytes(bytes(range(256)) * 20_000)
    snapshot = take(cluster.code)
    cluster.ship(snapshot, hosts=tuple(dict.fromkeys(("head", source))))
    if source != "head":
        shutil.rmtree(cluster.store("head"))
    shipped = cluster.ship_from(source, snapshot, others)
    assert (shipped.sent, shipped.failures) == (0, {})
    assert all(cluster.has(host, snapshot) for host in HOSTS)
    assert cluster.confirmed(snapshot) == sorted(HOSTS)
    assert re.fullmatch(rf"code: went from {source} to 2 hosts in .+ s", cluster.reporter.of(Note)[-1].text)
    # Not even the source keeps the pack.
    assert all(not (cluster.store(host) / "incoming").exists() for host in HOSTS)


def test_only_what_differs_from_the_last_snapshot_goes_from_host_to_host(cluster: Cluster) -> None:
    (cluster.code / "big").write_bytes(bytes(range(256)) * 20_000)
    first = take(cluster.code)
    cluster.ship(first, hosts=("head", "one"))
    (cluster.code / "train.py").write_text("print('again')\n")
    second = take(cluster.code)
    cluster.ship(second, hosts=("head",))
    shipped = cluster.ship_from("head", second, ("one", "two"), base=first)
    # This one lacks the base, so it needs everything.
    assert list(shipped.failures) == ["two"]
    assert isinstance(shipped.failures["two"], BaseMissingError)
    assert cluster.has("one", second)
    assert cluster.confirmed(second) == ["head", "one"]
    with pytest.raises(StepError, match="is not here"):
        cluster.ship_from("head", second, ("two",), base=replace(first, digest="f" * 64))


def test_a_host_that_does_not_have_the_code_cannot_give_it(cluster: Cluster) -> None:
    snapshot = take(cluster.code)
    with pytest.raises(StepError, match=r"^head: does not give the code: the snapshot .* is not here$") as error:
        cluster.ship_from("head", snapshot, ("one",))
    assert error.value.host == "head"
    assert not cluster.has("one", snapshot)


def test_a_small_ship_shows_no_progress_unless_it_takes_long(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHORT_S", 600.0)
    cluster.ship(take(cluster.code))
    assert cluster.reporter.of(HostStep) == []
    assert len(cluster.reporter.of(Note)) == 1
    (cluster.code / "train.py").write_text("print('slow')\n")
    monkeypatch.setattr(progress, "SHORT_S", 0.0)
    cluster.ship(take(cluster.code))
    assert {step.host for step in cluster.reporter.of(HostStep)} == set(HOSTS)


def test_a_large_ship_shows_progress(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SMALL", 10)
    monkeypatch.setattr(progress, "SHORT_S", 600.0)
    cluster.ship(take(cluster.code))
    assert {step.host for step in cluster.reporter.of(HostStep)} == set(HOSTS)
