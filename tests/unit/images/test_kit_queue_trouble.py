"""What the line does when files are damaged, the disk is full, hosts leave the cluster, or the head starts again."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import until
from tests.fakes.line import ADDRESSES, Line

queue_line: Any = launcher.load("kitqueue.line")


def test_a_damaged_file_stops_nobody(line: Line) -> None:
    (everything,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(everything)
    bad, other, good = line.queue(line.entry(1), line.entry(1), line.entry(1))
    assert line.waits(good, "turn")
    folder = line.head.runs / ".queue"
    (folder / f"{bad}.json").write_text('{"id": "')
    # A file that is whole JSON, and no entry that a keeper could use.
    entry = json.loads((folder / f"{other}.json").read_text())
    (folder / f"{other}.json").write_text(json.dumps({**entry, "need": {"counts": ["many"]}}))
    assert line.waits(other, "broken")["why"].startswith("ValueError")
    answer = line.ask("line")
    assert (answer["torn"], [one["id"] for one in answer["line"]]) == ([bad], [other, good])
    assert line.ask("change", id=bad, how="hold") == {"missing": bad}
    assert line.ask("change", id=bad, how="remove")["members"] == [bad]
    answer = line.ask("line")
    assert answer["torn"] == []
    # Its own clock, by which all times of the line are.
    assert answer["now"] >= answer["line"][0]["queued"]
    line.let_go(everything)
    line.let_go(good)
    # Nobody who may start is left, so the keeper ends, and the broken one is still there.
    until(lambda: not line.keeper())
    assert line.waiting == [other]
    assert line.ask("change", id=other, how="remove")["members"] == [other]


def test_a_damaged_state_is_written_again(line: Line) -> None:
    (first,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(first)
    (second,) = line.queue(line.entry(1, after=[[first, "ok"]]))
    line.waits(second, "after")
    until(line.keeper)
    os.kill(line.keeper(), signal.SIGKILL)
    until(lambda: not line.keeper())
    (line.head.runs / ".queue" / ".state.json").write_text('{"reasons": 3')
    assert line.waits(second, "after")["ids"] == [first]
    line.let_go(first)
    line.let_go(second)


def test_a_keeper_that_was_killed_comes_back_with_any_call(line: Line) -> None:
    first, second = line.queue(line.entry(2, 2, 2), line.entry(1))
    line.waits(second, "slots")
    attached = line.head.door()
    assert "queued" in attached.ask({"op": "attach", "id": second})
    seen = [line.keeper()]
    # Also without a call: kit-launch looks after the keeper as long as somebody waits for a run in line.
    for call in (lambda: None, lambda: line.attached(first), lambda: line.ask("cordon", hosts=["x"], why="", by="")):
        os.kill(seen[-1], signal.SIGKILL)
        call()
        until(lambda: line.keeper() not in (0, *seen))
        seen.append(line.keeper())
    assert [*line.ask("line")["cordons"]] == ["x"]
    line.let_go(first)
    line.let_go(second)


def test_a_full_disk_takes_nobody_into_the_line(line: Line) -> None:
    entries = [line.entry(1), line.entry(1, script="#" * 3000)]
    line.head.limit_files = 3000
    answer = line.ask("queue", entries=entries)
    assert answer == {"failed": f"[Errno {errno.EFBIG}] {os.strerror(errno.EFBIG)}"}
    # The first one fitted, and waits neither.
    folder = line.head.runs / ".queue"
    assert [path.name for path in folder.iterdir() if path.name.endswith((".json", ".new"))] == []


def test_a_run_that_cannot_start_now_stays_in_line(line: Line) -> None:
    (first,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(first)
    one, two = line.queue(line.entry(1), line.entry(1))
    line.waits(one, "slots")
    # Its folder cannot be made, as on a full disk.
    (line.head.runs / one).write_text("in the way")
    line.let_go(first)
    assert os.strerror(errno.EEXIST) in line.waits(one, "error")["why"]
    line.hosts_of(two)
    (line.head.runs / one).unlink()
    line.let_go(one)
    line.let_go(two)


def test_a_state_goes_into_its_old_space_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".queue").mkdir()
    queue_line.write_state({"reasons": {"a": {"kind": "slots"}}}, str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(queue_line.store, "write", full)
    queue_line.write_state({"reasons": {}}, str(tmp_path))
    assert queue_line.state(str(tmp_path)) == {"reasons": {}}


def test_a_run_whose_hosts_left_the_cluster_is_told(line: Line) -> None:
    (first,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(first)
    large, small = line.queue(line.entry(2, 2, 2), line.entry(1))
    line.waits(large, "slots")
    record = json.loads(line.head.record.read_text())
    port = record["ssh_port"]
    line.ask("cordon", hosts=["gpu2"], why="its fan", by="me")
    assert line.waits(large, "hosts")["out"] == {"gpu2": "cordoned"}
    line.deployed("gpu1", "gpu2", port=port)
    assert line.waits(large, "gone")["out"] == {"gpu2": "cordoned", "gpu3": "gone"}
    line.let_go(first)
    assert line.hosts_of(small) == {"gpu1": [0]}
    line.ask("uncordon", hosts=["gpu2"])
    # The host comes back.
    line.deployed(*ADDRESSES, port=port)
    line.let_go(small)
    line.let_go(large)


def test_a_run_starts_at_the_address_that_its_host_has_now(line: Line) -> None:
    (first,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(first)
    entry = line.entry(1, hosts=("gpu1",))
    # Nothing answers there.
    entry["nodes"]["gpu1"]["address"] = "192.0.2.1"
    (second,) = line.queue(entry)
    line.waits(second, "slots")
    record = json.loads(line.head.record.read_text())
    nodes = [{"name": name, "address": address, "slots": 2} for name, address in ADDRESSES.items()]
    line.head.record.write_text(json.dumps({**record, "nodes": nodes}))
    line.let_go(first)
    (place,) = line.record(second)["places"]
    assert (place["node"], place["address"]) == ("gpu1", ADDRESSES["gpu1"])
    line.let_go(second)


def test_a_keeper_that_dies_between_the_start_and_the_line_starts_nothing_twice(line: Line) -> None:
    (run,) = line.queue(line.entry(1))
    entry = json.dumps({**line.entry(1), "id": run, "place": 1})
    line.hosts_of(run)
    until(lambda: line.waiting == [])
    file = line.head.runs / ".queue" / f"{run}.json"
    file.write_text(entry)
    line.ask("line")
    until(lambda: not file.exists())
    line.let_go(run)
    assert len(line.attached(run).story().events("attempt")) == 1


def test_a_run_leaves_the_line_only_after_its_record_outlives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keepers: Any = launcher.load("kitqueue.keeper")
    run, entry, order = "20261121-101500-3fa2", {"id": 1}, []
    keeper = object.__new__(keepers.Keeper)
    keeper.root, keeper._failures = str(tmp_path), {}
    (tmp_path / ".queue").mkdir()

    def begin(started: Any, *_: object) -> None:
        Path(started.folder).mkdir()
        Path(started.path("record.json")).write_text("{}")
        order.append("begin")

    monkeypatch.setattr(keeper, "_begin", begin)
    monkeypatch.setattr(keepers.line, "read", lambda *_: entry)
    monkeypatch.setattr(keepers.line, "remove", lambda *_: order.append("remove"))
    to_disk = keepers.store.to_disk
    monkeypatch.setattr(keepers.store, "to_disk", lambda path: (order.append(Path(path).name), to_disk(path)))
    start = SimpleNamespace(id=run, chosen=())
    assert keeper._start(start, SimpleNamespace(entries={run: entry}, nodes={}))
    assert order == ["begin", "record.json", run, tmp_path.name, "remove"]


UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="this machine does not let root mount",
)


@needs_mounts
def test_the_line_goes_on_when_the_head_starts_again(line: Line, tmp_path: Path) -> None:
    """The real start.sh, in separate folders, with an sshd that waits for the run."""
    entry = line.entry(1)
    state = "/var/lib/kit"
    run, queue = f"{state}/runs/{entry['id']}", f"{state}/runs/.queue"
    files = {
        f"{entry['id']}.json": json.dumps({**entry, "place": 1}),
        "mpirun": f"#!/bin/sh\necho $KIT_RUN in $HOME, umask $(umask) > {state}/done\n",
        "sshd": f'#!/bin/sh\n[ "$1" = -D ] || exit 0\nuntil [ -e {run}/end.json ]; do sleep 0.05; done\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    commands = [
        "set -eu",
        f"cp /etc/passwd {tmp_path}",
        *(f"mount -t tmpfs none {place}" for place in ("/etc", "/opt", "/var/lib", "/run", "/usr/sbin")),
        f"mkdir -p /etc/kit/ssh /opt/kit/etc {queue}",
        f"cp -r {launcher.BIN} {launcher.LIB} /opt/kit",
        f"cp {tmp_path}/passwd /etc",
        f"cp {tmp_path}/sshd {tmp_path}/mpirun /usr/sbin",
        f"cp {line.head.record} /etc/kit/cluster.json",
        f"cp {tmp_path}/*.json {queue}",
        "touch /opt/kit/etc/sshd_config",
        "umask 077",
        "for file in host_ed25519 authorized_keys; do echo key > /etc/kit/ssh/$file; done",
        # start.sh makes this on the real /tmp, where the test's own files are.
        "trap 'rmdir /tmp/ompi.*.0/kit /tmp/ompi.*.0 2>/dev/null || true' EXIT",
        "sh /opt/kit/bin/start.sh",
        f"cat {state}/done {run}/end.json {queue}/.keeper.log",
        f"ls {queue}",
    ]
    path = f"/usr/sbin:{Path(shutil.which('python3') or '').parent}:/usr/local/bin:/usr/bin:/bin:/sbin"
    started = subprocess.run(
        [*UNSHARE, "sh", "-c", "\n".join(commands)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": path, "HOME": "/root"},
    )
    assert started.returncode == 0, started.stderr
    first, rest = started.stdout.split("\n", 1)
    assert first == f"{entry['id']} in /root, umask 0022", started.stderr
    assert json.loads(rest)["exit_code"] == 0


def test_hosts_that_answer_and_hosts_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    probe: Any = launcher.load("kitqueue.probe")
    # On this machine, a port that nobody listens at refuses; a host that is off does not answer at all.
    monkeypatch.setattr(probe, "ANSWER_S", 0.2)
    addresses = {"gpu1": "127.0.0.1", "gpu2": "127.0.0.3", "gpu4": "192.0.2.1"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert probe.silent(addresses, port) == {"gpu2", "gpu4"}
        assert probe.silent(addresses, None) == set(addresses)


def test_a_host_that_refuses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container starts, and its sshd comes a moment later. A host that does not answer does not prevent that."""
    probe: Any = launcher.load("kitqueue.probe")
    # A clock that goes on at each look: a slow machine has as many attempts as a fast one.
    looks = itertools.count()
    monkeypatch.setattr(probe, "time", SimpleNamespace(monotonic=lambda: next(looks) / 100))
    monkeypatch.setattr(probe, "ANSWER_S", 0.1)
    monkeypatch.setattr(probe, "AGAIN_S", 0.01)
    attempts: list[str] = []
    connecting = probe._connecting
    with socket.socket() as late, socket.socket() as deaf, contextlib.ExitStack() as callers:
        late.bind(("127.0.0.1", 0))
        port = late.getsockname()[1]
        deaf.bind(("127.0.0.9", port))
        deaf.listen(0)
        # Nobody accepts these connections, so the kernel answers no other one.
        for _ in range(3):
            callers.enter_context(connecting("127.0.0.9", port))

        def there_at_last(address: str, port: int) -> Any:
            attempts.append(address)
            if attempts.count("127.0.0.1") == 3:
                late.listen()
            return connecting(address, port)

        monkeypatch.setattr(probe, "_connecting", there_at_last)
        assert probe.silent({"gpu1": "127.0.0.1", "gpu2": "127.0.0.9"}, port) == {"gpu2"}
    assert [attempts.count(address) for address in ("127.0.0.1", "127.0.0.9")] == [3, 1]


@pytest.mark.parametrize("last", ["record.json.new", "record.json"])
def test_a_start_that_was_cut_in_the_middle_does_not_keep_a_run_in_line(line: Line, last: str) -> None:
    """The head went down when the run had a folder, and no record yet, or one that nobody can read."""
    (first,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(first)
    second, removed = line.queue(line.entry(1), line.entry(1))
    line.waits(second, "slots")
    for run in (second, removed):
        folder = line.head.runs / run
        folder.mkdir(mode=0o700)
        for name in ("lock", "end.reserved", "log", last):
            (folder / name).write_text("cut")
    # It is a run in line for those who ask, and for the runs that wait for it.
    assert "removed" in line.ask("stop", id=removed)
    door = line.head.door()
    assert "queued" in door.ask({"op": "attach", "id": second})
    (after,) = line.queue(line.entry(1, after=[[second, "ok"]]))
    assert line.waits(after, "after")["ids"] == [second]
    line.let_go(first)
    # It may first hear of other reasons to wait.
    answer = next(answer for answer in iter(door.answer, None) if "queued" not in answer)
    assert answer["attached"]["id"] == second
    line.let_go(second)
    line.let_go(after)
    assert not (line.head.runs / second / "record.json.new").exists()
