"""Files of Git LFS in code from a repository: with a real git-lfs and a small server of its batch API."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import InputError, KitError, UnreachableError
from kit.model.code import Snapshot
from kit.model.repository import repository
from kit.remote.code import fetched, lfs
from kit.remote.code.limits import MOST_BYTES
from tests.fakes import git_server
from tests.fakes import repository as repositories
from tests.fakes.git_server import LOGIN
from tests.fakes.repository import git

ROOT = Path(__file__).resolve().parents[4]
OID = "4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize 1\n"
ATTRIBUTES = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
WEIGHTS = "weights " * 500


@pytest.fixture(scope="session")
def program() -> str:
    """Return the folder of git-lfs."""
    done = subprocess.run([ROOT / "scripts" / "git-lfs", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        assert os.environ.get("CI") != "true", "git-lfs is missing, and this test may not be skipped here"
        pytest.skip("git-lfs is missing; to get it: scripts/git-lfs")
    return done.stdout.strip()


@pytest.fixture
def path(program: str, alone: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let git find git-lfs. Return a PATH on which it does not."""
    monkeypatch.setenv("PATH", f"{program}:{os.environ['PATH']}")
    without = Path(os.environ["HOME"]) / "programs"
    without.mkdir()
    for name in ("git", "sh"):
        (without / name).symlink_to(shutil.which(name) or name)
    return str(without)


@pytest.fixture
def origin(tmp_path: Path, path: str) -> Path:
    """A repository with two files of Git LFS."""
    folder = repositories.repository(tmp_path / "origin", {".gitattributes": ATTRIBUTES})
    git(folder, "lfs", "install", "--local")
    repositories.write(folder, {"model.bin": WEIGHTS, "sub/a b.bin": "small", "train.py": "one\n"})
    (folder / "model.bin").chmod(0o755)
    commit(folder)
    return folder


def commit(origin: Path) -> None:
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "more")


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def host(origin: Path, asked: list[str]) -> Iterator[str]:
    with git_server.serving(origin.parent, asked) as host:
        yield host


def fetch(url: Path | str) -> Snapshot:
    return fetched.fetch(repository(f"git+{url}@main"))


def tree(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "cache").glob("kit/git/*/full/*/files/train.py")
    return found.parent


def stored(origin: Path) -> Path:
    """Return the object of model.bin in the repository."""
    files = (origin / ".git" / "lfs" / "objects").rglob("*")
    return next(file for file in files if file.is_file() and file.stat().st_size == len(WEIGHTS))


def test_its_files_come_with_the_login_of_the_repository(
    host: str, origin: Path, tmp_path: Path, asked: list[str]
) -> None:
    url = f"http://{LOGIN}@{host}/origin/.git"
    snapshot = fetch(url)
    assert snapshot.notes == ()
    files = tree(tmp_path)
    assert ((files / "model.bin").read_text(), (files / "sub" / "a b.bin").read_text()) == (WEIGHTS, "small")
    assert (files / "model.bin").stat().st_mode & 0o777 == 0o755
    kept = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert not [file for file in kept if b"s3cret" in file.read_bytes()]
    # What is here already is not fetched again.
    before = len([path for path in asked if "/lfs/objects/" in path and not path.endswith("batch")])
    repositories.write(origin, {"other.bin": "other"})
    commit(origin)
    assert fetch(url).digest != snapshot.digest
    after = len([path for path in asked if "/lfs/objects/" in path and not path.endswith("batch")])
    assert (before, after) == (2, 3)


def test_a_repository_in_a_folder_of_this_machine(origin: Path, tmp_path: Path) -> None:
    assert fetch(origin).notes == ()
    assert (tree(tmp_path) / "model.bin").read_text() == WEIGHTS


def test_a_text_that_only_looks_like_a_pointer_is_a_text(host: str, origin: Path, tmp_path: Path) -> None:
    """git-lfs asks for it, too, and no server has what it names."""
    repositories.write(origin, {"docs.txt": POINTER})
    commit(origin)
    assert fetch(f"http://{LOGIN}@{host}/origin/.git").notes == ()
    files = tree(tmp_path)
    assert ((files / "docs.txt").read_text(), (files / "model.bin").read_text()) == (POINTER, WEIGHTS)


def test_submodules_have_theirs(origin: Path, tmp_path: Path) -> None:
    outer = repositories.repository(tmp_path / "outer", {"a": "a"})
    git(outer, "submodule", "--quiet", "add", "--", str(origin), "lib/inner")
    commit(outer)
    assert fetch(outer).notes == ()
    (model,) = (tmp_path / "cache").glob("kit/git/*/full/*/files/lib/inner/model.bin")
    assert model.read_text() == WEIGHTS


@pytest.mark.parametrize("how", ["missing", "other bytes"])
def test_what_the_server_cannot_give_ends_the_run_before_it_starts(
    host: str, origin: Path, tmp_path: Path, how: str
) -> None:
    stored(origin).unlink() if how == "missing" else stored(origin).write_text("w" * len(WEIGHTS))
    url = f"http://{LOGIN}@{host}/origin/.git"
    with pytest.raises(UnreachableError, match="git-lfs cannot fetch the files of Git LFS in http://127") as no:
        fetch(url)
    assert "s3cret" not in f"{no.value} {no.value.hint}"
    assert ("does not exist" if how == "missing" else "OID") in no.value.message
    assert not list((tmp_path / "cache").glob("kit/git/*/full/*"))


def test_a_server_without_a_login_is_a_login_that_fails(
    origin: Path, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository is on this machine, and .lfsconfig names the server, which asks for a password."""
    repositories.write(origin, {".lfsconfig": f"[lfs]\n\turl = http://{host}/origin/.git/info/lfs\n"})
    commit(origin)
    with pytest.raises(UnreachableError, match="git-lfs cannot log in"):
        fetch(origin)
    # git's own logins work there, too.
    Path(os.environ["HOME"], ".git-credentials").write_text(f"http://{LOGIN}@{host}\n")
    Path(os.environ["HOME"], ".gitconfig").write_text("[credential]\nhelper = store\n")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    assert fetch(origin).notes == ()
    assert (tree(tmp_path) / "model.bin").read_text() == WEIGHTS


def test_a_repository_does_not_choose_a_folder_of_this_machine(origin: Path) -> None:
    repositories.write(origin, {".lfsconfig": "[lfs]\n\turl = file:///etc\n"})
    commit(origin)
    with pytest.raises(InputError, match=r"\.lfsconfig names a server of Git LFS that kit does not ask: file:///etc"):
        fetch(origin)


def test_without_the_program_they_are_named_until_it_is_there(
    origin: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", path)
        first = fetch(origin)
        assert fetch(origin).notes == first.notes
        # In the cache, it needs not even git.
        without.setenv("PATH", "/nowhere")
        assert first.git
        assert fetched.fetch(repository(f"git+{origin}@{first.git.commit}")).notes == first.notes
    assert first.notes == (
        "git-lfs is not installed here, so the ranks see the pointers of the files of Git LFS: model.bin, sub/a b.bin; "
        "install git-lfs, and start the run again",
    )
    assert fetch(origin).notes == ()
    assert (tree(tmp_path) / "model.bin").read_text() == WEIGHTS


def test_files_that_your_settings_exclude_stay_pointers(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COUNT": "1", "KEY_0": "lfs.fetchexclude", "VALUE_0": "sub"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert fetch(origin).notes == (
        "git-lfs did not fetch these files of Git LFS, so the ranks see their pointers: sub/a b.bin",
    )


def test_files_that_no_snapshot_can_have_are_not_fetched(origin: Path, host: str, asked: list[str]) -> None:
    pointer = POINTER.replace("size 1", f"size {MOST_BYTES + 1}")
    git(origin, "config", "--remove-section", "filter.lfs")
    repositories.write(origin, {"huge.bin": pointer})
    commit(origin)
    with pytest.raises(InputError, match=r"the files of Git LFS in http://\S+ have 500 MB; kit takes up to 500 MB"):
        fetch(f"http://{LOGIN}@{host}/origin/.git")
    assert not [path for path in asked if "/lfs/" in path]


def test_which_files_are_pointers(tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text(POINTER)
    for name, text in {
        "a": POINTER,
        "extended": POINTER.replace("oid", f"ext-0-x sha256:{OID}\noid"),
        "longer": f"{POINTER}{'x' * 2000}",
        "short": POINTER[:20],
    }.items():
        (files / name).write_text(text)
    (files / "link").symlink_to("a")
    (files / "out").symlink_to(tmp_path)
    names = ["a", "extended", "longer", "short", "link", "out/outside", "folder", "missing", ""]
    assert lfs.pointers(files, names) == ([lfs.Pointer(path="a", oid=OID, size=1)], ["extended"])


def test_an_object_with_other_bytes_is_refused(tmp_path: Path) -> None:
    """git-lfs checks objects when it fetches them. What is in the cache may have changed."""
    files, objects = tmp_path / "files", tmp_path / "objects"
    source = objects / OID[:2] / OID[2:4] / OID
    source.parent.mkdir(parents=True)
    files.mkdir()
    (files / "a").write_text(POINTER)
    pointer = lfs.Pointer(path="a", oid=OID, size=1)
    assert lfs.fill(files, objects, [pointer]) == ["a"]
    source.write_text("3")
    assert lfs.fill(files, objects, [pointer]) == []
    assert (files / "a").read_text() == "3"
    source.write_text("4")
    with pytest.raises(KitError, match="other bytes for a than its pointer says"):
        lfs.fill(files, objects, [pointer])
    assert not source.exists()
    assert (files / "a").read_text() == "3"
