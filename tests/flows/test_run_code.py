"""Tests the code of kit run: which snapshot the hosts get, and what --again does with the one of an earlier run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.text.shown import diff
from kit.errors import InputError, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.flows.queue.join import join
from kit.flows.run import code as codeflow
from kit.flows.run import shipping
from kit.flows.run.attach import wait
from kit.flows.run.listing import show
from kit.flows.run.planning import dry_run
from kit.model.code import Needed, Snapshot
from kit.model.launch import ClusterRecord, RunPolicy, RunRequest
from kit.model.queue import Turn
from kit.model.repository import Repository
from kit.model.values import replace
from kit.remote.code import gathered
from kit.remote.code.fetched import Known, facts
from kit.remote.code.gatherer import NotGatheredError, Place
from kit.remote.code.pack import Changed, write_pack
from kit.remote.code.snapshot import take
from kit.remote.run.door import Door
from kit.remote.ship.faults import BaseMissingError
from kit.remote.ship.porter import manifest
from tests.fakes import git_server
from tests.fakes.cluster import Cluster
from tests.fakes.repository import git, repository

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)


class Store:
    """The snapshots on each host. `sent` has each ship: what was named, and which hosts were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.have: dict[str, set[str]] = {}
        self.sent: list[tuple[str, Sequence[str]]] = []
        # Each ship from host to host: what was named, which host gave it, and which were to get it.
        self.given: list[tuple[str, str, Sequence[str]]] = []
        # What each of these built on.
        self.bases: list[str | None] = []
        # What the last ship named as needed by runs.
        self.needed: Sequence[str] = ()
        self.before: Callable[[], object] = lambda: None

    def ship(
        self,
        context: Context,
        snapshot: Snapshot,
        base: bytes | None,
        cluster: ClusterRecord,
        hosts: Sequence[str],
        *,
        door: Any,
    ) -> Any:
        self.before()
        self.needed = door.needed.digests
        write_pack(snapshot, base, self.folder)
        self.sent.append((snapshot.digest, hosts))
        failures: dict[str, KitError] = {}
        for host in hosts:
            have = self.have.setdefault(host, set())
            if snapshot.digest not in have and base is not None and manifest.digest(base) not in have:
                failures[host] = BaseMissingError("the base is not here", host=host)
            else:
                have.add(snapshot.digest)
                self._write(snapshot)
        return SimpleNamespace(failures=failures)

    def ship_stored(
        self,
        context: Context,
        digest: str,
        holder: str,
        cluster: ClusterRecord,
        hosts: Sequence[str],
        *,
        base: str | None,
        door: Any,
    ) -> Any:
        self.needed = door.needed.digests
        self.given.append((digest, holder, tuple(hosts)))
        self.bases.append(base)
        if digest not in self.have.get(holder, set()) or base not in {None, *self.have[holder]}:
            raise StepError("does not give the code: it is not here", host=holder)
        without = [host for host in hosts if base not in {None, *self.have.setdefault(host, set())}]
        for host in set(hosts) - set(without):
            self.have[host].add(digest)
        return SimpleNamespace(failures={host: BaseMissingError("it is not here", host=host) for host in without})

    def _write(self, snapshot: Snapshot) -> None:
        """Let the head have the snapshot, so that the run can start."""
        if snapshot.manifest == manifest.EMPTY:
            return
        for entry in manifest.parse(snapshot.manifest):
            if entry.kind == manifest.FILE:
                path = self.folder / "objects" / entry.digest[:2] / entry.digest
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes((snapshot.folder / os.fsdecode(entry.path)).read_bytes())
        (self.folder / "manifests").mkdir(exist_ok=True)
        (self.folder / "manifests" / snapshot.digest).write_bytes(snapshot.manifest)

    def prune(self) -> None:
        """Remove every snapshot from every host."""
        self.have.clear()
        shutil.rmtree(self.folder / "manifests")


class Coded:
    """A cluster, its stores, and a folder of code."""

    def __init__(self, cluster: Cluster, store: Store, folder: Path) -> None:
        self.cluster, self.store, self.folder = cluster, store, folder

    def run(self, **more: Any) -> Any:
        """Run with the folder as `code:` of kit.yaml."""
        self.keep_runs()
        more = {"np": 1, "hosts": "gpu1", "spec": {"code": str(self.folder)}, **more}
        run = self.cluster.run("true", **more).plan.run_id
        return next(record for record in self.cluster.records if record["id"] == run)

    def again(self, **more: Any) -> Any:
        given = frozenset(more) & {"np", "hosts", "workdir"}
        return self.run(**{"np": None, "hosts": None, "command": (), "again": "latest", "given": given, **more})

    def keep_runs(self) -> None:
        """Let the VM's disk have the runs that the head has."""
        vm = self.cluster.fleet["gpu1"]
        vm.runs = self.cluster.head.read_runs("list").decode()
        for record in self.cluster.records:
            vm.diffs[record["id"]] = self.cluster.head.read_runs("read", record["id"], "code.diff")


AFFINITY = "import os; print(len(os.sched_getaffinity(0)))"


@pytest.fixture
def coded(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coded:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store(tmp_path)
    monkeypatch.setattr(shipping, "_ship", store.ship)
    monkeypatch.setattr(shipping, "_ship_stored", store.ship_stored)
    folder = tmp_path / "code"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "train.py").write_text("one\n")
    (folder / "sub" / "deep" / "net.py").write_text("net\n")
    (folder / "link").symlink_to("sub")
    cluster.head.values["code_STORE"] = str(tmp_path)
    cluster.reach()
    return Coded(cluster, store, folder)


def test_again_keeps_what_the_run_may_use_of_its_hosts(coded: Coded) -> None:
    first = coded.run(cpus=1, policy=RunPolicy(memory=1 << 40), command=("python3", "-c", AFFINITY))
    second = coded.again()
    for record in (first, second):
        assert (record["options"]["cpus"], record["options"]["memory"]) == (1, 1 << 40)
    # kit-rank has bound both to one CPU of this machine.
    assert coded.cluster.out == ["1"] * 2


def test_again_takes_the_code_that_the_hosts_still_have(coded: Coded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPIED", "from the shell")
    first = coded.run(env=(("LR", "0.1"), ("COPIED", None)), command=("sh", "-c", "echo $LR $COPIED"))
    assert first["options"]["variables"] == {"typed": ["LR"], "copied": ["COPIED"], "forwarded": []}
    (coded.folder / "train.py").write_text("two\n")
    coded.store.sent.clear()
    second = coded.again()
    assert second["code"] == first["code"]
    # The hosts are asked by its name, and no byte of today's folder goes anywhere.
    assert coded.store.sent == [(first["code"]["digest"], ["gpu1"])]
    assert all(second[key] == first[key] for key in ("command", "env", "options"))
    assert [place["ranks"] for place in second["places"]] == [1]
    assert coded.cluster.out == ["0.1 from the shell"] * 2
    third = coded.again(code=str(coded.folder), env=(("LR", "0.2"),))
    assert third["code"]["digest"] != first["code"]["digest"]
    assert coded.cluster.out[-1] == "0.2 from the shell"


def test_again_sends_code_that_the_hosts_have_pruned(coded: Coded) -> None:
    first = coded.run()
    coded.store.prune()
    assert coded.again()["code"] == first["code"]
    assert first["code"]["digest"] in coded.store.have["gpu1"]
    # Also if it is not the folder of kit.yaml.
    coded.store.prune()
    assert coded.again(spec={})["code"] == first["code"]


def test_a_host_that_lost_the_code_is_asked_whatever_the_head_says(coded: Coded) -> None:
    """As one that was taken down and deployed again, and then comes to an elastic run."""
    first = coded.run()
    digest = first["code"]["digest"]
    stored = codeflow.Stored(first["id"], first["code"])
    door: Any = SimpleNamespace(code={digest: ("gpu1", "gpu2")}, needed=Needed(at=0.0))
    cluster: Any = SimpleNamespace()
    context = coded.cluster.context(code=str(coded.folder))
    coded.store.have["gpu2"] = set()
    coded.store.sent.clear()
    stored.bring(context, door, cluster, ["gpu2"])
    assert coded.store.sent == []
    # The folder has other code now, but the head still has that of the run.
    (coded.folder / "train.py").write_text("two\n")
    stored.bring(context, door, cluster, ["gpu2"], ask=True)
    assert digest in coded.store.have["gpu2"]
    assert coded.store.given == [(digest, "gpu1", ("gpu2",))]


def test_the_head_gets_the_code_from_another_host(coded: Coded) -> None:
    """As a head that was taken down and deployed again."""
    first = coded.run()
    digest = first["code"]["digest"]
    coded.store.have.update(gpu1=set(), gpu2={digest})
    door: Any = SimpleNamespace(code={}, needed=Needed(digests=("n",), at=0.0))
    cluster: Any = SimpleNamespace()
    stored = codeflow.Stored(first["id"], first["code"])
    stored.bring(coded.cluster.context(), door, cluster, ["gpu2", "gpu3"])
    assert coded.store.given == [(digest, "gpu2", ("gpu1", "gpu3"))]
    assert all(digest in coded.store.have[host] for host in ("gpu1", "gpu3"))
    assert coded.store.needed == ("n",)


@pytest.mark.parametrize("gives", [True, False])
def test_new_hosts_get_much_code_from_the_head(coded: Coded, *, gives: bool) -> None:
    """And from this machine if the head does not give it."""
    (coded.folder / "weights").write_bytes(bytes(shipping.LITTLE + 1))
    first = coded.run()
    digest = first["code"]["digest"]
    coded.store.sent.clear()
    coded.store.have["gpu1"] = {digest} if gives else set()
    door: Any = SimpleNamespace(code={digest: ("gpu1",)}, needed=Needed(at=0.0))
    context = coded.cluster.context(code=str(coded.folder))
    cluster: Any = SimpleNamespace()
    codeflow.Taken(str(coded.folder), coded.cluster.reporter).bring(context, door, cluster, ["gpu2"])
    assert coded.store.given == [(digest, "gpu1", ("gpu2",))]
    assert digest in coded.store.have["gpu2"]
    assert coded.store.sent == ([] if gives else [(digest, ["gpu1", "gpu2"])])
    assert [event.text for event in coded.cluster.reporter.warnings] == (
        [] if gives else ["gpu1 does not give the code: it is not here"]
    )


def test_little_code_comes_from_this_machine(coded: Coded) -> None:
    first = coded.run()
    digest = first["code"]["digest"]
    coded.store.sent.clear()
    door: Any = SimpleNamespace(code={digest: ("gpu1",)}, needed=Needed(at=0.0))
    context = coded.cluster.context(code=str(coded.folder))
    cluster: Any = SimpleNamespace()
    codeflow.Taken(str(coded.folder), coded.cluster.reporter).bring(context, door, cluster, ["gpu2"])
    assert (coded.store.given, coded.store.sent) == ([], [(digest, ["gpu1", "gpu2"])])


def test_hosts_keep_the_code_of_runs_that_live_or_wait(coded: Coded) -> None:
    coded.run()
    # Nothing needs the code of a run that has ended.
    (coded.folder / "train.py").write_text("two\n")
    coded.run()
    assert coded.store.needed == ()
    head, waiting = coded.cluster.head, "20260101-000000-0000"
    line = head.runs / ".queue"
    line.mkdir()
    request = {"id": waiting, "code": "b" * 64}
    (line / f"{waiting}.json").write_text(json.dumps({"id": waiting, "place": 1, "held": True, "request": request}))
    living, answer = head.ranks(1, "echo up; sleep 60", info={"code": {"digest": "a" * 64}})
    assert "started" in answer
    living.read_until("up")
    (coded.folder / "train.py").write_text("three\n")
    coded.run(policy=RunPolicy(share=True))
    assert list(coded.store.needed) == ["a" * 64, "b" * 64]


def test_again_of_code_that_is_nowhere(coded: Coded) -> None:
    first = coded.run()
    coded.store.prune()
    (coded.folder / "train.py").write_text("two\n")
    with pytest.raises(NotReadyError, match=r"is no longer there, and .* has changed since") as error:
        coded.again()
    assert error.value.hint == f"run today's code: kit run --again {first['id']} --code ."
    assert len(coded.cluster.records) == 1


def test_the_way_back_to_a_commit() -> None:
    record = {"folder": "/net", "commit": "c0ffee", "dirty": True, "diff": "+x"}
    assert "go back to that code in /net (git checkout c0ffee; kit runs show r1 --diff | git apply)" in str(
        codeflow.lost("r1", record, ["gpu1"]).hint
    )
    assert "(git checkout c0ffee), then" in str(codeflow.lost("r1", {**record, "diff": ""}, ["gpu1"]).hint)


def test_again_warns_of_another_image(coded: Coded) -> None:
    first = coded.run()
    coded.again()
    assert not [event for event in coded.cluster.reporter.events if isinstance(event, Warned)]
    vm = coded.cluster.fleet["gpu1"]
    vm.runs = vm.runs.replace(first["image"], "kit:old")
    coded.keep_runs = lambda: None  # type: ignore[method-assign]
    coded.again()
    warnings = [event.text for event in coded.cluster.reporter.events if isinstance(event, Warned)]
    assert len(warnings) == 1
    assert f"had the image kit:old; the cluster has {first['image']} now" in warnings[0]


def test_the_difference_restores_files_that_are_no_text(
    coded: Coded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    as_author(monkeypatch)
    repository(coded.folder, {})
    made = {"latin.txt": b"caf\xe9\n", "data.bin": bytes(range(256))}
    for name in made:
        (coded.folder / name).write_bytes(b"\0 before\n" if name == "data.bin" else b"before \xff\n")
    git(coded.folder, "add", "-A")
    git(coded.folder, "commit", "-qm", "all")
    for name, content in made.items():
        (coded.folder / name).write_bytes(content)
    coded.run()
    coded.keep_runs()
    # The record of another run has it, too.
    run = coded.again()
    coded.keep_runs()
    patch = diff(show(coded.cluster.context(), run["id"]))
    git(coded.folder, "checkout", "-q", ".")
    subprocess.run(["git", "apply"], cwd=coded.folder, input=patch, check=True)
    assert {name: (coded.folder / name).read_bytes() for name in made} == made


def test_the_difference_from_the_commit_has_a_file(coded: Coded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record, which each connection reads while the run lives, does not have it."""
    as_author(monkeypatch)
    repository(coded.folder, {})
    (coded.folder / "train.py").write_text("@@ two\n")
    first = coded.run()
    assert (first["code"]["dirty"], "diff" in first["code"]) == (True, False)
    coded.keep_runs()
    shown = show(coded.cluster.context(), first["id"])
    assert shown.diff.splitlines()[-2:] == ["-one", "+@@ two"]
    # The next run has it, too, although the folder is another one now.
    (coded.folder / "train.py").write_text("three\n")
    again = coded.again()
    coded.keep_runs()
    assert show(coded.cluster.context(), again["id"]).diff == shown.diff
    git(coded.folder, "commit", "-qam", "all")
    clean = coded.run()
    coded.keep_runs()
    assert show(coded.cluster.context(), clean["id"]).diff == ""


@pytest.mark.parametrize("older", [False, True])
def test_an_array_has_one_difference_from_the_commit(
    coded: Coded, monkeypatch: pytest.MonkeyPatch, *, older: bool
) -> None:
    """It may have a megabyte, and an array 1,000 runs. An older launcher wants it in each run."""
    as_author(monkeypatch)
    repository(coded.folder, {})
    (coded.folder / "train.py").write_text("@@ two\n")
    if older:
        monkeypatch.setattr(Door, "takes_diffs", property(lambda _: False, lambda *_: None), raising=False)
    requests: list[Any] = []
    ask = Door.ask
    monkeypatch.setattr(Door, "ask", lambda door, request: requests.append(request) or ask(door, request))
    context = coded.cluster.context(code=str(coded.folder))
    runs = join(context, RunRequest(command=("true",), np=1), Turn(array=(0, 1, 2))).runs
    (request,) = requests
    assert ["@@ two" in json.dumps(entry) for entry in request["entries"]] == [older] * 3
    assert ("@@ two" in request.get("diff", {}).get("diff", "")) is not older
    for run in runs:
        wait(context, run)
        assert (coded.cluster.head.runs / run / "code.diff").read_text().endswith("+@@ two\n")


def as_author(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.replace("AUTHOR", "COMMITTER"), value)


def test_again_of_a_run_without_code(coded: Coded) -> None:
    coded.run(spec={})
    coded.store.sent.clear()
    assert "code" not in coded.again()
    assert coded.store.sent == []
    assert "digest" in coded.again(code=str(coded.folder))["code"]


def test_again_plans_without_starting(coded: Coded) -> None:
    coded.run(np=2, command=("sh", "-c", "true"))
    coded.keep_runs()
    plan = dry_run(coded.cluster.context(), RunRequest(again="latest", dry_run=True))
    assert (plan.placement.np, plan.command) == (2, ("sh", "-c", "true"))
    assert len(coded.cluster.records) == 1


def test_a_file_that_changes_is_taken_again(coded: Coded) -> None:
    words = iter(["two\n"])
    coded.store.before = lambda: (coded.folder / "train.py").write_text(next(words, "two\n"))
    record = coded.run()
    (digest, _), *rest = coded.store.sent
    assert (record["code"]["digest"], rest) == (digest, [])


def test_a_file_that_never_rests_ends_the_attempts(coded: Coded) -> None:
    tries: list[int] = []

    def write() -> None:
        tries.append(len(tries))
        (coded.folder / "train.py").write_text(f"change {len(tries)}\n")

    coded.store.before = write
    with pytest.raises(Changed, match=r"train\.py changed after kit took the snapshot"):
        coded.run()
    assert (len(tries), coded.store.sent, coded.cluster.records) == (codeflow.TRIES, [], [])


@pytest.mark.parametrize("folder", ["sub", "sub/deep", "link", "link/deep"])
def test_the_ranks_start_in_a_folder_below(coded: Coded, folder: str) -> None:
    result = coded.cluster.run("true", np=1, spec={"code": str(coded.folder)}, workdir=folder)
    argv = result.plan.argv
    work = f"/var/lib/kit/runs/{result.plan.run_id}/work"
    assert argv[argv.index("--wdir") + 1] == f"{work}/{folder}"
    assert result.plan.env["KIT_WORKDIR"] == work
    (record,) = coded.cluster.records
    assert record["options"]["workdir"] == folder


def test_a_workdir_that_is_nowhere(coded: Coded) -> None:
    for folder in ("missing", "train.py", "su"):
        with pytest.raises(InputError, match=f"the code has no folder {folder}"):
            coded.run(workdir=folder)
    with pytest.raises(InputError, match="is a folder of the code, and this run has none"):
        coded.run(workdir="sub", spec={})
    assert (coded.store.sent, coded.cluster.records) == ([], [])


def test_again_keeps_the_workdir(coded: Coded) -> None:
    coded.run(workdir="sub")
    assert coded.again()["options"]["workdir"] == "sub"
    with pytest.raises(InputError, match="the code has no folder missing"):
        coded.again(workdir="missing")


def test_code_from_a_repository(coded: Coded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_author(monkeypatch)
    origin = repository(tmp_path / "origin", {"train.py": "one\n"})
    code = f"git+{origin}@main"
    first = coded.run(spec={"code": code}, code=code)
    assert (first["code"]["folder"], first["code"]["commit"]) == (code, git(origin, "rev-parse", "HEAD"))
    (origin / "train.py").write_text("two\n")
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{'0' * 39}1,lib")
    git(origin, "add", "train.py")
    git(origin, "commit", "-qm", "second")
    # The same commit, although the branch has moved, and no host or cache has it.
    coded.store.prune()
    shutil.rmtree(tmp_path / "cache")
    assert coded.again(spec={})["code"] == first["code"]
    coded.cluster.reporter.events.clear()
    second = coded.again(spec={"code": code}, code=code)
    assert second["code"]["commit"] == git(origin, "rev-parse", "HEAD")
    warnings = [event for event in coded.cluster.reporter.events if isinstance(event, Warned)]
    assert [warning.text for warning in warnings] == [
        ".gitmodules has no URL to fetch these submodules from, so their folders are empty: lib"
    ]
    coded.store.prune()
    shutil.rmtree(origin)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(NotReadyError, match=r"is no longer there, and git\+.*@main no longer gives it"):
        coded.again(spec={})


def test_the_login_for_the_code_of_an_earlier_run() -> None:
    record = {"folder": "git+https://example.com/net@main", "commit": "c0ffee"}
    mine = "git+https://me:token@example.com/net@dev"
    assert codeflow.sources_of(record, mine) == ["git+https://me:token@example.com/net@c0ffee"]
    assert codeflow.sources_of(record, "/code") == ["git+https://example.com/net@c0ffee"]
    other = "git+https://me:token@example.com/other"
    assert codeflow.sources_of(record, other) == ["git+https://example.com/net@c0ffee"]
    assert codeflow.sources_of({"folder": "/a"}, "/b") == ["/a", "/b"]
    assert codeflow.sources_of({"folder": "/a"}, None) == ["/a"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda top: top.rename(top.with_name("gone")), "does not exist"),
        (lambda top: os.mkfifo(top / "odd"), "is a FIFO"),
        (lambda top: (top / "out").symlink_to("/etc/hostname"), "leads out of the code folder"),
        (lambda top: os.environ.update(HOME=str(top)), "is a home folder"),
    ],
)
def test_a_folder_that_is_no_code_starts_nothing(
    coded: Coded, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], message: str
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    make(coded.folder)
    with pytest.raises(InputError, match=message) as error:
        coded.run()
    assert error.value.hint
    assert (coded.store.sent, coded.cluster.records) == ([], [])
    coded.cluster.head.nothing_left()


class Web:
    """A repository on the web, and a head that fetches from it. `asked` has the commits that it had to fetch.

    `refusal` is why it cannot fetch, or ''.
    """

    def __init__(self, coded: Coded, origin: Path, address: str) -> None:
        self.coded, self.origin = coded, origin
        self.code = f"git+http://{git_server.LOGIN}@{address}/origin/.git@main"
        self.asked: list[str] = []
        self.refusal = ""

    def gather(self, source: Repository, commit: str, place: Place, say: Callable[[str], None]) -> Snapshot:
        assert (place.login.host, place.store) == ("gpu1", "/opt/kit/lab/code")
        assert source.url.startswith(f"http://{git_server.LOGIN}@")
        self.asked.append(commit)
        if self.refusal:
            raise NotGatheredError(self.refusal, host="gpu1")
        assert git(self.origin, "rev-parse", "HEAD") == commit
        taken = take(self.origin)
        self.coded.store._write(taken)
        self.coded.store.have.setdefault("gpu1", set()).add(taken.digest)
        gathered._remember(source, commit, Known(digest=taken.digest, notes=[]))
        return replace(taken, folder=Path("/"), source=source.shown, git=facts(source, commit), holder="gpu1")

    def run(self, **more: Any) -> Any:
        return self.coded.run(spec={"code": self.code}, code=self.code, **more)

    def bring(self, have: Sequence[str] = (), others: Mapping[str, Sequence[str]] | None = None) -> str:
        """Bring the code to gpu1, the head, and to gpu2, as far as they do not have it. Return its digest.

        `others` has the hosts that have other snapshots.
        """
        context = self.coded.cluster.context(code=self.code)
        taken = codeflow.Taken(self.code, self.coded.cluster.reporter, context)
        door: Any = SimpleNamespace(code={taken.digest: have, **(others or {})}, needed=Needed(at=0.0))
        cluster: Any = SimpleNamespace()
        taken.bring(context, door, cluster, ["gpu2"])
        return taken.digest

    def change(self, text: str) -> str:
        (self.origin / "train.py").write_text(text)
        git(self.origin, "commit", "-qam", text)
        return git(self.origin, "rev-parse", "HEAD")

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.coded.cluster.reporter.events if isinstance(event, Note)]


@pytest.fixture
def web(coded: Coded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    as_author(monkeypatch)
    origin = repository(tmp_path / "served" / "origin", {"train.py": "one\n", "sub/net.py": "net\n"})
    with git_server.serving(origin.parent) as address:
        made = Web(coded, origin, address)
        monkeypatch.setattr(gathered, "gather", made.gather)
        yield made


def test_the_head_fetches_a_commit_and_gives_it_to_the_others(web: Web) -> None:
    digest, commit = web.bring(), git(web.origin, "rev-parse", "HEAD")
    assert web.asked == [commit]
    # No byte of it comes from this machine.
    assert (web.coded.store.given, web.coded.store.sent) == ([(digest, "gpu1", ("gpu1", "gpu2"))], [])
    # A commit that is known is not asked for once more.
    assert web.bring(have=("gpu1", "gpu2")) == digest
    assert (web.asked, len(web.coded.store.given)) == ([commit], 1)
    assert web.bring(have=("gpu1",)) == digest
    assert (web.asked, web.coded.store.given[1:]) == ([commit], [(digest, "gpu1", ("gpu2",))])
    # But one that the head lost is.
    assert web.bring() == digest
    assert (web.asked, len(web.coded.store.given)) == ([commit, commit], 3)
    assert web.coded.store.sent == []


def test_only_what_differs_from_the_last_commit_goes_on(web: Web) -> None:
    hosts = ("gpu1", "gpu2")
    first = web.bring()
    web.change("two\n")
    second = web.bring(others={"f" * 64: ("gpu1",), first: hosts})
    assert web.coded.store.bases == [None, first]
    # gpu2 was replaced, and the head does not know it.
    web.change("three\n")
    web.coded.store.have["gpu2"].clear()
    third = web.bring(others={second: hosts})
    assert web.coded.store.bases == [None, first, second, None]
    assert web.coded.store.given[-2:] == [(third, "gpu1", ("gpu1", "gpu2")), (third, "gpu1", ("gpu2",))]
    # The head itself has forgotten it.
    web.change("four\n")
    last = web.bring(others={"e" * 64: hosts})
    assert web.coded.store.bases[4:] == ["e" * 64, None]
    assert all(last in web.coded.store.have[host] for host in hosts)
    assert web.coded.store.sent == []
    assert not web.coded.cluster.reporter.warnings


def test_a_head_alone_only_writes_down_that_it_has_the_commit(web: Web) -> None:
    record = web.run()
    digest = record["code"]["digest"]
    assert (web.coded.store.given, web.coded.store.sent) == ([], [(digest, ["gpu1"])])
    assert web.asked == [record["code"]["commit"]]


def test_again_takes_a_commit_from_the_head_once_more(web: Web) -> None:
    first = web.run(workdir="sub")
    assert "s3cret" not in json.dumps(first)
    web.coded.store.prune()
    web.asked.clear()
    again = web.coded.again(spec={"code": web.code})
    assert (again["code"], web.asked) == (first["code"], [first["code"]["commit"]])
    assert first["code"]["digest"] in web.coded.store.have["gpu1"]


def test_this_machine_fetches_what_the_head_cannot(web: Web) -> None:
    web.refusal = "cannot fetch it: the commit has submodules"
    digest = web.bring()
    assert web.said == ["code: gpu1 cannot fetch it: the commit has submodules; this machine fetches it"]
    assert (web.coded.store.given, web.coded.store.sent) == ([], [(digest, ["gpu1", "gpu2"])])
    # From then on, it is in the cache.
    assert web.bring() == digest
    assert (len(web.asked), len(web.said)) == (1, 1)


def test_this_machine_fetches_what_the_head_lost_and_cannot_fetch_again(web: Web) -> None:
    digest = web.bring()
    web.coded.store.have.clear()
    web.refusal = "cannot fetch it: no route to host"
    assert web.bring() == digest
    assert web.said == ["code: gpu1 cannot fetch it: no route to host; this machine fetches it"]
    assert web.coded.store.sent == [(digest, ["gpu1", "gpu2"])]


def no_ship(*_: object, **__: object) -> None:
    raise StepError("does not give the code: its disk is gone", host="gpu1")


def test_a_head_that_fetched_other_files_starts_no_run(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    (web.origin / "sub" / "net.py").write_text("not in the commit\n")
    monkeypatch.setattr(shipping, "_ship_stored", no_ship)
    with pytest.raises(KitError, match="fetched different files"):
        web.bring()


@pytest.mark.parametrize("answers", [True, False])
def test_a_ship_that_waited_asks_the_head_again(answers: bool) -> None:
    now = Needed(digests=("now",), at=2.0)
    closed: list[bool] = []

    def opened() -> None:
        if not answers:
            raise UnreachableError("no route to host")

    another = SimpleNamespace(open=opened, needed=now, close=lambda *, ended: closed.append(ended))
    door: Any = SimpleNamespace(needed=Needed(digests=("then",), at=1.0), another=lambda: another)
    if answers:
        assert shipping._listed_again(door) == now
    else:
        with pytest.raises(UnreachableError):
            shipping._listed_again(door)
    assert closed == [True]
