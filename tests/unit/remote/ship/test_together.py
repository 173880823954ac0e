"""A whole ship: the operator, its porters as separate programs, and a made-up engine on each host.

What ssh would start on a VM is started here.
"""

from __future__ import annotations

import random
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from kit.errors import ImageError
from kit.events import Note
from kit.model.host import Login
from kit.remote.ship import lead as module
from kit.remote.ship import porters
from kit.remote.ship.broadcast import ship
from kit.remote.ship.lanes import Target
from kit.remote.ship.result import Shipped
from tests.fakes.reporter import Remembering
from tests.fakes.sdk import Api
from tests.fakes.socket_engine import FakeEngine, sha

IMAGE = "kit/horovod:abc"
CONTENTS = [random.Random(i).randbytes(size) for i, size in enumerate((400_000, 900_000, 50))]  # noqa: S311
CHAIN = [sha(content) for content in CONTENTS]
TOTAL = sum(map(len, CONTENTS))
HOSTS = ("one", "two", "three")


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.engines = {name: FakeEngine(folder / name) for name in (*HOSTS, "head")}
        self.api = Api(IMAGE, CONTENTS)
        self.reporter = Remembering()

    def ship(self, source: str | None = None) -> Shipped:
        targets = [target(name) for name in HOSTS]
        given = target(source) if source else None
        return ship(IMAGE, owner="mine", targets=targets, reporter=self.reporter, source=given)

    def have_it(self, *names: str) -> bool:
        return all(self.engines[name].chain(IMAGE) == CHAIN for name in names)

    def clean(self, *names: str) -> bool:
        return all(
            not (self.engines[name].root / "kit-ship").exists() and len(self.engines[name].images) == 1
            for name in names
        )


def target(name: str) -> Target:
    login = Login(host=name, address=name, user=None, port=None, key=None, known_hosts=None)
    return Target(login=login, address="127.0.0.1")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    # A socket's path is short: pytest's own folders may be too deep for one.
    with tempfile.TemporaryDirectory(prefix="kit-ship-test-") as folder:
        made = Cluster(Path(folder))

        def local(login: Login, **_: Any) -> tuple[str, ...]:
            return ("env", f"DOCKER_HOST=unix://{made.engines[login.host].path}", "sh", "-c")

        monkeypatch.setattr(porters, "openssh_argv", local)
        monkeypatch.setattr(porters, "marked", lambda argv: "exec " + shlex.join([sys.executable, *argv[1:]]))
        monkeypatch.setenv("TMPDIR", folder)
        api = made.api
        monkeypatch.setattr(docker, "from_env", lambda **_: SimpleNamespace(api=api, close=lambda: None))
        yield made
        for engine in made.engines.values():
            engine.close()


def test_each_host_gets_it_and_this_machine_sends_it_once(cluster: Cluster) -> None:
    shipped = cluster.ship()
    assert shipped.failures == {}
    assert cluster.have_it(*HOSTS)
    # Neither the porter's program nor its orders count.
    assert TOTAL < shipped.sent < TOTAL + 10_000
    assert set(shipped.load_s) == set(HOSTS)
    assert cluster.clean(*HOSTS)
    assert cluster.reporter.warnings == []


def test_it_comes_out_of_another_hosts_engine(cluster: Cluster) -> None:
    cluster.engines["head"].add(CONTENTS, IMAGE)
    shipped = cluster.ship(source="head")
    assert shipped.failures == {}
    assert cluster.have_it(*HOSTS)
    assert shipped.sent == 0
    (note,) = (note.text for note in cluster.reporter.of(Note) if note.text.startswith("image: "))
    assert note.startswith(f"image: went from head to {len(HOSTS)} hosts in ")
    assert cluster.clean(*HOSTS, "head")


@pytest.mark.parametrize("source", [None, "head"])
def test_it_has_another_name_where_it_comes_from(cluster: Cluster, source: str | None) -> None:
    cluster.engines["head"].add(CONTENTS, IMAGE)
    shipped = ship(
        "plugin:0123", owner="mine", targets=[target(name) for name in HOSTS], reporter=cluster.reporter,
        source=target(source) if source else None, origin=IMAGE,
    )  # fmt: skip
    assert shipped.failures == {}
    assert all(cluster.engines[name].chain("plugin:0123") == CHAIN for name in HOSTS)
    assert cluster.engines["head"].chain(IMAGE) == CHAIN


def test_a_source_whose_engine_gives_up_ends_it(cluster: Cluster) -> None:
    cluster.engines["head"].add(CONTENTS, IMAGE)
    cluster.engines["head"].saved = b"no tar at all" * 100
    with pytest.raises(ImageError, match="cannot be read") as caught:
        cluster.ship(source="head")
    assert caught.value.host == "head"
    assert not any(cluster.have_it(name) for name in HOSTS)


@pytest.mark.parametrize("killed", HOSTS)
def test_a_porter_that_is_killed_takes_nobody_along(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    class Mortal(porters.Porter):
        def __init__(self, login: Login, heard: Any, **options: Any) -> None:
            self.dead = False

            def hear(porter: Any, report: Any) -> None:
                if report and login.host == killed and (report.at or report.received):
                    self.dead = True
                    self.kill()
                if report is None or not self.dead:
                    heard(porter, report)

            super().__init__(login, hear, **options)

    monkeypatch.setattr(module, "Porter", Mortal)
    shipped = cluster.ship()
    assert list(shipped.failures) == [killed]
    others = [name for name in HOSTS if name != killed]
    assert cluster.have_it(*others)
    assert cluster.clean(*others)
    monkeypatch.setattr(module, "Porter", porters.Porter)
    assert cluster.ship().failures == {}
    assert cluster.have_it(*HOSTS)
    assert cluster.clean(*HOSTS)


def test_only_what_is_lacking_travels(cluster: Cluster) -> None:
    for name in HOSTS:
        cluster.engines[name].add(CONTENTS[:2], "older:1")
    shipped = cluster.ship()
    assert shipped.failures == {}
    assert cluster.have_it(*HOSTS)
    assert 0 < shipped.sent < 10_000
    assert cluster.api.saves == 0
