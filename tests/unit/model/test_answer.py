"""What another machine answers is decoded within limits, or it is that host's error."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from kit.errors import AnswerError
from kit.model.answer import MOST, OddAnswer, answer_of, beginning, decode, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    id: str
    size: int = 0


def test_a_dataclass_is_a_form_and_unknown_keys_are_ignored() -> None:
    assert decode(b'{"id":"a","size":3,"new":[1]}', Row) == Row(id="a", size=3)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"id":1}',
        b'{"id":"a","size":"3"}',
        b'{"id":"a","size":1e400}',
        b'{"id":"\xff"}',
        b'{"id":"a","size":' + b"9" * 5000 + b"}",
        b'{"id":"a","other":' + b"[" * 30000 + b"}",
        b"[" * 30000,
    ],
)
def test_an_answer_that_does_not_fit_is_odd(answer: bytes) -> None:
    with pytest.raises(OddAnswer) as odd:
        decode(answer, Row)
    assert len(str(odd.value)) < 300


def test_an_answer_beyond_its_limit_is_not_decoded() -> None:
    with pytest.raises(OddAnswer, match="more than 10 bytes"):
        decode(b'{"id":"abcdef"}', Row, most=10)


@pytest.mark.parametrize("word", ["", "x", "-1", "40960²", "٣", "1.5", "9" * 5000, str(MOST + 1), "1\n"])
def test_only_ascii_digits_within_the_limits_are_a_number(word: str) -> None:
    with pytest.raises(OddAnswer):
        number(word)


def test_a_number_has_the_limits_that_its_reader_gives() -> None:
    assert number("-7", least=-10) == -7
    with pytest.raises(OddAnswer, match="between 1 and 5"):
        number("6", least=1, most=5)


def test_the_beginning_of_an_answer_is_short_and_escaped() -> None:
    assert beginning(b"\x1b]52;c;aGk=\x07" + b"x" * 100) == "'\\x1b]52;c;aGk=\\x07" + "x" * 48 + "'…"
    assert beginning(b"\xff\xfe") == "'\\xff\\xfe'"


def test_a_decoders_own_message_is_short_and_escaped() -> None:
    """It may quote the answer, as msgspec does with a key of a wrong type."""
    for answer in (b"", b"{"):
        text = str(OddAnswer("no field `\x1b[2J\u202e" + "x" * 500, answer))
        assert text.isprintable()
        assert len(text) < 300


def test_an_odd_answer_is_an_error_of_its_host() -> None:
    with (
        pytest.raises(AnswerError, match=r"gpu7: kit cannot read its record: .*'\\x1b\[2J'") as error,
        answer_of("gpu7", "its record"),
    ):
        decode("\x1b[2J", Row)
    assert error.value.exit_code == 4


FIRST_USE = """
import sys, threading
from dataclasses import make_dataclass
from kit.model.answer import convert, decode

sys.setswitchinterval(1e-6)
fields = [(f"a{number}", int, 0) for number in range(30)]


def first_use(use):
    inner = make_dataclass("Inner", fields, frozen=True)
    outer = make_dataclass("Outer", [("one", inner), ("more", list[inner]), *fields], frozen=True)
    gate = threading.Barrier(8)

    def work():
        gate.wait()
        use(outer)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


for _ in range(30):
    first_use(lambda form: decode(b'{"one":{"a1":3},"more":[{"a2":1}]}', form))
    first_use(lambda form: convert({"one": {"a1": 3}, "more": [{"a2": 1}]}, form))
"""


def test_threads_may_use_a_form_for_the_first_time_together() -> None:
    """Without the lock, msgspec ends this process with a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("form", ["bytes", "str"])
def test_half_a_surrogate_pair_is_text_and_a_pair_is_its_character(form: str) -> None:
    text = json.dumps({"id": "caf\udce9 \\udce9 \N{GRINNING FACE} \ud83d"})
    expected = Row(id="caf\\udce9 \\udce9 \N{GRINNING FACE} \\ud83d")
    assert decode(text.encode() if form == "bytes" else text, Row) == expected
