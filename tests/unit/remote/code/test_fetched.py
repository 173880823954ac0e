"""Tests code from a git repository: the commit, the logins, and what kit says if it cannot have it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import InputError, UnreachableError
from kit.model.code import Snapshot
from kit.model.repository import repository
from kit.plan.run.code_record import code_record
from kit.remote.code import fetched
from kit.remote.code.snapshot import take
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.modules import Module
from tests.fakes import git_server
from tests.fakes import repository as repositories
from tests.fakes.git_server import LOGIN
from tests.fakes.repository import git


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # A home folder that is a git repository of its own must not matter.
    repositories.repository(tmp_path / "cache", {".gitignore": "*.log\n"})
    files = {"train.py": "one\n", "sub/net.py": "net\n", "kept.log": "log\n", ".gitignore": "*.log\n"}
    folder = repositories.repository(tmp_path / "origin", {})
    repositories.write(folder, files)
    (folder / "sub" / "net.py").chmod(0o755)
    (folder / "link").symlink_to("train.py")
    git(folder, "add", "-Af")
    git(folder, "commit", "-qm", "files")
    git(folder, "tag", "v1")
    git(folder, "tag", "-a", "-m", "text", "v1.0")
    return folder


def fetch(origin: Path | str, ref: str = "") -> Snapshot:
    return fetched.fetch(repository(f"git+{origin}" + (f"@{ref}" if ref else "")))


def paths(snapshot: Snapshot) -> dict[str, tuple[str, int]]:
    return {os.fsdecode(entry.path): (entry.kind, entry.mode) for entry in manifest.parse(snapshot.manifest)}


def change(origin: Path, text: str) -> str:
    repositories.write(origin, {"train.py": text})
    git(origin, "commit", "-qam", text)
    return git(origin, "rev-parse", "HEAD")


def test_a_branch_is_its_commit_now(origin: Path) -> None:
    first = git(origin, "rev-parse", "HEAD")
    snapshot = fetch(origin, "main")
    assert paths(snapshot) == {
        ".gitignore": ("f", 0o644), "kept.log": ("f", 0o644), "link": ("l", 0o777), "sub/net.py": ("f", 0o755),
        "train.py": ("f", 0o644),
    }  # fmt: skip
    record = code_record(snapshot)
    assert (record["folder"], record["commit"], record["dirty"]) == (f"git+{origin}@main", first, False)
    second = change(origin, "two")
    newer = fetch(origin, "main")
    assert newer.git
    assert (newer.git.commit, newer.digest != snapshot.digest) == (second, True)
    # Without a name, it is the branch that the repository shows first.
    assert fetch(origin).digest == newer.digest
    for ref in ("v1", "v1.0", first, "refs/tags/v1"):
        again = fetch(origin, ref)
        assert again.git
        assert (again.digest, again.git.commit) == (snapshot.digest, first)


def test_a_commit_in_the_cache_needs_no_network(origin: Path) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    digest = fetch(origin, commit).digest
    origin.rename(origin.with_name("gone"))
    assert fetch(origin, commit).digest == digest
    with pytest.raises(UnreachableError, match="git cannot fetch"):
        fetch(origin, "main")


def test_a_cache_with_few_trees(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched, "_TREES", 2)
    for text in ("a", "b", "c"):
        change(origin, text)
        snapshot = fetch(origin)
    trees = [path.name for path in (tmp_path / "cache").glob("kit/git/*/full/*")]
    assert len(trees) == 2
    assert snapshot.git
    assert snapshot.git.commit in trees
    assert not list((tmp_path / "cache").rglob(".part-*"))


def test_code_that_no_run_could_have_is_named_by_its_repository(origin: Path) -> None:
    (origin / "sub" / "out").symlink_to("/mnt/imagenet")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "link")
    with pytest.raises(InputError) as caught:
        fetch(origin)
    assert str(caught.value).startswith(f"the link git+{origin}/sub/out leads out of the code folder")


@pytest.mark.parametrize("file", ["known", "files/train.py"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_broken_tree_is_fetched_again(origin: Path, tmp_path: Path, file: str, how: str) -> None:
    """Ranks started without the files that a cleaner of caches had removed, and the record named the commit."""
    whole = fetch(origin)
    (tree,) = (tmp_path / "cache").glob("kit/git/*/full/*")
    if how == "gone":
        (tree / file).unlink()
    else:
        (tree / file).write_text("")
    assert fetch(origin) == whole
    assert paths(take(tree / "files", plain=True)) == paths(whole)


@pytest.mark.parametrize(("broken", "every"), [("objects", 2), ("refs/heads", 1)])
def test_a_broken_repository_of_the_cache_is_fetched_again(
    origin: Path, tmp_path: Path, broken: str, every: int
) -> None:
    """Each run failed, until somebody removed kit's cache."""
    whole = fetch(origin)
    (repo,) = (tmp_path / "cache").glob("kit/git/*/repo")
    shutil.rmtree(repo.parent / "full")
    for file in [path for path in (repo / broken).rglob("*") if path.is_file()][::every]:
        file.chmod(0o644)
        file.write_text("")
    assert fetch(origin).manifest == whole.manifest


def test_a_repository_that_does_not_answer_keeps_what_was_fetched(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does kit look for damage then: for a large repository, that takes minutes."""
    fetch(origin)
    monkeypatch.setattr(fetched, "_is_damaged", lambda *_: pytest.fail("it looked for damage"))
    commit = change(origin, "two")
    (repo,) = (tmp_path / "cache").glob("kit/git/*/repo")
    before = sorted(path.name for path in repo.rglob("*"))
    origin.rename(origin.with_name("gone"))
    with pytest.raises(UnreachableError, match="git cannot fetch"):
        fetch(origin, commit)
    assert sorted(path.name for path in repo.rglob("*")) == before


def test_a_fetch_that_breaks_off_keeps_what_was_fetched(origin: Path, tmp_path: Path) -> None:
    first = git(origin, "rev-parse", "HEAD")
    fetch(origin)
    commit = change(origin, "two")
    (repo,) = (tmp_path / "cache").glob("kit/git/*/repo")
    blob = git(origin, "rev-parse", "HEAD:train.py")
    (origin / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(UnreachableError, match="git cannot fetch"):
        fetch(origin, commit)
    assert git(repo, "rev-parse", f"refs/heads/{first}") == first


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git fetch a submodule from a folder of this machine."""
    for name, value in {"COUNT": "1", "KEY_0": "protocol.file.allow", "VALUE_0": "always"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)


def add_module(origin: Path, url: str, at: str, *words: str) -> None:
    git(origin, "submodule", "--quiet", "add", *words, "--", url, at)
    git(origin, "commit", "-qam", at)


@pytest.mark.usefixtures("folders")
def test_submodules_come_along(origin: Path, tmp_path: Path) -> None:
    repositories.repository(tmp_path / "deep", {"deep.py": "deep"})
    inner = repositories.repository(tmp_path / "inner", {"inner.py": "old"})
    add_module(inner, "../deep", "below/deep")
    add_module(origin, str(inner), "lib/inner", "--name", "other.name")
    # The commit counts, and not what its branch has become.
    repositories.write(inner, {"inner.py": "new"})
    git(inner, "commit", "-qam", "new")
    for _ in range(2):
        snapshot = fetch(origin)
        assert snapshot.notes == ()
        assert {"lib/inner/inner.py", "lib/inner/below/deep/deep.py", "train.py"} < {*paths(snapshot)}
    (tree,) = (tmp_path / "cache").glob("kit/git/*/full/*/files/lib/inner")
    assert (tree / "inner.py").read_text() == "old"
    assert not list((tmp_path / "cache").glob("kit/git/*/tmp*"))
    assert not list((tmp_path / "cache").glob("kit/git/*/full/*/files/**/.git"))


@pytest.mark.usefixtures("folders")
def test_what_is_not_fetched_is_named(origin: Path, tmp_path: Path) -> None:
    inner = repositories.repository(tmp_path / "inner", {"a": "a"})
    add_module(origin, str(inner), "lib/inner")
    git(origin, "config", "--file", ".gitmodules", "submodule.lib/inner.update", "none")
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{'0' * 39}1,no/url")
    git(origin, "add", ".gitmodules")
    git(origin, "commit", "-qm", "more")
    for _ in range(2):
        # Also if it is in the cache.
        snapshot = fetch(origin)
        assert snapshot.notes == (
            ".gitmodules has no URL to fetch these submodules from, so their folders are empty: lib/inner, no/url",
        )
    assert paths(snapshot)["lib/inner"] == ("d", 0o755)
    assert "lib/inner/a" not in paths(snapshot)


@pytest.mark.usefixtures("folders")
def test_a_submodule_that_cannot_be_had(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = repositories.repository(tmp_path / "deep", {"deep.py": "deep"})
    inner = repositories.repository(tmp_path / "inner", {"inner.py": "old"})
    add_module(inner, str(deep), "deep")
    add_module(origin, str(inner), "lib")
    deep.rename(tmp_path / "gone")
    with pytest.raises(UnreachableError, match=f"submodule lib/deep: git cannot fetch {deep}") as no:
        fetch(origin)
    assert no.value.message.startswith("kit cannot have the submodule lib/deep: ")
    assert no.value.hint
    assert no.value.hint.endswith("or clone the repository with its submodules, and write code: FOLDER")
    assert not list((tmp_path / "cache").glob("kit/git/*/full/*"))
    # Not what a file of a repository says, but what you set, lets git read other folders of this machine.
    monkeypatch.delenv("GIT_CONFIG_COUNT")
    with pytest.raises(UnreachableError, match=r"submodule lib: git cannot fetch .*transport 'file' not allowed"):
        fetch(origin)


@pytest.mark.usefixtures("folders")
def test_a_repository_reads_no_settings_of_this_machine(origin: Path, tmp_path: Path) -> None:
    """git follows `include` also in a file that it reads from a commit."""
    repositories.write(tmp_path, {"config": f'[submodule "lib"]\n\tpath = lib\n\turl = {origin}\n'})
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{git(origin, 'rev-parse', 'HEAD')},lib")
    repositories.write(origin, {".gitmodules": f"[include]\n\tpath = {tmp_path}/config\n"})
    git(origin, "add", ".gitmodules")
    git(origin, "commit", "-qm", "include")
    (note,) = fetch(origin).notes
    assert note.endswith("so their folders are empty: lib")


@pytest.mark.usefixtures("folders")
def test_a_submodule_behind_a_link_writes_nothing_elsewhere(origin: Path, tmp_path: Path) -> None:
    elsewhere, files = tmp_path / "elsewhere", tmp_path / "files"
    elsewhere.mkdir()
    files.mkdir()
    # git itself reads no tree in which a link and a folder have the same name.
    (files / "x").symlink_to(elsewhere)
    module = Module(path="x/y", commit=git(origin, "rev-parse", "HEAD"), url=str(origin))
    with pytest.raises(InputError, match="the submodule lib/x/y is behind a link"):
        fetched.check_out_module(tmp_path, module, files, "lib/")
    assert list(elsewhere.iterdir()) == []


def test_what_does_not_exist(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=f"the repository {origin} has no branch or tag v2") as error:
        fetch(origin, "v2")
    assert error.value.hint == f"see those that it has: git ls-remote {origin}; of a commit, write all 40 digits"
    with pytest.raises(InputError, match=f"has no commit {'0' * 40}"):
        fetch(origin, "0" * 40)
    with pytest.raises(UnreachableError, match=r"git cannot fetch .*/nothing") as unreachable:
        fetch(tmp_path / "nothing", "v1")
    assert unreachable.value.hint == f"check it: git ls-remote {tmp_path / 'nothing'}"
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "empty")], check=True)
    with pytest.raises(InputError, match="has no commits"):
        fetch(tmp_path / "empty")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="git is not installed here"):
        fetch(origin, "main")


@pytest.fixture
def host(origin: Path) -> Iterator[str]:
    with git_server.serving(origin.parent) as host:
        yield host


@pytest.mark.usefixtures("alone")
def test_a_password_in_the_url_is_kept_nowhere(host: str, tmp_path: Path) -> None:
    snapshot = fetch(f"http://{LOGIN}@{host}/origin/.git", "main")
    assert snapshot.source == f"git+http://{host}/origin/.git@main"
    assert "s3cret" not in str(code_record(snapshot))
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"s3cret" in path.read_bytes()]


@pytest.mark.usefixtures("alone")
def test_without_a_login_git_asks_nobody(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for ever: no terminal is here."""
    url = f"http://{host}/origin/.git"
    with pytest.raises(UnreachableError, match=f"git cannot log in to {url}: could not read Username") as error:
        fetch(url, "main")
    assert error.value.hint == f"log in on this machine, and check it: git ls-remote {url}; kit uses the same login"
    with pytest.raises(UnreachableError, match=f"git cannot log in to {url}: ") as wrong:
        fetch(f"http://me:wr0ng@{host}/origin/.git", "main")
    assert "wr0ng" not in f"{wrong.value} {wrong.value.hint}"
    # git's own helpers for logins work.
    Path(os.environ["HOME"], ".git-credentials").write_text(f"http://{LOGIN}@{host}\n")
    Path(os.environ["HOME"], ".gitconfig").write_text("[credential]\nhelper = store\n")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    assert fetch(url, "main").files == 4
