"""A data set from an object store or a web server, read by the real rclone, and what its failures mean."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.integration.rig import until
from tests.integration.store import KEY, RCLONE, SECRET, Store, accepts, store
from tests.sockets import free_port, own_addresses

source, rclone, complaints = (launcher.load(f"kitdata.{name}") for name in ("source", "rclone", "complaints"))

ODD = [
    "a space",
    "per%20cent",
    "100%",
    "plus+",
    "café",
    "#hash?",
    "quo'te\"",
    "[a]b",
    "-x",
    "x" * 200,
    "a:b",
    "~",
    "*",
    "\\",
]
DEEP = "deep/" * 30
LARGE = os.urandom(3 << 20)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with TLS by its own CA, and files of all kinds."""
    with store(tmp_path_factory.mktemp("store"), own_addresses(1)[0]) as running:
        running.put({name: name.encode() * 3 for name in ODD}, "odd")
        running.put({DEEP + "file": b"down here", "empty": b"", "some": b"0123456789"}, "kinds")
        running.put({"shard": os.urandom(9 << 20)}, "large")
        running.put({"[folder] x": b"", "[folder] x]/y": b"brackets"}, "odd folder")
        yield running


def settings(running: Store, changes: dict[str, str]) -> dict[str, str]:
    names = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": running.url,
        "ACCESS_KEY_ID": KEY,
        "SECRET_ACCESS_KEY": SECRET,
        **changes,
    }
    return {f"RCLONE_CONFIG_KIT_{name}": value for name, value in names.items()}


@contextlib.contextmanager
def opened(running: Store, path: str, changes: dict[str, str] | None = None, *, ca: bool = True) -> Iterator[Any]:
    label = f"s3://{path}"
    trusted = running.ca.read_text() if ca else ""
    data = rclone.Rclone(f"kit:{path}", settings(running, changes or {}), label, ca=trusted, program=RCLONE)
    try:
        yield data
    finally:
        data.close()


def failure(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(source.SourceError) as caught:
        call()
    text = str(caught.value.text)
    assert "\n" not in text
    assert SECRET not in text
    return caught.value.kind, text


def contents(data: Any) -> dict[str, bytes]:
    return {entry.path: data.read(entry, 0, entry.size) for entry in source.arranged(data.entries())}


def test_every_name_is_listed_and_read(real: Store) -> None:
    with opened(real, "data/odd") as data:
        entries = source.arranged(data.entries())
        assert [entry.path for entry in entries] == sorted(ODD)
        for entry in entries:
            there = (real.bucket / "odd" / entry.path).stat()
            assert (entry.size, entry.mtime) == (there.st_size, int(there.st_mtime) * 10**9)
            assert entry.md5 == hashlib.md5(entry.path.encode() * 3, usedforsecurity=False).hexdigest()
            assert data.entry(entry.path) == entry
            assert data.read(entry, 0, entry.size) == entry.path.encode() * 3


def test_empty_files_and_deep_folders(real: Store) -> None:
    with opened(real, "data/kinds") as data:
        assert contents(data) == {DEEP + "file": b"down here", "empty": b"", "some": b"0123456789"}


def test_a_folder_with_brackets(real: Store) -> None:
    with opened(real, "data/odd folder/[folder] x]") as data:
        assert contents(data) == {"y": b"brackets"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("large"), own_addresses(7)[6], fast=True) as running:
        running.put({f"class{at % 7}/{at:04}": b"%d" % at for at in range(1200)})
        yield running


def test_a_long_list_and_reads_from_several_threads(large: Store) -> None:
    with opened(large, "data") as data, ThreadPoolExecutor(8) as pool:
        entries = source.arranged(data.entries())
        assert [entry.path for entry in entries] == sorted(f"class{at % 7}/{at:04}" for at in range(1200))
        read = list(pool.map(lambda entry: data.read(entry, 0, entry.size), entries))
        assert read == [b"%d" % int(entry.path[-4:]) for entry in entries]


def test_ranges_cost_only_their_bytes(real: Store) -> None:
    whole = (real.bucket / "large/shard").read_bytes()
    with opened(real, "data/large") as data:
        (entry,) = data.entries()
        # A large file's MD5 may cost a request, so the list does not have it.
        assert entry.md5 == ""
        assert data.entry("shard").md5 == hashlib.md5(whole, usedforsecurity=False).hexdigest()
        real.forget()
        pieces = [(0, 4 << 20), (4 << 20, 4 << 20), (8 << 20, 1 << 20), (9 << 20, 0), (12345, 1)]
        for offset, length in pieces:
            assert data.read(entry, offset, length) == whole[offset : offset + length]
        assert real.read == sum(length for _, length in pieces)


def test_a_remote_that_is_a_file(real: Store) -> None:
    with opened(real, "data/kinds/some") as data:
        assert contents(data) == {"some": b"0123456789"}


@pytest.mark.parametrize(
    ("path", "changes", "kind", "words"),
    [
        (
            "data/odd",
            {"SECRET_ACCESS_KEY": "wrong-wrong-wrong"},
            "source-refused",
            "the secret key is wrong (SignatureDo",
        ),
        ("data/odd", {"ACCESS_KEY_ID": "WRONGWRONG"}, "source-refused", "it does not know this access key (InvalidAcc"),
        ("no-such-bucket", {}, "source-missing", "s3://no-such-bucket is not there"),
        ("no-such-bucket/x", {}, "source-missing", "s3://no-such-bucket/x is not there"),
        ("data/nothing here", {}, "source-missing", "s3://data/nothing here has no files, or is not there"),
        ("data/odd", {"ENDPOINT": "https://nowhere.invalid"}, "source-lost", "its name cannot be found"),
        ("data/odd", {"TYPE": "s33"}, "source-refused", "rclone cannot use the settings of s3://data/odd"),
    ],
)
def test_what_a_store_may_refuse(real: Store, path: str, changes: dict[str, str], kind: str, words: str) -> None:
    with opened(real, path, changes) as data:
        said, text = failure(lambda: list(data.entries()))
        assert said == kind
        assert words in text
        assert f"s3://{path}" in text
        assert "wrong-wrong" not in text


def test_a_certificate_that_nobody_has_signed(real: Store) -> None:
    with opened(real, "data/odd", ca=False) as data:
        kind, text = failure(lambda: list(data.entries()))
    assert kind == "source-lost"
    assert text.startswith(
        "s3://data/odd does not answer: its TLS certificate is not trusted (x509: certificate signed by"
    )


def test_a_store_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with store(tmp_path, own_addresses(2)[1]) as running:
        content = os.urandom(3 << 20)
        running.put({"a": content, "b": content})
        with opened(running, "data") as data:
            entries = list(data.entries())
            running.die_after(4 << 20)
            assert data.read(entries[0], 0, 3 << 20) == content
            kind, text = failure(lambda: data.read(entries[1], 0, 3 << 20))
            assert (kind, text) == ("source-lost", "s3://data broke off while it was read")
            kind, text = failure(lambda: data.read(entries[1], 0, 3 << 20))
            assert (kind, text) == ("source-lost", "s3://data does not answer: the connection is refused")
            running.up()
            assert data.read(entries[1], 0, 3 << 20) == content


def test_a_file_that_changes_or_goes_after_it_was_listed(tmp_path: Path) -> None:
    with store(tmp_path, own_addresses(3)[2]) as running:
        running.put({"same size": b"0123", "longer": b"0123", "gone": b"0123"})
        for name in ("same size", "longer", "gone"):
            os.utime(running.bucket / name, (1e9, 1e9))
        with opened(running, "data") as data:
            entries = {entry.path: entry for entry in data.entries()}
            running.put({"same size": b"4567", "longer": b"01234567"})
            os.utime(running.bucket / "longer", (1e9, 1e9))
            (running.bucket / "gone").unlink()
            for name, entry in entries.items():
                for length in (4, 2):
                    kind, text = failure(partial(data.read, entry, 0, length))
                    gone = "gone is no longer in s3://data"
                    assert kind == "source-changed"
                    assert text == (gone if name == "gone" else f"{name} has changed in s3://data since it was listed")
            assert data.entry("longer").size == 8
            assert failure(lambda: data.entry("gone")) == ("source-changed", gone)


def test_wrong_bytes_differ_from_the_md5_of_the_list(tmp_path: Path) -> None:
    with store(tmp_path, own_addresses(4)[3]) as running:
        running.put({"a": b"0123"})
        with opened(running, "data") as data:
            (entry,) = data.entries()
            running.spoil("a")
            for right in (False, True):
                found = hashlib.md5(data.read(entry, 0, 4), usedforsecurity=False).hexdigest()
                assert (found == entry.md5) is right


def test_rclone_knows_its_settings_by_its_environment_alone(
    real: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither of these may reach rclone, nor be changed by it.
    (tmp_path / ".config/rclone").mkdir(parents=True)
    (tmp_path / ".config/rclone/rclone.conf").write_text("[kit]\ntype = local\n")
    for name, value in {"HOME": str(tmp_path), "RCLONE_MAX_SIZE": "1", "AWS_PROFILE": "other"}.items():
        monkeypatch.setenv(name, value)
    with opened(real, "data/kinds") as data:
        assert len(list(data.entries())) == 3
        process = data._server._process
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        names = {entry.partition(b"=")[0].decode() for entry in environ if entry}
        assert names - {name for name in names if name.startswith("RCLONE_CONFIG_KIT")} <= {"PATH", "HOME"}
        assert SECRET.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert SECRET not in " ".join(f"{name}={value}" for name, value in os.environ.items())
        folder = Path(data._program.folder)
        assert folder.stat().st_mode & 0o777 == 0o700
        for file in folder.rglob("*"):
            assert file.is_socket() or SECRET.encode() not in file.read_bytes()
    assert not folder.exists()
    assert not process.alive


def test_rclone_that_was_killed_is_started_again(real: Store) -> None:
    with opened(real, "data/kinds") as data:
        (entry,) = [entry for entry in data.entries() if entry.path == "some"]
        os.kill(data._server._process.pid, signal.SIGKILL)
        data._server._process.wait()
        assert data.read(entry, 2, 3) == b"234"


def test_close_ends_a_list(large: Store) -> None:
    with opened(large, "data") as data:
        entries = data.entries()
        next(entries)
        data.close()
        kind, _ = failure(lambda: list(data.entries()))
        assert kind == "source-lost"
        entries.close()
        assert data._listers == []


def test_without_rclone(real: Store) -> None:
    data = rclone.Rclone("kit:data", settings(real, {}), "s3://data", program="/nowhere/rclone")
    kind, text = failure(lambda: list(data.entries()))
    assert (kind, text) == (
        "source-lost",
        "s3://data cannot be read: rclone cannot start: No such file or directory",
    )
    data.close()


class _Web(SimpleHTTPRequestHandler):
    """Python's own web server: it lists folders, and ignores ranges."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "set/deep folder").mkdir(parents=True)
    (folder / "set/deep folder/a b%.txt").write_bytes(b"one")
    (folder / "set/two").write_bytes(b"12")
    (folder / "set/large").write_bytes(LARGE)
    server = ThreadingHTTPServer((own_addresses(5)[4], 0), partial(_Web, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://{server.server_address[0]!s}:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def page(web: tuple[str, Path], path: str) -> Iterator[Any]:
    env = {"RCLONE_CONFIG_KIT_TYPE": "http", "RCLONE_CONFIG_KIT_URL": web[0]}
    data = rclone.Rclone(f"kit:{path}", env, f"{web[0]}/{path}", program=RCLONE)
    try:
        yield data
    finally:
        data.close()


def test_a_listing_of_a_web_server(web: tuple[str, Path]) -> None:
    with page(web, "set") as data:
        assert contents(data) == {"deep folder/a b%.txt": b"one", "two": b"12", "large": LARGE}
        assert {entry.mtime for entry in data.entries()} == {
            int(path.stat().st_mtime) * 10**9 for path in web[1].rglob("*") if path.is_file()
        }


def test_one_file_of_a_web_server(web: tuple[str, Path]) -> None:
    with page(web, "set/deep folder/a b%.txt") as data:
        assert contents(data) == {"a b%.txt": b"one"}


def test_a_page_that_is_not_there(web: tuple[str, Path]) -> None:
    with page(web, "nothing") as data:
        assert failure(lambda: list(data.entries())) == ("source-missing", f"{web[0]}/nothing is not there")


def test_a_web_server_that_cannot_send_parts(web: tuple[str, Path]) -> None:
    """rclone alone would hand out the first megabyte as the second one."""
    with page(web, "set") as data:
        assert failure(lambda: data.read(data.entry("large"), 1 << 20, 1 << 20)) == (
            "source-lost",
            f"{web[0]}/set does not send large in parts. The web server must support range requests",
        )


def test_a_web_server_that_sends_parts(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "large").write_bytes(content)
    with served(tmp_path) as port, page((f"http://127.0.0.1:{port}", tmp_path), "large") as data:
        (entry,) = data.entries()
        assert data.read(entry, 1 << 20, 1 << 20) == content[1 << 20 : 2 << 20]


class _Odd(_Web):
    """Fails some requests for a file's size, with `status`, and sends gzip as a web server may."""

    status = 503
    failures = 0

    def do_HEAD(self) -> None:
        if "broken" in self.path and _Odd.failures > 0:
            _Odd.failures -= 1
            self.send_error(_Odd.status)
        else:
            super().do_HEAD()

    def end_headers(self) -> None:
        if self.path.endswith(".gz"):
            self.send_header("Content-Encoding", "gzip")
        super().end_headers()


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    (tmp_path / "set/deep").mkdir(parents=True)
    (tmp_path / "set/good").write_bytes(b"good")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Odd, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", tmp_path
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "why"),
    [
        (503, "source-lost", "does not answer: it gets too many requests"),
        (429, "source-lost", "does not answer: it gets too many requests"),
        (403, "source-refused", "refuses: these credentials may not read it"),
    ],
)
def test_a_file_whose_size_a_web_server_does_not_say_is_not_left_out(
    odd: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, status: int, kind: str, why: str
) -> None:
    (odd[1] / "set/deep/a broken%").write_bytes(b"broken")
    monkeypatch.setattr(rclone, "WAITS", (0.0,))
    monkeypatch.setattr(_Odd, "status", status)
    with page(odd, "set") as data:
        monkeypatch.setattr(_Odd, "failures", 1)
        assert contents(data) == {"good": b"good", "deep/a broken%": b"broken"}
        monkeypatch.setattr(_Odd, "failures", 100)
        text = f"deep/a broken% cannot be listed: {odd[0]}/set {why}"
        assert failure(lambda: list(data.entries())) == (kind, text)


def test_a_link_that_leads_nowhere_is_no_file(odd: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (odd[1] / "set/broken").write_bytes(b"broken")
    monkeypatch.setattr(_Odd, "status", 404)
    monkeypatch.setattr(_Odd, "failures", 100)
    with page(odd, "set") as data:
        assert contents(data) == {"good": b"good"}


def test_a_web_server_that_names_gzip_as_the_encoding(odd: tuple[str, Path]) -> None:
    packed = gzip.compress(b"hello" * 1000)
    (odd[1] / "set/file.gz").write_bytes(packed)
    with page(odd, "set") as data:
        assert contents(data) == {"good": b"good", "file.gz": packed}
        # A mount starts another rclone.
        process = data.program({}, str(odd[1]), ()).start("cat", f"{rclone.ROOT}:file.gz", stdout=subprocess.PIPE)
        assert process.communicate(timeout=60)[0] == packed


@contextlib.contextmanager
def served(folder: Path) -> Iterator[int]:
    """Serve a folder by rclone's web server, which knows ranges."""
    port = free_port("127.0.0.1")
    command = [RCLONE, "--config", "", "serve", "http", "--addr", f"127.0.0.1:{port}", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until("the web server answers", lambda: process.poll() is not None or accepts(("127.0.0.1", port)))
        yield port
    finally:
        process.kill()
        process.wait()


def test_a_store_without_md5s_is_asked_for_few_of_them(tmp_path: Path) -> None:
    with store(tmp_path, own_addresses(6)[5], md5=False) as running:
        running.put({f"class{at % 7}/{at:04}": b"%d" % at for at in range(200)})
        running.put({"shard": os.urandom(6 << 20)})
        with opened(running, "data") as data:
            entries = source.arranged(data.entries())
        asked = sum(line.startswith("HEAD") for line in running.requests)
    assert [entry.path for entry in entries] == sorted([*(f"class{at % 7}/{at:04}" for at in range(200)), "shard"])
    assert {entry.md5 for entry in entries} == {""}
    assert 0 < asked < 100


@pytest.mark.parametrize(
    ("entries", "taken", "knows"),
    [
        ([], 0, True),
        ([(1, "")] * 7, 7, True),
        ([(1, "")] * 20, 8, False),
        ([(1, "")] * 7 + [(1, "d" * 32)] * 9, 8, True),
        # A list says nothing of the MD5 of a large file.
        ([(9 << 20, "")] * 20 + [(1, "d" * 32)] * 2, 21, True),
    ],
)
def test_a_few_small_files_say_whether_a_list_knows_md5s(
    entries: list[tuple[int, str]], taken: int, knows: bool
) -> None:
    rows = [source.Entry(f"{number}", size, 0, md5) for number, (size, md5) in enumerate(entries)]
    rest = iter(rows)
    assert rclone.sample(rest) == (rows[:taken], knows)
    assert list(rest) == rows[taken:]


def test_a_fast_store_has_no_proxy(tmp_path: Path) -> None:
    with store(tmp_path, own_addresses(6)[5], fast=True, md5=False) as running:
        running.put({"a": b"0123"})
        with opened(running, "data") as data:
            assert contents(data) == {"a": b"0123"}
            assert next(data.entries()).md5 == ""
        assert running.read == 0


def test_a_name_that_rclone_cannot_pass_on(real: Store) -> None:
    with opened(real, "data/kinds") as data:
        words = "rclone cannot read a\\x0ab: its name has a line break"
        assert failure(lambda: data.entry("a\nb")) == ("source-name", words)
