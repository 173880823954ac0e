"""kit data with the real stager (images/bin/kit-data): what kit orders is what the stager does, on three hosts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.errors import NotReadyError, StepError
from kit.events import HostDone, Note
from kit.flows.context import Context
from kit.flows.data.listing import listing
from kit.flows.data.missing import stage_missing
from kit.flows.data.remove import remove_data, stop
from kit.flows.data.stage import stage
from kit.flows.data.verify import verify
from kit.model.values import replace
from tests.fakes.reporter import Remembering
from tests.fakes.staging_hosts import StagingHosts, staging_hosts

HOSTS = ("gpu1", "gpu2", "gpu3")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[StagingHosts]:
    with staging_hosts(tmp_path, len(HOSTS), real=True) as machine:
        yield machine


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of this machine with files of several sizes, an empty one, and names that need care."""
    folder = tmp_path / "source"
    (folder / "deep/er").mkdir(parents=True)
    for number in range(20):
        (folder / f"deep/{number}").write_bytes(os.urandom(1000 + number))
    (folder / "large").write_bytes(os.urandom(9_000_000))
    (folder / "empty").touch()
    (folder / "deep/er/ü \n'").write_bytes(b"odd")
    os.link(folder / "deep/1", folder / "hard")
    (folder / "link").symlink_to("deep/2")
    return folder


@pytest.fixture
def context(hosts: StagingHosts, source: Path, reporter: Remembering) -> Context:
    context = hosts.context(reporter, data={"images": {"from": str(source), "to": "/data/images"}})
    hosts.deploy(context)
    return context


@pytest.fixture
def reporter() -> Remembering:
    return Remembering()


def content(source: Path) -> dict[str, bytes]:
    return {str(path.relative_to(source)): path.read_bytes() for path in sorted(source.rglob("*")) if path.is_file()}


def until(true: Callable[[], object], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_every_host_gets_every_file_and_the_second_time_nothing_is_read(
    hosts: StagingHosts, context: Context, source: Path, reporter: Remembering
) -> None:
    wanted = content(source)
    size = sum(map(len, wanted.values()))
    (first,) = stage(context, [])
    for host in HOSTS:
        assert hosts.files(host) == wanted
    assert (first.files, first.bytes, first.hosts, first.new) == (len(wanted), size, HOSTS, len(wanted))
    # Each byte of the source is read once, whatever the number of hosts.
    assert first.read == size
    assert [done.host for done in reporter.of(HostDone)] == [*HOSTS]
    (row,) = listing(context).sets
    assert (row.state, row.hosts, row.files, row.bytes) == ("staged", HOSTS, len(wanted), size)
    (again,) = stage(context, ["images"])
    assert again.nothing_to_do
    assert not again.watched


def test_a_changed_and_a_removed_file_are_all_that_is_done_again(
    hosts: StagingHosts, context: Context, source: Path
) -> None:
    stage(context, [])
    (source / "deep/3").write_bytes(b"new content")
    (source / "deep/4").unlink()
    (result,) = stage(context, [])
    assert (result.new, result.removed, result.read) == (1, 1, len(b"new content"))
    for host in HOSTS:
        assert hosts.files(host) == content(source)


def test_verify_finds_an_altered_byte_a_missing_and_an_additional_file(hosts: StagingHosts, context: Context) -> None:
    with pytest.raises(Exception, match="3 of 3 hosts failed") as caught:
        verify(context, [])
    assert all(isinstance(error, NotReadyError) for error in caught.value.failures)  # type: ignore[attr-defined]
    stage(context, [])
    (good,) = verify(context, [])
    assert not good.wrong
    files = hosts.data("gpu2") / "files"
    large = files / "large"
    data = bytearray(large.read_bytes())
    data[4_500_000] ^= 1
    times = large.stat()
    large.write_bytes(data)
    os.utime(large, ns=(times.st_atime_ns, times.st_mtime_ns))
    (files / "empty").unlink()
    (files / "more").touch()
    (bad,) = verify(context, [])
    assert [*bad.wrong] == ["gpu2"]
    assert {(wrong.file, wrong.why) for wrong in bad.wrong["gpu2"].wrong} == {
        ("large", "bytes"), ("empty", "missing"), ("more", "extra"),
    }  # fmt: skip


def test_a_source_that_goes_away_and_comes_back(hosts: StagingHosts, context: Context, source: Path) -> None:
    os.mkfifo(source / "pipe")
    with pytest.raises(StepError, match="pipe") as caught:
        stage(context, [])
    assert "rename or remove it in the source" in (caught.value.hint or "")
    (source / "pipe").unlink()
    (result,) = stage(context, [])
    assert result.hosts == HOSTS


def test_a_host_that_dies_is_lost_and_the_others_are_complete(
    hosts: StagingHosts, context: Context, source: Path, reporter: Remembering
) -> None:
    thread, errors = slowly(context)
    until(lambda: any("to read" in note.text for note in reporter.of(Note)))
    hosts.kill("gpu3")
    thread.join(60)
    (error,) = errors
    assert isinstance(error, StepError)
    assert error.host == "gpu3"
    for host in ("gpu1", "gpu2"):
        assert hosts.files(host) == content(source)
    # The same again brings the host back, and reads nothing from the source that the others have.
    (result,) = stage(context, [])
    assert (result.hosts, result.read) == (HOSTS, 0)
    assert hosts.files("gpu3") == content(source)
    (row,) = listing(context).sets
    assert (row.state, row.hosts) == ("staged", HOSTS)


def slowly(context: Context, limit: int = 3_000_000) -> tuple[threading.Thread, list[BaseException]]:
    """Stage in a thread, at a rate that leaves time for a fault. Return the thread and its errors."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            stage(context, [], limit=limit)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, errors


def test_a_second_kit_watches_and_stop_keeps_what_came(
    hosts: StagingHosts, context: Context, source: Path, reporter: Remembering
) -> None:
    # So slow that it is not done before it is stopped.
    thread, errors = slowly(context, 300_000)
    until(lambda: any("to read" in note.text for note in reporter.of(Note)))
    (row,) = listing(context).sets
    assert row.state == "staging"
    assert row.fraction is not None
    other = Remembering()
    watching = hosts.context(other, data={"images": {"from": str(source), "to": "/data/images"}})
    with pytest.raises(NotReadyError, match="images is being staged"):
        remove_data(context, ["images"], dry_run=False, confirm=lambda _sets: True)
    second, seen = slowly(watching, 300_000)
    until(lambda: any("already being staged since" in note.text for note in other.of(Note)))
    assert stop(context, "images").id
    thread.join(60)
    second.join(60)
    assert [type(error) for error in (*errors, *seen)] == [NotReadyError, NotReadyError]
    assert "go on: kit data stage images" in str(errors[0].hint)  # type: ignore[attr-defined]
    assert hosts.files("gpu1") != content(source)
    (result,) = stage(context, [])
    assert hosts.files("gpu1") == content(source)
    # What came before the stop is not read again.
    assert result.read < sum(map(len, content(source).values()))


def test_a_cut_connection_ends_no_staging(
    hosts: StagingHosts, context: Context, source: Path, reporter: Remembering
) -> None:
    thread, errors = slowly(context)
    until(lambda: any("to read" in note.text for note in reporter.of(Note)))
    hosts.cut()
    thread.join(60)
    assert not errors
    for host in HOSTS:
        assert hosts.files(host) == content(source)


def test_rm_and_stage_again(hosts: StagingHosts, context: Context, source: Path) -> None:
    stage(context, [])
    remove_data(context, ["images"], dry_run=False, confirm=lambda _sets: True)
    assert hosts.files("gpu1") == {}
    (row,) = listing(context).sets
    assert row.state == "not staged"
    stage(context, [])
    assert hosts.files("gpu1") == content(source)


def test_the_summary_names_what_kit_yaml_has(hosts: StagingHosts, context: Context, source: Path) -> None:
    stage(context, [])
    found = json.loads((hosts.data("gpu2") / "staged.json").read_text())
    assert (found["name"], found["source"], found["stage"], found["split"]) == ("images", str(source), "disk", "none")
    # The same files at another place.
    moved = source.rename(source.parent / "moved")
    later = hosts.context(context.reporter, data={"images": {"from": str(moved), "to": "/data/images"}})
    (row,) = listing(later).sets
    assert row.state == "changed"
    stage(later, [])
    (row,) = listing(later).sets
    assert row.state == "staged"


def test_a_folder_beside_kit_yaml_is_the_same_source_for_another_operator(
    hosts: StagingHosts, context: Context, source: Path, tmp_path: Path
) -> None:
    def of(folder: Path, written: str) -> Context:
        (data,) = context.spec.data
        there = replace(data.source, text=str(folder), path=str(folder), written=written)
        return replace(context, spec=replace(context.spec, data=(replace(data, source=there),)))

    stage(of(source, "./source"), [])
    assert json.loads((hosts.data("gpu2") / "staged.json").read_text())["source"] == "./source"
    before = {host: (hosts.data(host) / "staged.json").stat().st_mtime_ns for host in HOSTS}
    # A run of somebody who has the same kit.yaml elsewhere finds all of it.
    other = tmp_path / "other"
    assert not stage_missing(of(other, "./source"), ["images"], HOSTS)
    (row,) = listing(of(other, "./source")).sets
    assert (row.state, row.source) == ("staged", str(other))
    (row,) = listing(of(source, "../source")).sets
    assert row.state == "changed"
    assert {host: (hosts.data(host) / "staged.json").stat().st_mtime_ns for host in HOSTS} == before
