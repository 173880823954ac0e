"""Tests code from a commit that a host fetches: the program of the host, its git, and a server behind a password.

What ssh would start on a host is started here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.errors import InputError, KitError, NotReadyError
from kit.model.answer import OddAnswer
from kit.model.code import Snapshot
from kit.model.host import Login
from kit.model.repository import Repository, repository
from kit.model.values import replace
from kit.remote.code import fetched, gathered, gatherer, limits
from kit.remote.code.gathered import gather
from kit.remote.code.gatherer import Listed, NotGatheredError, Place
from kit.remote.ship import porters
from kit.remote.ship.porter import git as git_there
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.commit import MOST_COMMITS
from kit.remote.ship.porter.git import Failed
from kit.remote.ssh.program import ARGV
from tests.fakes import git_server
from tests.fakes import repository as repositories
from tests.fakes.git_server import LOGIN
from tests.fakes.head import until
from tests.fakes.repository import git

HEAD = Login(host="head", address="head", user=None, port=None, key=None, known_hosts=None)


class Head:
    """A head that is this machine: its cluster's folder, what kit said, and what a rank can see of it."""

    def __init__(self, folder: Path) -> None:
        self.cluster = folder / "cluster"
        self.cluster.mkdir()
        self.store = self.cluster / "code"
        self.home = folder / "head"
        self.home.mkdir()
        # What starts a command on it.
        self.ssh = ("env", "-i", f"HOME={self.home}", f"PATH={os.environ['PATH']}", "sh", "-c")
        self.said: list[str] = []

    def gather(self, source: str) -> Snapshot:
        wanted = repository(f"git+{source}")
        place = Place(login=HEAD, store=str(self.store))
        try:
            return gather(wanted, fetched.commit_of(wanted), place, self.said.append)
        finally:
            # The program may still be removing what it needs no more.
            until(lambda: not list(self.store.glob("git/tree-*")))

    def has(self, snapshot: Snapshot) -> dict[str, bytes]:
        """Return the files of the snapshot, by path, as the store has them."""
        assert (self.store / "manifests" / snapshot.digest).read_bytes() == snapshot.manifest
        return {
            os.fsdecode(entry.path): (self.store / "objects" / entry.digest[:2] / entry.digest).read_bytes()
            for entry in manifest.parse(snapshot.manifest)
            if entry.kind == manifest.FILE
        }

    @property
    def repository(self) -> Path:
        (folder,) = (self.store / "git").iterdir()
        return folder

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.cluster.rglob("*") if path.is_file())

    def texts(self) -> bytes:
        """Return everything that is on the head's disk."""
        return b"".join(path.read_bytes() for path in self.cluster.rglob("*") if path.is_file())


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What this person's git knows is not what the head's git knows.
    made = Head(tmp_path)
    monkeypatch.setattr(porters, "openssh_argv", lambda login, **_: made.ssh)
    monkeypatch.setattr(porters, "marked", lambda argv: "exec " + shlex.join([sys.executable, *argv[1:]]))
    return made


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    files = {"train.py": "one\n", "sub/net.py": "net\n", "a.log": "log\n", ".kitignore": "*.log\nonly/\n"}
    folder = repositories.repository(
        tmp_path / "served" / "net", {**files, "only/left.txt": "left", "odd\tname": "odd"}
    )
    (folder / "sub" / "net.py").chmod(0o755)
    (folder / "link").symlink_to("sub/net.py")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "files")
    return folder


@pytest.fixture
def server(origin: Path) -> Iterator[str]:
    with git_server.serving(origin.parent) as address:
        yield address


def change(origin: Path, text: str) -> str:
    repositories.write(origin, {"train.py": text})
    git(origin, "commit", "-qam", text)
    return git(origin, "rev-parse", "HEAD")


def test_the_head_has_what_this_machine_would_have(head: Head, server: str) -> None:
    url = f"http://{LOGIN}@{server}/net/.git@main"
    snapshot = head.gather(url)
    assert head.has(snapshot) == {
        ".kitignore": b"*.log\nonly/\n", "odd\tname": b"odd", "sub/net.py": b"net\n", "train.py": b"one\n",
    }  # fmt: skip
    mine = fetched.fetch(repository(f"git+{url}"))
    assert (snapshot.manifest, snapshot.files, snapshot.size) == (mine.manifest, mine.files, mine.size)
    assert (snapshot.git, snapshot.source, snapshot.holder) == (mine.git, mine.source, "head")
    assert LOGIN.partition(":")[2] not in "".join(head.said)
    assert b"s3cret" not in head.texts()
    # The repository stays, because it makes the next fetch faster.
    assert sorted(path.name for path in head.repository.iterdir()) == ["lock", "repo"]
    assert not (head.store / "incoming").exists()


def test_the_next_commit_needs_what_differs_and_the_same_one_nothing(head: Head, origin: Path) -> None:
    asked: list[str] = []
    (origin / "large.bin").write_bytes(os.urandom(300_000))
    git(origin, "add", "-A")
    change(origin, "more")
    with git_server.serving(origin.parent, asked, public=True) as address:
        first = head.gather(f"http://{address}/net/.git")
        size = head.size()
        commit = change(origin, "two")
        second = head.gather(f"http://{address}/net/.git@{commit}")
        assert head.has(second)["train.py"] == b"two"
        assert head.size() - size < 30_000
        assert first.digest != second.digest
        asked.clear()
        assert head.gather(f"http://{address}/net/.git@{commit}").digest == second.digest
        assert asked == []
    pattern = rf"code: head fetched commit {commit[:10]} of http://{address}/net/\.git in \d+\.\d s"
    assert re.fullmatch(pattern, head.said[-1])


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give this person's git a credential helper that has the login. Return the file of the questions to it."""
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\ncat >>{tmp_path}/questions; echo username=me; echo password=s3cret\n")
    helper.chmod(0o755)
    for name, value in {"COUNT": "1", "KEY_0": "credential.helper", "VALUE_0": str(helper)}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    return tmp_path / "questions"


def test_your_git_gives_the_login_only_if_the_repository_wants_one(head: Head, origin: Path, questions: Path) -> None:
    # A helper of the head would write the login to its disk.
    (head.home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file={head.cluster}/stored\n")
    commit = git(origin, "rev-parse", "HEAD")
    with git_server.serving(origin.parent, public=True) as address:
        head.gather(f"http://{address}/net/.git@{commit}")
    assert not questions.exists()
    with git_server.serving(origin.parent) as address:
        snapshot = head.gather(f"http://{address}/net/.git@{commit}")
    assert f"host={address}\n" in questions.read_text()
    assert head.has(snapshot)["train.py"] == b"one\n"
    assert head.said[-1].endswith(" s, with your login")
    assert b"s3cret" not in head.texts()


def test_a_host_gets_no_login_for_a_repository_that_needs_none(
    head: Head, origin: Path, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = json.dumps({"failed": "could not read Username", "kind": "login"})
    answer(monkeypatch, report)
    with git_server.serving(origin.parent, public=True) as address, pytest.raises(NotGatheredError, match="Username"):
        head.gather(f"http://{address}/net/.git")
    assert not questions.exists()


def answer(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Let the head answer this line to its first order."""
    monkeypatch.setattr(porters, "openssh_argv", lambda login, **_: ("sh", "-c"))
    monkeypatch.setattr(porters, "marked", lambda argv: f"printf '%s\\n' '{line}'; cat >/dev/null")


def test_a_head_without_a_login_says_so(head: Head, server: str, origin: Path) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    for login in ("", "me:wrong@"):
        with pytest.raises(NotGatheredError, match=rf"cannot fetch http://{server}/net/.git: (could|Auth)") as error:
            head.gather(f"http://{login}{server}/net/.git@{commit}")
        assert "wrong" not in error.value.message
    # That left nothing which would stop the next one.
    assert head.gather(f"http://{LOGIN}@{server}/net/.git@{commit}").files == 4


def test_your_rewritten_url_counts(head: Head, server: str, origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = f"url.http://{LOGIN}@{server}/.insteadOf"
    for name, value in {"COUNT": "1", "KEY_0": key, "VALUE_0": "https://example.com/"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    snapshot = head.gather("https://example.com/net/.git@main")
    assert head.has(snapshot)["train.py"] == b"one\n"
    assert snapshot.source == "git+https://example.com/net/.git@main"
    assert gathered.is_for_hosts(repository("git+https://example.com/net/.git"))
    assert gathered.is_for_hosts(repository("git+git@example.com:net.git"))
    assert not gathered.is_for_hosts(repository(f"git+file://{origin}"))
    assert not gathered.is_for_hosts(repository(f"git+{origin}"))


def test_what_the_head_cannot_fetch(head: Head, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(source: str) -> str:
        with pytest.raises(NotGatheredError) as error:
            head.gather(source)
        assert error.value.host == "head"
        return error.value.message.partition(": ")[2]

    with git_server.serving(origin.parent, public=True) as address:
        url = f"http://{address}/net/.git"
        commit = git(origin, "rev-parse", "HEAD")
        head.store = tmp_path / "other" / "code"
        with pytest.raises(NotReadyError, match="no cluster is deployed there"):
            head.gather(f"{url}@{commit}")
        assert not (tmp_path / "other").exists()
        head.store = head.cluster / "code"
        assert "not our ref" in refusal(f"{url}@{'0' * 40}")
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 9\n"
        repositories.write(origin, {".gitattributes": "*.bin filter=lfs\n", "weights.bin": pointer})
        git(origin, "add", ".gitattributes")
        blob = git(origin, "hash-object", "-w", "--no-filters", "weights.bin")
        git(origin, "update-index", "--add", "--cacheinfo", f"100644,{blob},weights.bin")
        git(origin, "commit", "-qm", "pointer")
        assert refusal(url) == "the commit has files of Git LFS"
        git(origin, "reset", "-q", "--hard", commit)
        add_modules(origin, {"lib": ("git@example.com:lib.git", commit)})
        assert refusal(url) == "its submodule lib: git@example.com:lib.git is on another server"
        add_modules(origin, {"lib": (str(origin), commit)})
        assert refusal(url) == "its submodule lib: transport 'file' not allowed"
        add_modules(origin, {"lib": ("../../gone/.git", commit)})
        assert refusal(url).startswith("its submodule lib: repository 'http")
        # This machine asks for none of these URLs for a host. But one that is asked refuses them.
        place = Place(login=HEAD, store=str(head.store))
        for other in (str(origin), f"file://{origin}"):
            with pytest.raises(NotGatheredError, match="transport 'file' not allowed"):
                gather(Repository(url=other, ref=""), commit, place, head.said.append)


def add_modules(origin: Path, modules: Mapping[str, tuple[str | None, str]]) -> str:
    """Commit submodules: by path, their URL and commit. None as URL: .gitmodules does not name them."""
    lines = [f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n' for path, (url, _) in modules.items() if url]
    repositories.write(origin, {".gitmodules": "".join(lines)})
    git(origin, "add", ".gitmodules")
    for path, (_, commit) in modules.items():
        git(origin, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    git(origin, "commit", "-qm", "modules")
    return git(origin, "rev-parse", "HEAD")


def test_submodules_come_along(head: Head, origin: Path, server: str) -> None:
    served = origin.parent
    deep = repositories.repository(served / "deep", {"deep.py": "deep"})
    inner = repositories.repository(served / "inner", {"inner.py": "old", "own/.kitignore": "*"})
    empty = repositories.repository(served / "empty")
    old = add_modules(inner, {"below/deep": ("../../deep/.git", git(deep, "rev-parse", "HEAD"))})
    # The commit counts, and not what its branch has become.
    change(inner.parent / "inner", "new")
    add_modules(
        origin,
        {
            "lib/inner": ("../../inner/.git", old),
            "empty": ("../../empty/.git", git(empty, "rev-parse", "HEAD")),
            "only/left": (None, old),
            "lib/un\u00e4hnlich": (None, old),
        },
    )
    url = f"http://{LOGIN}@{server}/net/.git"
    snapshot = head.gather(url)
    files = head.has(snapshot)
    assert (files["lib/inner/inner.py"], files["lib/inner/below/deep/deep.py"]) == (b"old", b"deep")
    mine = fetched.fetch(repository(f"git+{url}"))
    assert snapshot.manifest == mine.manifest
    folders = [os.fsdecode(entry.path) for entry in manifest.parse(snapshot.manifest) if entry.kind == manifest.FOLDER]
    assert folders == ["empty", "lib/un\u00e4hnlich"]
    assert snapshot.notes == mine.notes
    assert "so their folders are empty: lib/un\u00e4hnlich, only/left" in snapshot.notes[0]
    known = gathered.recall(repository(f"git+{url}"), git(origin, "rev-parse", "HEAD"))
    assert known == replace(snapshot, holder="")
    assert b"s3cret" not in head.texts()


def test_the_login_goes_to_the_host_of_the_repository_alone(
    head: Head, origin: Path, server: str, tmp_path: Path
) -> None:
    other = repositories.repository(tmp_path / "other" / "lib", {"lib.py": "lib"})
    with git_server.serving(other.parent) as elsewhere:
        add_modules(origin, {"lib": (f"http://{elsewhere}/lib/.git", git(other, "rev-parse", "HEAD"))})
        with pytest.raises(NotGatheredError, match="its submodule lib: could not read Username"):
            head.gather(f"http://{LOGIN}@{server}/net/.git")


def test_a_repository_reads_no_settings_of_the_head(head: Head, origin: Path, server: str) -> None:
    """git follows `include` also in a file that it reads from a commit."""
    (head.home / "config").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../../net/.git\n')
    add_modules(origin, {"lib": (None, git(origin, "rev-parse", "HEAD"))})
    repositories.write(origin, {".gitmodules": f"[include]\n\tpath = {head.home}/config\n"})
    git(origin, "add", ".gitmodules")
    git(origin, "commit", "-qm", "include")
    snapshot = head.gather(f"http://{LOGIN}@{server}/net/.git")
    assert "so their folders are empty: lib" in snapshot.notes[0]


def test_a_head_without_git(head: Head, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(
        porters, "openssh_argv", lambda login, **_: ("env", "-i", f"PATH={tmp_path}/bin", "/bin/sh", "-c")
    )
    with pytest.raises(NotGatheredError, match="git is not installed there"):
        head.gather(f"http://{LOGIN}@{server}/net/.git")


def test_code_that_no_run_could_have(head: Head, server: str, origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://{LOGIN}@{server}/net/.git"
    with monkeypatch.context() as patch:
        patch.setattr(limits, "MOST_FILES", 3)
        with pytest.raises(InputError, match=rf"the code folder git\+http://{server}/net/\.git has 4 files"):
            head.gather(url)
    (origin / "sub" / "out").symlink_to("../../elsewhere")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "link")
    with pytest.raises(
        InputError, match=r"the link .*net/.git/sub/out leads out of the code folder, to ../../elsewhere"
    ):
        head.gather(url)
    assert not (head.store / "manifests").exists()


def test_what_ignores_may_not_be_a_link(head: Head, server: str, origin: Path) -> None:
    (origin / ".kitignore").unlink()
    (origin / ".kitignore").symlink_to("a.log")
    git(origin, "commit", "-qam", "link")
    with pytest.raises(NotGatheredError, match=r"its \.kitignore is not a file"):
        head.gather(f"http://{LOGIN}@{server}/net/.git")


def test_a_commit_that_is_known_needs_no_host(head: Head, server: str, tmp_path: Path) -> None:
    wanted = repository(f"git+http://{LOGIN}@{server}/net/.git")
    commit = fetched.commit_of(wanted)
    assert gathered.recall(wanted, commit) is None
    snapshot = head.gather(wanted.url)
    known = gathered.recall(wanted, commit)
    assert known == replace(snapshot, holder="")
    (tmp_path / "cache" / "kit" / "code" / "manifests" / snapshot.digest).unlink()
    assert gathered.recall(wanted, commit) is None


def test_two_at_once_and_one_after_a_killed_one(head: Head, origin: Path) -> None:
    commits = [git(origin, "rev-parse", "HEAD"), change(origin, "two")]
    with git_server.serving(origin.parent, public=True) as address, ThreadPoolExecutor() as pool:
        url = f"http://{address}/net/.git"
        both = list(pool.map(head.gather, [f"{url}@{commit}" for commit in commits]))
        assert [head.has(one)["train.py"] for one in both] == [b"one\n", b"two"]
        # What a killed git leaves: its marker, its lock, and files of half a commit.
        (head.repository / "busy").touch()
        (head.repository / "repo" / "shallow.lock").touch()
        (head.store / "git" / "tree-1" / "files").mkdir(parents=True)
        assert head.has(head.gather(f"{url}@{change(origin, 'three')}"))["train.py"] == b"three"
        assert sorted(path.name for path in head.repository.iterdir()) == ["lock", "repo"]


def test_a_repository_begins_again_after_many_commits(head: Head, origin: Path) -> None:
    commits = [change(origin, str(number)) for number in range(3)]
    with git_server.serving(origin.parent, public=True) as address:
        head.gather(f"http://{address}/net/.git@{commits[0]}")
        heads = head.repository / "repo" / "refs" / "heads"
        for number in range(MOST_COMMITS - 1):
            (heads / f"{number:040x}").write_text(f"{commits[0]}\n")
        head.gather(f"http://{address}/net/.git@{commits[1]}")
        assert [path.name for path in heads.iterdir()] == [commits[1]]
        head.gather(f"http://{address}/net/.git@{commits[2]}")
        assert sorted(path.name for path in heads.iterdir()) == sorted(commits[1:])


def test_nothing_goes_on_without_the_operator(head: Head, origin: Path) -> None:
    """git waits for a server when the connection to the operator ends."""
    waiting, go = threading.Event(), threading.Event()

    def wait() -> None:
        waiting.set()
        go.wait(60)

    commit = git(origin, "rev-parse", "HEAD")
    with git_server.serving(origin.parent, public=True, wait=wait) as address:
        process = subprocess.Popen(
            [*head.ssh, shlex.join([sys.executable, *ARGV[1:]])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin
        url = f"http://{address}/net/.git"
        order = {"op": "fetch", "url": url, "commit": commit, "store": str(head.store), "login": None, "ssh": None}
        process.stdin.write(gatherer.program() + json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        assert waiting.wait(60)
        process.stdin.close()
        assert process.wait(60) == 0
        until(lambda: not [line for line in processes() if url in line])
        go.set()
    assert sorted(path.name for path in head.repository.iterdir()) == ["busy", "lock", "repo"]


def processes() -> list[str]:
    """Return the command lines of all processes."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return lines


def test_a_server_that_sends_nothing_is_given_up(head: Head, origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_there, "STALL_S", 1)
    go = threading.Event()
    with git_server.serving(origin.parent, public=True, wait=lambda: go.wait(60)) as address:
        with pytest.raises(Failed, match="Operation too slow") as error:
            git_there.Git(f"http://{address}/net/.git", None).run("ls-remote", "--", f"http://{address}/net/.git")
        go.set()
    assert error.value.kind == "git"


LINE = manifest.file_line(0o644, "a" * 64, 3, b"train.py")


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"no manifest\n",
        manifest.HEADER + b"f\t644\tshort\n",
        manifest.HEADER + LINE,
        manifest.join([manifest.file_line(0o644, "a" * 64, 3, b"../train.py")]),
        manifest.join([manifest.file_line(0o644, "a" * 64, 3, b"/train.py")]),
        manifest.join([LINE, manifest.file_line(0o644, "a" * 64, 4, b"two.py")]),
        manifest.join([LINE, manifest.file_line(0o644, "b" * 64, 4, b"train.py/below")]),
    ],
)
def test_a_list_of_files_that_is_none(lines: bytes) -> None:
    listed = Listed(lines=base64.b64encode(lines).decode())
    with pytest.raises(OddAnswer):
        gathered._snapshot(Repository(url="https://example.com/net.git", ref=""), listed)


@pytest.mark.parametrize(
    "line",
    [
        b"[]", b'{"listed": {"lines": 3}}', b'{"listed": "x"}', b'{"failed": 3}', b'{"kept": "yes"}',
        b'{"failed": "%s", "kind": "git"}' % (b"x" * 5000),
    ],
)  # fmt: skip
def test_a_report_that_is_none(line: bytes) -> None:
    with pytest.raises(OddAnswer):
        gatherer.read(line)


def test_a_list_that_is_not_base64() -> None:
    with pytest.raises(OddAnswer, match="not base64"):
        gathered._snapshot(Repository(url="https://example.com/net.git", ref=""), Listed(lines="###"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [('{"failed": "two\\nlines \\u001b[31m", "kind": "git"}', r"lines \x1b[31m"), ('{"kept": true}', "something else")],
)
def test_an_odd_host_is_an_error_of_that_host(
    head: Head, origin: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    answer(monkeypatch, text)
    wanted = Repository(url="https://example.com/net.git", ref="")
    with pytest.raises(KitError) as error:
        gather(wanted, "a" * 40, Place(login=HEAD, store=str(head.store)), head.said.append)
    assert error.value.host == "head"
    assert shown in error.value.message
