"""Session: settings that a verb fixes, results as text or JSON after the progress, and confirmations."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.main import main
from kit.cli.parser import parse
from kit.cli.screen.plain import Quiet
from kit.cli.screen.terminal import Terminal
from kit.cli.session import _OVERRIDES, Session
from kit.cli.verbs.table import VERBS
from kit.config.fields import settings
from kit.errors import InputError


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watched(Quiet):
    """Writes down when the progress ended, on the same stream as results."""

    def close(self) -> None:
        self.terminal.out.write("(closed)")


def session(*, inp: str = "", tty: bool = False, environ: dict[str, str] | None = None, **args: Any) -> Session:
    stream = Tty if tty else io.StringIO
    terminal = Terminal(out=stream(), err=stream(), inp=stream(inp), environ={})
    given = {"output": None, "folder": None, "hosts_file": None, "config_file": None, "yes": False} | args
    return Session(args=SimpleNamespace(**given), terminal=terminal, reporter=Watched(terminal), environ=environ or {})


def printed(one: Session) -> str:
    assert isinstance(one.terminal.out, io.StringIO)
    return one.terminal.out.getvalue()


def test_a_fixed_setting_replaces_the_file_and_leaves_the_words_alone(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1 name=gpu1\n")
    (tmp_path / "kit.yaml").write_text("name: kit\norchestrator: compose\n")
    one = session(folder=str(tmp_path), name="mine")
    assert one.settings({"orchestrator": "swarm"}).spec.orchestrator == "swarm"
    assert one.settings({"orchestrator": "swarm"}).spec.name == "mine"
    assert one.settings().spec.orchestrator == "compose"


def test_the_folder_of_a_flag_wins_over_files_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hosts").write_text(f"10.0.0.1 name={name}1\n")
        (tmp_path / name / "kit.yaml").write_text(f"name: {name}\n")
    environ = {"KIT_HOSTS": str(tmp_path / "a/hosts"), "KIT_CONFIG": str(tmp_path / "a/kit.yaml"), "KIT_SLOTS": "3"}

    def read(**args: Any) -> tuple[str, str, str, object]:
        one = session(environ=environ, **args)
        return one.settings().inventory.names[0], one.settings().spec.name, one.spec().name, one.spec().slots

    monkeypatch.chdir(tmp_path / "b")
    assert read() == ("a1", "a", "a", 3)
    # Other variables of kit still count.
    assert read(folder=str(tmp_path / "b")) == read(folder=".") == ("b1", "b", "b", 3)
    assert read(folder=".", hosts_file=environ["KIT_HOSTS"]) == ("a1", "b", "b", 3)


def test_tune_writes_the_kit_yaml_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr(Session, "context", lambda _session: None)
    monkeypatch.setattr(Session, "show", lambda *_args: None)
    monkeypatch.setattr("kit.flows.tune.tune.tune", lambda _context, request: written.append(request.file))
    environ = {"KIT_CONFIG": str(tmp_path / "other.yaml")}
    for words in ([], ["-C", str(tmp_path)]):
        main(["tune", *words], environ=environ)
    assert written == [tmp_path / "other.yaml", tmp_path / "kit.yaml"]


def test_an_error_names_the_flag_that_you_typed() -> None:
    known = {flag for verb in VERBS for option in verb.options for flag in option.flags}
    assert {settings()[path].flag for path in (*_OVERRIDES.values(), "ssh.keep")} <= known
    assert settings()["setup.hugepages"].flag == "--hugepages"


def test_flags_of_kit_setup_replace_kit_yaml(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1 name=gpu1\n")
    (tmp_path / "kit.yaml").write_text("setup: {mtu: 1500, hugepages: 4}\n")
    given = parse(["setup", "-C", str(tmp_path), "--mtu", "9000", "--hugepages", "16"]).args
    spec = session(**vars(given)).settings().spec.setup
    assert (spec.mtu, spec.hugepages) == (9000, 16)


@pytest.mark.parametrize("text", ["done", lambda value: f"{value['state']}"])
def test_a_result_is_printed_after_the_progress(text: Any) -> None:
    one = session()
    one.show("x", {"state": "done"}, text)
    assert printed(one) == "(closed)done\n"


def test_json_never_makes_the_text() -> None:
    one = session(output="json")
    one.show("x", {"state": "done"}, lambda _: pytest.fail("the text is not needed"))
    before, _, line = printed(one).partition(")")
    assert (before, json.loads(line)) == ("(closed", {"kit": 1, "kind": "x", "state": "done"})


@pytest.mark.parametrize(("output", "lines"), [(None, 0), ("json", 1)])
def test_an_object_between_leaves_the_progress_alone(output: str | None, lines: int) -> None:
    one = session(output=output)
    one.emit("sample", {"n": 1})
    assert "closed" not in printed(one)
    assert printed(one).count("\n") == lines


@pytest.mark.parametrize(
    ("args", "confirmed"),
    [
        ({"tty": True, "inp": "y\n"}, True),
        ({"tty": True, "inp": "no\n"}, False),
        ({"tty": True, "inp": "\n", "yes": True}, True),
        ({"tty": True, "inp": "\n", "output": "json"}, True),
        ({"tty": False}, True),
    ],
)
def test_confirmation(args: dict[str, Any], confirmed: bool) -> None:
    assert session(**args).confirms("Remove it?") is confirmed


def test_a_current_folder_that_was_deleted_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    (tmp_path / "hosts").write_text("10.0.0.1 key=k\n")
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match="the current folder no longer exists") as caught:
        _ = session().folder
    assert caught.value.hint == "cd to another one"
    assert session(folder=str(tmp_path)).settings().inventory.hosts[0].key == str(tmp_path / "k")
    with pytest.raises(InputError, match="the current folder no longer exists"):
        session(folder=str(tmp_path), code="src").settings()


@pytest.mark.parametrize("piped", ["hosts_file", "config_file"])
def test_a_command_reads_each_file_once(tmp_path: Path, piped: str) -> None:
    """A pipe, as in kit --hosts <(COMMAND), is empty when it is read again. An empty kit.yaml means defaults."""
    (tmp_path / "hosts").write_text("10.0.0.1 name=gpu1\n")
    (tmp_path / "kit.yaml").write_text("name: prod\nbuilder: head\n")
    path = tmp_path / ("hosts" if piped == "hosts_file" else "kit.yaml")
    readable, writable = os.pipe()
    with open(readable, "rb"), open(writable, "wb", buffering=0) as pipe:  # noqa: PTH123  (descriptors)
        pipe.write(path.read_bytes())
        pipe.close()
        path.unlink()
        given: dict[str, Any] = {piped: f"/dev/fd/{readable}"}
        one = session(folder=str(tmp_path), **given)
        specs = [one.spec(), one.settings().spec, one.spec(), one.settings().spec]
        assert {(spec.name, spec.builder) for spec in specs} == {("prod", "head")}
        assert [host.name for host in one.settings().inventory.hosts] == ["gpu1"]


@pytest.mark.parametrize("words", [["init"], ["bench", "list"], ["ps"]], ids=" ".join)
def test_a_file_in_place_of_the_folder(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("")
    assert main(["-C", str(tmp_path / "x"), *words], environ={}) == 2
    err = capsys.readouterr().err
    assert "is a file, not a folder\n  → -C takes a folder; name files with --hosts FILE" in err


def test_the_folder_may_be_below_your_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell does not replace the ~ of --folder=~/x."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert session(folder="~/x").folder == tmp_path / "x"


def test_a_kit_yaml_of_the_folder_above_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kit.yaml").write_text("name: prod\n")
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    one = session()
    assert [one.spec().name, one.spec().name] == ["kit", "kit"]
    assert isinstance(one.terminal.err, io.StringIO)
    assert one.terminal.err.getvalue().count("kit -C .. …") == 1
    named = session(config_file="../kit.yaml")
    assert named.spec().name == "prod"
    assert isinstance(named.terminal.err, io.StringIO)
    assert named.terminal.err.getvalue() == ""
