"""kit data mount with the real mounter, rclone, FUSE and a store over TLS: what hosts have, lose and get back."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import HostsFailed, InputError, NotReadyError, StepError
from kit.events import HostDone
from kit.flows.context import Context
from kit.flows.data.listing import listing
from kit.flows.data.missing import stage_missing
from kit.flows.data.mount import mount
from kit.flows.data.remove import remove_data
from kit.flows.data.stage import stage
from kit.model.datasets import DataRow
from kit.model.doctor import Mount, Mounts
from kit.model.results import RunFolder
from kit.remote.doctor.read import read_host
from kit.remote.results import far
from kit.remote.scripts import script
from tests.fakes import launcher
from tests.fakes.reporter import Remembering
from tests.fakes.staging_hosts import StagingHosts
from tests.fuse import mountable
from tests.integration.rig import until
from tests.integration.store import BUCKET, RCLONE, SECRET, Store, store
from tests.sockets import own_addresses

HOSTS = ("gpu1", "gpu2")
pytestmark = pytest.mark.usefixtures("mountable")
__all__ = ["mountable"]
PROGRAM = """
import sys
sys.path.insert(0, {lib!r})
from kitdata import orders, rclone, relay
rclone.Rclone.__init__.__kwdefaults__["program"] = {program!r}
sys.exit((relay if sys.argv[1] == "order" else orders).main(sys.argv[1:]))
"""
FILES = {"a": b"first" * 1000, "deep/b": os.urandom(3_000_000)}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short path: that of rclone's socket in it has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kit-mount-") as folder:
        yield Path(folder)


@pytest.fixture
def reporter() -> Remembering:
    return Remembering()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("store"), own_addresses(1)[0]) as running:
        running.put(FILES, "images")
        running.put({"c": b"other"}, "others")
        yield running


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[StagingHosts]:
    program = PROGRAM.format(lib=str(launcher.LIB), program=str(RCLONE))
    with contextlib.closing(StagingHosts(tmp_path, len(HOSTS), (*launcher.PYTHON, "-c", program))) as machine:
        try:
            yield machine
        finally:
            machine.close()
            for place in mounts(tmp_path):
                subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def context(hosts: StagingHosts, reporter: Remembering, bucket: Store, monkeypatch: pytest.MonkeyPatch) -> Context:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return deployed(hosts, reporter, f"s3://{BUCKET}/images")


def deployed(hosts: StagingHosts, reporter: Remembering, source: str) -> Context:
    context = hosts.context(reporter, data={"images": {"from": source, "to": "/data/images", "stage": "none"}})
    hosts.deploy(context)
    return context


def mounts(below: Path) -> list[str]:
    """Return what is mounted below a folder, the last one first."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [place for place in reversed(places) if place.startswith(f"{below}/")]


def content(hosts: StagingHosts, host: str) -> dict[str, bytes]:
    top = hosts.data(host) / "mount"
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


def is_dead(place: Path) -> bool:
    """Return whether rclone's mount is there without its rclone. The kernel answers some questions for it at first."""
    try:
        place.lstat()
        list(place.iterdir())
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def row(context: Context) -> DataRow:
    (one,) = listing(context).sets
    return one


def test_every_host_has_the_store_until_it_is_removed(
    hosts: StagingHosts, context: Context, reporter: Remembering, tmp_path: Path
) -> None:
    assert (row(context).state, row(context).of) == ("not mounted", 2)
    (result,) = mount(context, [])
    assert (result.hosts, result.before, result.restarted, dict(result.lost)) == (HOSTS, (), (), {})
    for host in HOSTS:
        assert content(hosts, host) == FILES
        with pytest.raises(OSError, match="Read-only file system"):
            (hosts.data(host) / "mount/a").write_bytes(b"")
    assert (row(context).state, row(context).hosts) == ("mounted", HOSTS)
    assert {done.host for done in reporter.of(HostDone)} == {*HOSTS}
    (options,) = hosts.runs("gpu1")
    assert SECRET not in " ".join(options)
    assert options[options.index("--cap-drop") + 1] == "ALL"
    assert [options[at + 1] for at, word in enumerate(options) if word == "--cap-add"] == ["SYS_ADMIN"]

    (again,) = mount(context, ["images"])
    assert (again.hosts, again.before) == (HOSTS, HOSTS)
    assert not stage_missing(context, ["images"], ["gpu1", "gpu2"])
    removed = remove_data(context, ["images"], dry_run=False, confirm=lambda _: True)
    assert removed is not None
    assert removed.sets[0].hosts == HOSTS
    assert mounts(tmp_path) == []
    assert not any(hosts.running(host) for host in HOSTS)
    assert row(context).state == "not mounted"


def test_ranks_of_all_hosts_write_where_kit_yaml_says_so(
    hosts: StagingHosts, context: Context, reporter: Remembering, bucket: Store
) -> None:
    kept = {"from": f"s3://{BUCKET}/kept", "to": "/data/kept", "stage": "none", "write": True}
    writing = hosts.context(reporter, data={"images": kept})
    hosts.deploy(writing)
    mount(writing, [])
    for host in HOSTS:
        (hosts.data(host) / f"mount/{host}").write_bytes(host.encode())
    assert {path.name: path.read_bytes() for path in (bucket.bucket / "kept").iterdir()} == {
        host: host.encode() for host in HOSTS
    }
    # Without write:, it is another mount.
    reading = deployed(hosts, reporter, f"s3://{BUCKET}/kept")
    assert (row(writing).state, row(reading).state) == ("mounted", "changed")
    with pytest.raises((NotReadyError, HostsFailed), match="or another write:"):
        mount(reading, [])


def test_files_that_a_mount_would_hide_are_named(hosts: StagingHosts, context: Context) -> None:
    (hosts.data("gpu2") / "mount").mkdir(parents=True, exist_ok=True)
    (hosts.data("gpu2") / "mount/step-1").write_bytes(b"written while nothing was mounted")
    with pytest.raises(StepError, match=r"has files \(step-1\), which the mount would hide") as caught:
        mount(context, [])
    assert caught.value.host == "gpu2"
    assert "find /opt/kit/.data -path '*/images/mount/*'" in str(caught.value.hint)
    assert row(context).hosts == ("gpu1",)


def test_a_host_whose_mounter_was_killed_gets_it_again(hosts: StagingHosts, context: Context, tmp_path: Path) -> None:
    mount(context, [])
    for one in hosts.running("gpu2").values():
        os.killpg(one["pid"], signal.SIGKILL)
    place = hosts.data("gpu2") / "mount"

    until("its mount has no rclone any more", lambda: is_dead(place))
    assert (row(context).state, row(context).hosts) == ("partly", ("gpu1",))
    # A run that asks for it brings it back, but only where it is missing.
    assert not stage_missing(context, ["images"], ["gpu1"])
    assert stage_missing(context, ["images"], ["gpu2"])
    assert content(hosts, "gpu2") == FILES
    assert row(context).state == "mounted"
    assert len(mounts(tmp_path)) == 2


def test_kit_doctor_sees_whether_rclone_answers(hosts: StagingHosts, context: Context, bucket: Store) -> None:
    mount(context, [])

    def fault(limit: float) -> str | None:
        stores = Mounts(kind="fuse.rclone", timeout_s=limit)
        seen = read_host(context.connect(hosts.hosts[1]), [stores]).seen
        mounted: Mount = (seen.mounted(stores.kind) or {})["/opt/kit/.data/lab/images/mount"]
        return mounted.fault

    def send(number: signal.Signals) -> None:
        for one in hosts.running("gpu2").values():
            os.killpg(one["pid"], number)

    assert fault(30) == ""
    # Without its store, rclone still answers.
    bucket.down()
    try:
        assert fault(30) == ""
    finally:
        bucket.up()
    send(signal.SIGSTOP)
    try:
        assert fault(0.5) is None
    finally:
        send(signal.SIGCONT)
    assert fault(30) == ""
    send(signal.SIGKILL)
    until("its mount has no rclone any more", lambda: fault(30) == "ENOTCONN")


def test_kit_down_unmounts_it_also_where_the_mounter_was_killed(
    hosts: StagingHosts, context: Context, tmp_path: Path
) -> None:
    mount(context, [])
    hosts.kill("gpu2")
    until("its mount has no rclone any more", lambda: is_dead(hosts.data("gpu2") / "mount"))
    for host in hosts.hosts:
        done = context.connect(host).run(script("data_end", "lab"))
        assert (done.code, "mount /opt/kit/.data/lab/images/mount" in done.text) == (0, True), done.error_text
    assert mounts(tmp_path) == []


def test_a_deploy_removes_a_mount_that_no_node_could_start_with(hosts: StagingHosts, context: Context) -> None:
    mount(context, [])
    hosts.kill("gpu2")
    place = hosts.data("gpu2") / "mount"
    until("its mount has no rclone any more", lambda: is_dead(place))
    for host in hosts.hosts:
        argv = script("make_data_folder", "/opt/kit/.data/lab/images/mount")
        done = context.connect(host).run(argv)
        assert done.code == 0, done.error_text
    assert list(place.iterdir()) == []
    # A mount with its rclone stays.
    assert content(hosts, "gpu1") == FILES


def test_a_wrong_key_is_one_error_and_nothing_is_mounted(
    hosts: StagingHosts, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret-key-0123456789")
    with pytest.raises(StepError, match="the secret key is wrong") as caught:
        mount(context, [])
    assert "check the keys" in str(caught.value.hint)
    assert "a-wrong-secret" not in str(caught.value)
    assert mounts(tmp_path) == []
    assert row(context).state == "not mounted"


def test_a_host_that_is_away_keeps_it_from_no_other(hosts: StagingHosts, context: Context) -> None:
    hosts.down.add("gpu2")
    with pytest.raises(Exception, match="no SSH connection"):
        mount(context, [])
    hosts.down.clear()
    assert (row(context).state, row(context).hosts) == ("partly", ("gpu1",))


def test_another_store_waits_until_the_first_one_is_removed(
    hosts: StagingHosts, context: Context, reporter: Remembering
) -> None:
    mount(context, [])
    other = deployed(hosts, reporter, f"s3://{BUCKET}/others")
    with pytest.raises((NotReadyError, HostsFailed), match="another source is mounted") as caught:
        mount(other, [])
    assert "kit data rm images" in str(caught.value.hint)
    # No run reads the first one in its place.
    assert (row(other).state, row(other).hosts) == ("changed", ())
    with pytest.raises(NotReadyError, match="another source is mounted"):
        stage_missing(other, ["images"], ["gpu2"])
    assert content(hosts, "gpu1") == FILES
    remove_data(other, ["images"], dry_run=False, confirm=lambda _: True)
    mount(other, [])
    assert content(hosts, "gpu1") == {"c": b"other"}


def test_no_node_with_an_earlier_mount_restarts_while_a_run_is_active(
    hosts: StagingHosts, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process has no mount at /data/images, as a node that started before.
    (hosts.root("gpu2") / "engine/node_pid").write_text(str(os.getpid()))
    run = RunFolder(id="20261121-101500-3fa2", live=True)
    monkeypatch.setattr(far, "survey", lambda _transport, _cluster: (run,))
    text = "the run 20261121-101500-3fa2 is active and would end: the nodes of gpu2 must restart before they see images"
    with pytest.raises(NotReadyError, match=text):
        mount(context, [])
    assert not (hosts.root("gpu2") / "engine/restarts").exists()
    assert row(context).hosts == HOSTS


def test_no_mounter_stages(hosts: StagingHosts, context: Context, reporter: Remembering) -> None:
    """It has more capabilities than a stager needs."""
    mount(context, [])
    copied = hosts.context(reporter, data={"images": {"from": f"s3://{BUCKET}/images", "to": "/data/images"}})
    hosts.deploy(copied)
    with pytest.raises(NotReadyError, match="images is still mounted here") as caught:
        stage(copied, [])
    assert caught.value.hint == "unmount it first: kit data rm images"
    remove_data(copied, ["images"], dry_run=False, confirm=lambda _: True)
    stage(copied, [])
    assert hosts.files("gpu2") == FILES


def test_what_is_not_for_mount_is_refused(hosts: StagingHosts, context: Context, reporter: Remembering) -> None:
    with pytest.raises(InputError, match="it is mounted in place") as caught:
        stage(context, ["images"])
    assert caught.value.hint == "mount it: kit data mount images"
    copied = hosts.context(reporter, data={"images": {"from": f"s3://{BUCKET}/images", "to": "/data/images"}})
    with pytest.raises(InputError, match="it is copied to the hosts"):
        mount(copied, ["images"])
    with pytest.raises(InputError, match="no store with stage: none"):
        mount(copied, [])
    hosts.deploy(copied)
    with pytest.raises(NotReadyError, match="with other settings of the data set images"):
        mount(context, [])
