"""What a file about a bug says, which people attach to public issues: no secret of the one who ran kit."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.cli import bugs

SECRET = "hunter2-correct-horse"


def text_of(error: BaseException, words: Sequence[str], tmp_path: Path, **environ: str) -> str:
    path = bugs.write(error, words, {"XDG_CACHE_HOME": str(tmp_path), **environ})
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.read_text()


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


COMMANDS = [
    ("run", "--np", "2", "--", "python3", "train.py", SECRET),
    ("run", "--np", "2", "python3", "train.py", "--token", SECRET),
    ("run", "-x", f"TOKEN={SECRET}", "--np", "2", "train"),
    ("run", f"-xTOKEN={SECRET}", "--np", "2", "train"),
    ("run", "--env", f"TOKEN={SECRET}", "train"),
    ("exec", "gpu1", "--", "curl", f"https://ann:{SECRET}@example.com/x"),
    ("ssh", "gpu1", "--", "echo", SECRET),
    ("local", "--", "sh", "-c", f"A={SECRET} x"),
    ("run", "--code", f"git+https://ann:{SECRET}@example.com/x@main", "--", "x"),
    ("run", "--code", f"git+https://{SECRET}@example.com/x@main", "--", "x"),
    ("run", "--code", f"git+https://example.com/x?access={SECRET}", "--", "x"),
    ("deploy", f"--password={SECRET}"),
    ("deploy", "--password", SECRET),
    ("deploy", f"--registry=https://ann:{SECRET}@r.example.com"),
    ("bogus", SECRET, SECRET, "--x"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_secret_of_the_command_line(words: Sequence[str], tmp_path: Path) -> None:
    if words[0] == "bogus":
        words = [*words[:1], "--", *words[1:]]
    text = text_of(raised(ValueError("x")), words, tmp_path)
    assert SECRET not in text
    assert words[0] in text


MESSAGES = [
    f"cannot open https://ann:{SECRET}@example.com/x",
    f"git clone https://{SECRET}@example.com/x failed",
    f"GET https://example.com/x?sig={SECRET}&a=b",
    f"Authorization: Basic {SECRET}",
    f"authorization: bearer {SECRET}",
    f"login(user='ann', password='{SECRET}')",
    f'{{"token": "{SECRET}"}}',
    f"--password {SECRET}",
    f"--api-key={SECRET}",
    f"the passphrase: {SECRET}",
]


@pytest.mark.parametrize("message", MESSAGES)
def test_no_secret_that_software_prints(message: str, tmp_path: Path) -> None:
    text = text_of(raised(RuntimeError("outer"), raised(ValueError(message))), ["ps"], tmp_path)
    assert SECRET not in text
    assert "RuntimeError: outer" in text
    assert "ValueError" in text


def test_no_value_of_a_variable_and_no_word_of_the_command_in_a_message(tmp_path: Path) -> None:
    error = raised(KeyError(f"a {SECRET} b abc /home/ann/data secretive-word"))
    words = ["run", "-x", "SHORT=abc", "--", "secretive-word"]
    text = text_of(error, words, tmp_path, MY_VALUE=SECRET, HOME="/home/ann")
    assert SECRET not in text
    assert "a $MY_VALUE b … $HOME/data …" in text


def test_what_a_bug_needs_stays(tmp_path: Path) -> None:
    words = ["-C", "lab", "run", "--np", "2", "--hosts", "gpu[1-2]", "--", "a", "b"]
    text = text_of(raised(ValueError("41 is odd")), words, tmp_path)
    assert "['-C', 'lab', 'run', '--np', '2', '--hosts', 'gpu[1-2]', '--', '(2 more words)']" in text
    assert "ValueError: 41 is odd" in text
    assert "in raised" in text
    assert "raise error from cause" in text


def test_a_chain_that_never_ends(tmp_path: Path) -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    text = text_of(one, ["ps"], tmp_path)
    assert text.index("two") < text.index("one")


def test_the_folder_is_yours_alone(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "cache"
    text_of(raised(ValueError("x")), ["ps"], cache)
    assert stat.S_IMODE((cache / "kit").stat().st_mode) == 0o700
