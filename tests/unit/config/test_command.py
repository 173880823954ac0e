"""A command that only a shell understands gets an error that says what to write."""

from __future__ import annotations

import pytest

from kit.config.command import check_command, flag_among
from kit.errors import InputError


@pytest.mark.parametrize(
    ("word", "write"),
    [
        ("a && b", "write: kit run -- sh -c 'a && b'"),
        ("a&&b", "write: kit run -- sh -c 'a&&b'"),
        ("ls | wc -l", "write: kit run -- sh -c 'ls | wc -l'"),
        ("echo 'x'; ls", """write: kit run -- sh -c 'echo '"'"'x'"'"'; ls'"""),
        ("cat>f", "write: kit run -- sh -c 'cat>f'"),
        ("A=1 python train.py", "write: kit run -- sh -c 'A=1 python train.py'"),
        ("python train.py --lr 0.1", "write: kit run -- python train.py --lr 0.1"),
        (" python 'my train.py' ", "write: kit run -- python 'my train.py'"),
        ("cd /data\nls", "write: kit run -- sh -c '…'"),
        ("x " * 200, "write: kit run -- sh -c '…'"),
    ],
)
def test_a_command_line_in_one_word_is_refused(word: str, write: str) -> None:
    with pytest.raises(InputError) as caught:
        check_command([word], verb="kit run")
    assert "is one word" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint == write


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["hvd_check"],
        ["./a=b"],
        ["sh", "-c", "a && b"],
        ["echo", "a b"],
        ["python", "x;y"],
        [" "],
        ["env", "A=1", "ls"],
        ["./a=b", "c"],
        ["A=1"],
    ],
)
def test_other_commands_are_taken_verbatim(words: list[str]) -> None:
    check_command(words, verb="kit run")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ([""], "the name of the program is an empty word", "if it is a variable of your shell, set it"),
        (["", "x"], "the name of the program is an empty word", "if it is a variable of your shell, set it"),
        (["KEY=s3cret", "python", "x.py"], "KEY=… would be the name of a program", "kit run -- env KEY=…"),
    ],
)
def test_a_command_without_a_program_is_refused(words: list[str], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        check_command(words, verb="kit run")
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_a_login_shell_sets_variables() -> None:
    check_command(["A=1", "env"], verb="kit ssh gpu1", in_shell=True)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["python", "x.py", "--np", "2"], "--np"),
        (["python", "x.py", "--lr", "1", "-np=2"], "-np"),
        (["python", "x.py", "--npx", "2", "np"], None),
        (["--np"], None),
        ([], None),
    ],
)
def test_a_flag_of_kit_after_the_program(words: list[str], flag: str | None) -> None:
    assert flag_among(words, {"-np", "--np"}) == flag
