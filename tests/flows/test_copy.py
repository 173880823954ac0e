"""kit cp on hosts whose files are on this machine, with the real reader."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kit.cli.text import results as text
from kit.errors import InputError, StepError
from kit.events import HostDone
from kit.flows.cluster.copy import copy
from kit.flows.context import Context
from kit.model.results import Copied, PullResult
from kit.model.values import replace
from kit.remote.results import far as far_files
from kit.remote.results.give import Source
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering


@pytest.fixture
def context(fleet: Fleet, reporter: Remembering) -> Context:
    return fleet.context(reporter, names=["gpu1", "gpu2"])


@pytest.fixture
def far(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    (folder / "tree" / "empty").mkdir(parents=True)
    (folder / "tree" / "a").write_bytes(os.urandom(700_000))
    (folder / "tree" / "run.sh").write_text("x")
    (folder / "tree" / "run.sh").chmod(0o755)
    (folder / "tree" / "link").symlink_to("a")
    (folder / "tree" / "out").symlink_to("/etc/passwd")
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def pulled(context: Context, source: str, target: str, here: Path) -> PullResult:
    result = copy(context, source, target, vm=True, here=here)
    assert isinstance(result, PullResult)
    return result


def test_a_file_comes_into_a_folder_or_gets_a_name(context: Context, far: Path, here: Path) -> None:
    pulled(context, f"gpu1:{far}/tree/a", ".", here)
    pulled(context, f"gpu1:{far}/tree/a", "b", here)
    assert (here / "a").read_bytes() == (here / "b").read_bytes() == (far / "tree/a").read_bytes()
    assert sorted(path.name for path in here.iterdir()) == ["a", "b"]
    with pytest.raises(InputError, match="there is no folder"):
        pulled(context, f"gpu1:{far}/tree/a", "none/", here)


def test_one_file_is_not_called_files(context: Context, reporter: Remembering, far: Path, here: Path) -> None:
    result = pulled(context, f"gpu1:{far}/tree/run.sh", ".", here)
    assert [event.text for event in reporter.of(HostDone)] == ["1 file, 1 B"]
    assert text.pulled(result) == f"Copied 1 file from gpu1 into {here}: 1 B."


def test_a_folder_comes_with_all_that_is_in_it(context: Context, far: Path, here: Path) -> None:
    result = pulled(context, f"gpu1:{far}/tree", "copy", here)
    assert sorted(path.name for path in (here / "copy").iterdir()) == ["a", "empty", "link", "run.sh"]
    assert (here / "copy/link").readlink() == Path("a")
    assert (here / "copy/run.sh").stat().st_mode & 0o100
    assert list(result.hosts[0].skipped) == ["tree/out"]
    pulled(context, f"gpu1:{far}/tree/", "copy", here)
    assert (here / "copy/tree/a").exists()


def test_names_that_the_disk_at_home_refuses_keep_nothing_else_back(
    context: Context, far: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def refusing(path: Path, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False) -> None:
        if path.name == "empty":
            raise OSError(errno.EINVAL, "Invalid argument", str(path))
        mkdir(path, mode, parents=parents, exist_ok=exist_ok)

    monkeypatch.setattr(Path, "mkdir", refusing)
    (host,) = pulled(context, f"gpu1:{far}/tree", ".", here).hosts
    assert (list(host.failed), host.files) == (["tree/empty"], 3)


def test_each_of_several_hosts_has_its_folder(context: Context, far: Path, here: Path) -> None:
    pulled(context, f"gpu[1-2]:{far}/tree/a", "both", here)
    assert sorted(str(path.relative_to(here)) for path in here.rglob("a")) == ["both/gpu1/a", "both/gpu2/a"]


def test_a_file_goes_to_hosts_byte_for_byte(context: Context, tmp_path: Path, here: Path) -> None:
    (here / "data").write_bytes(os.urandom(700_000))
    (tmp_path / "goal").mkdir()
    result = copy(context, "data", f"head:{tmp_path}/goal", vm=True, here=here)
    assert result == Copied(path=f"{tmp_path}/goal/data", hosts=("gpu1",), files=1, size=700_000)
    assert (tmp_path / "goal/data").read_bytes() == (here / "data").read_bytes()
    copy(context, "data", f"gpu1:{tmp_path}/goal/named", vm=True, here=here)
    assert sorted(path.name for path in (tmp_path / "goal").iterdir()) == ["data", "named"]


def test_a_copy_replaces_a_file_of_its_name_in_both_directions(
    context: Context, far: Path, tmp_path: Path, here: Path
) -> None:
    wanted = (far / "tree/a").read_bytes()
    for place in (here / "a", tmp_path / "a"):
        place.write_text("an earlier and longer version of the file")
    pulled(context, f"gpu1:{far}/tree/a", ".", here)
    copy(context, "tree/a", f"gpu1:{tmp_path}/a", vm=True, here=far)
    assert [(place / "a").read_bytes() for place in (here, tmp_path)] == [wanted, wanted]


def test_a_folder_goes_to_hosts(context: Context, far: Path, tmp_path: Path) -> None:
    (tmp_path / "goal").mkdir()
    copy(context, "tree", f"gpu1:{tmp_path}/goal", vm=True, here=far)
    copied = tmp_path / "goal/tree"
    assert sorted(path.name for path in copied.iterdir()) == ["a", "empty", "link", "out", "run.sh"]
    assert (copied / "out").readlink() == Path("/etc/passwd")
    assert (copied / "a").read_bytes() == (far / "tree/a").read_bytes()
    assert (copied / "run.sh").stat().st_mode & 0o100


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o7777 for path in folder.rglob("*")}


@pytest.fixture
def private(tmp_path: Path) -> Path:
    folder = tmp_path / "private"
    (folder / "keys").mkdir(parents=True)
    (folder / "keys").chmod(0o700)
    for name, mode in {"keys/id": 0o600, "keys/run": 0o4750, "group": 0o640, "fixed": 0o444}.items():
        (folder / name).touch()
        (folder / name).chmod(mode)
    return folder


PRIVATE = {"keys": 0o700, "keys/id": 0o600, "keys/run": 0o750, "group": 0o640, "fixed": 0o444}


def test_private_files_stay_private_on_hosts(context: Context, private: Path, tmp_path: Path) -> None:
    copy(context, "private", f"gpu1:{tmp_path}/goal", vm=True, here=tmp_path)
    assert modes(tmp_path / "goal") == PRIVATE
    copy(context, "private/keys/id", f"gpu1:{tmp_path}/one", vm=True, here=tmp_path)
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600
    copy(context, "private/keys", f"gpu1:{tmp_path}/two", vm=True, here=tmp_path)
    assert (tmp_path / "two").stat().st_mode & 0o777 == 0o700


def test_private_files_stay_private_at_home(context: Context, private: Path, here: Path) -> None:
    pulled(context, f"gpu1:{private}", "copy", here)
    assert modes(here / "copy") == PRIVATE
    pulled(context, f"gpu1:{private}/keys/id", "one", here)
    assert (here / "one").stat().st_mode & 0o777 == 0o600


def test_a_copy_has_the_name_that_was_written(context: Context, far: Path, here: Path, tmp_path: Path) -> None:
    (far / "best").symlink_to("tree/a")
    (far / "latest").symlink_to("tree")
    for name in ("best", "latest/"):
        pulled(context, f"gpu1:{far}/{name}", ".", here)
    assert (here / "best").read_bytes() == (far / "tree/a").read_bytes()
    assert (here / "latest/a").read_bytes() == (far / "tree/a").read_bytes()
    pulled(context, f"gpu1:{far}/tree/empty/..", ".", here)
    pulled(context, f"gpu[1-2]:{far}/best", "both", here)
    assert sorted(path.name for path in here.iterdir()) == ["best", "both", "latest", "tree"]
    assert sorted(str(path.relative_to(here)) for path in here.glob("both/*/*")) == ["both/gpu1/best", "both/gpu2/best"]
    (tmp_path / "goal").mkdir()
    for name in ("best", "latest", "tree/empty/.."):
        copy(context, name, f"gpu1:{tmp_path}/goal", vm=True, here=far)
    assert sorted(path.name for path in (tmp_path / "goal").iterdir()) == ["best", "latest", "tree"]


@pytest.mark.parametrize("word", ["results/.", "results/", "results/./.", "tree/../results/."])
def test_a_rank_does_not_choose_the_name_of_a_copy(context: Context, far: Path, here: Path, word: str) -> None:
    (far / ".ssh").mkdir()
    (far / ".ssh" / "authorized_keys").touch()
    (far / "results").symlink_to(".ssh")
    pulled(context, f"gpu1:{far}/{word}", ".", here)
    assert [path.name for path in here.iterdir()] == ["results"]


def test_the_whole_disk_has_no_name(context: Context, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_files, "named_files", lambda *_: pytest.fail("it lists the disk"))
    with pytest.raises(InputError, match="the whole disk of a host"):
        pulled(context, "gpu1:/", ".", here)


def test_a_folder_that_cannot_be_read_is_not_left_out(
    context: Context, far: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def refusing(path: str) -> object:
        if Path(path).name == "empty":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(InputError, match=r"tree/empty cannot be read: Permission denied") as error:
        copy(context, "tree", f"gpu1:{tmp_path}/goal", vm=True, here=far)
    assert "nothing was copied" in str(error.value.hint)
    assert not (tmp_path / "goal").exists()


def test_a_name_that_is_too_long_is_no_bug(context: Context, here: Path) -> None:
    name = "x" * 300
    with pytest.raises(InputError, match="x cannot be read: File name too long") as error:
        copy(context, name, "gpu1:/x", vm=True, here=here)
    assert error.value.hint


@pytest.mark.parametrize(
    ("call", "why"),
    [("stat", errno.EACCES), ("lstat", errno.EACCES), ("lstat", errno.ENOENT), ("access", errno.EACCES)],
)
def test_a_file_that_cannot_be_read_is_named_before_the_copy(
    context: Context, far: Path, monkeypatch: pytest.MonkeyPatch, call: str, why: int
) -> None:
    owner = os if call == "access" else Path
    real = getattr(owner, call)

    def refusing(path: Path, *more: object, **others: object) -> object:
        if path.name != "run.sh":
            return real(path, *more, **others)
        if call == "access":
            return False
        raise OSError(why, os.strerror(why), str(path))

    monkeypatch.setattr(owner, call, refusing)
    what = "cannot be read" if why == errno.EACCES else "has just gone"
    with pytest.raises(InputError, match=f"tree/run.sh {what}: {os.strerror(why)}") as error:
        copy(context, "tree", "gpu1:/x", vm=True, here=far)
    assert "nothing was copied" in str(error.value.hint)


def test_a_file_that_goes_during_the_copy_is_named(
    context: Context, far: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(far / "tree")
    (far / "tree" / "run.sh").unlink()
    monkeypatch.setattr("kit.flows.cluster.copy.Source", lambda _: source)
    with pytest.raises(StepError, match=r"tree/run\.sh could not be read: No such file") as error:
        copy(context, "tree", f"gpu1:{tmp_path}/goal", vm=True, here=far)
    assert "run the same again" in str(error.value.hint)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a", "b", "one of the two must be HOST:PATH"),
        ("gpu1:/a", "gpu2:/b", "one of the two must be HOST:PATH"),
        ("gpu1:a", ".", "has no whole path"),
        ("gpu9:/a", ".", "gpu9"),
        ("none", "gpu1:/x", "there is no"),
    ],
)
def test_words_that_are_no_copy(context: Context, here: Path, source: str, target: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        copy(context, source, target, vm=True, here=here)


@pytest.mark.parametrize("word", ["fd00::1", "[fd00::1]", "FD00::1"])
def test_an_ipv6_address_names_its_host(context: Context, far: Path, here: Path, word: str) -> None:
    first, second = context.inventory.hosts
    hosts = replace(context.inventory, hosts=(first, replace(second, address="fd00::1")))
    result = pulled(replace(context, inventory=hosts), f"{word}:{far}/tree/a", ".", here)
    assert [host.host for host in result.hosts] == ["gpu2"]
    assert (here / "a").exists()


@pytest.mark.parametrize(
    ("word", "right"), [("gpu1:a", "gpu1:/PATH"), ("fd00::1:a", "HOST:/PATH"), ("gpu1:", "gpu1:/PATH")]
)
def test_the_hint_names_no_other_host(context: Context, here: Path, word: str, right: str) -> None:
    with pytest.raises(InputError, match="has no whole path") as error:
        copy(context, word, ".", vm=True, here=here)
    assert error.value.hint == f"write {right}"


def test_a_full_disk_promises_nothing(context: Context, far: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike kit pull, kit cp keeps no parts."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StepError, match="no space left on this machine") as error:
        pulled(context, f"gpu1:{far}/tree/a", ".", here)
    assert error.value.hint == "free some space, then run the same again"


def test_what_the_host_lacks_is_reported(context: Context, here: Path) -> None:
    with pytest.raises(StepError, match="no such file: /no/such"):
        copy(context, "gpu1:/no/such", ".", vm=True, here=here)
    (here / "data").touch()
    with pytest.raises(StepError, match="No such file or directory"):
        copy(context, "data", "gpu1:/no/such/place", vm=True, here=here)
    assert sorted(path.name for path in here.iterdir()) == ["data"]


def test_what_was_named_and_does_not_come_is_an_error(context: Context, far: Path, here: Path) -> None:
    os.mkfifo(far / "tree" / "fifo")
    with pytest.raises(StepError, match="fifo was not copied: it is a device, a socket or a pipe"):
        copy(context, f"gpu1:{far}/tree/fifo", ".", vm=True, here=here)
    assert [*here.iterdir()] == []
    # In a folder, it is left out.
    result = pulled(context, f"gpu1:{far}/tree", ".", here)
    assert set(result.hosts[0].skipped) == {"tree/fifo", "tree/out"}


def test_a_file_of_proc_comes_with_its_content(context: Context, here: Path) -> None:
    """Its size is 0, because the kernel makes it only when somebody reads it."""
    assert pulled(context, "gpu1:/proc/meminfo", ".", here).hosts[0].files == 1
    assert (here / "meminfo").read_text().startswith("MemTotal: ")


def test_an_error_of_a_host_names_the_folder_as_you_wrote_it(context: Context, here: Path) -> None:
    (here / "data").touch()
    with pytest.raises(StepError, match=r"No such file or directory: /no/such$"):
        copy(context, "data", "gpu1:/no/such/place", vm=True, here=here)
