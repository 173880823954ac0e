"""Session: settings that a verb fixes, results as text or JSON after the progress, and confirmations."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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


def session(*, inp: str = "", tty: bool = False, **args: Any) -> Session:
    stream = Tty if tty else io.StringIO
    terminal = Terminal(out=stream(), err=stream(), inp=stream(inp), environ={})
    given = {"output": None, "folder": None, "hosts_file": None, "config_file": None, "yes": False} | args
    return Session(args=SimpleNamespace(**given), terminal=terminal, reporter=Watched(terminal), environ={})


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
