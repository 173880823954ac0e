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
    "words", [[], ["hvd_check"], ["./a=b"], ["sh", "-c", "a && b"], ["echo", "a b"], ["python", "x;y"], [""], [" "]]
)
def test_other_commands_are_taken_verbatim(words: list[str]) -> None:
    check_command(words, verb="kit run")


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
