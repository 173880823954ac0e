"""Alters valid answers of other machines. Each alteration is deterministic: the same samples give the same answers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from random import Random
from typing import Any

import hypothesis
from hypothesis import strategies

Alteration = Callable[[], bytes]

# Text that a terminal or a parser could act on.
CONTROLS = (
    b"\x00", b"\x07", b"\x08", b"\r", b"\n", b"\n\n", b"\x0b", b"\x1b[2J", b"\x1b[31m", b"\x1b]0;title\x07",
    b"\x1b]52;c;aGk=\x07", b"\x7f", b"\x85", b"\x9b2J", b"\xff\xfe", b"\xc2\x9b2J", b"\xe2\x80\xae", b"\xe2\x80\xa8",
    b"\xed\xa0\x80", b"\xf0\x9f\x92\xa5", b" ", b"\t", b"\x1e",
)  # fmt: skip
# Lines that open sections, or that end a protocol too early or twice.
LINES = (b"@@ ", b"@@ x", b"@@ yes", b"@@ \xff", b"end", b"{}", b"[]", b"null", b"kit-lock \xff", b"", b" ", b"-", b"=")
NUMBERS = (
    b"", b"-", b"-1", b"0", b"00", b"-0", b"1.5", b"1e999", b"-1e999", b"NaN", b"Infinity", b"2147483648",
    b"%d" % 2**40, b"%d" % 2**63, b"%d" % 2**64, b"1" + b"0" * 400, b"9" * 5000, "40960²".encode(), "٣".encode(),
    b"1_0", b"+1", b"0x10", b"256.1.1.1/33", b"x",
)  # fmt: skip
# JSON for any place. These are texts, because json.dumps writes no `1e999` and cannot nest 30,000 levels.
VALUES = (
    "null", "true", "false", "0", "-1", "1.5", "1e999", "-1e999", "NaN", str(2**40), str(2**63), "1" + "0" * 400,
    "9" * 5000, '""', '"x"', '"²"', r'"\u001b]52;c;aGk=\u0007"', r'"\u202e"', r'"\ud800"', r'"\u0000"', r'"a\nb"',
    '"@@ x"', '"../../../../etc/cron.d/x"', '"-oProxyCommand=x"', '"' + "x" * 5000 + '"', "[]", "{}", "[[]]", "[{}]",
    "[null]", "[1]", '["x"]', '{"x":1}', "[" * 30000, "[" * 30000 + "]" * 30000, '{"x":' * 2000 + "1" + "}" * 2000,
    "[" + "0," * 50000 + "0]",
)  # fmt: skip
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_WORD = re.compile(rb"[^\s]+")
# Large answers cost the time of hundreds of small ones: there are only these, of the first sample.
_HUGE = 2 * 2**20
_ENDLESS = 20 * 2**20
# Share of the answers that Hypothesis makes.
_SHARE = 0.2


def answers(name: str, samples: Sequence[bytes], count: int) -> Iterator[bytes]:
    """Yield `count` altered answers. `name` is the seed. The first ones are the samples themselves."""
    chance = Random(f"kit fuzz {name}")  # noqa: S311
    drawn = _drawn(samples, int(count * _SHARE))
    kinds = [_structured(samples, chance), _random(samples, chance)]
    grammar = islice(_merged(kinds), max(0, count - len(drawn) - len(samples)))
    yield from samples[:count]
    for alteration in grammar:
        yield alteration()
    yield from drawn[: max(0, count - len(samples))]


def _merged(kinds: Sequence[Iterator[Alteration]]) -> Iterator[Alteration]:
    """Yield from all in turn, until the last has no more."""
    for row in zip_longest(*kinds):
        yield from (alteration for alteration in row if alteration is not None)


def _structured(samples: Sequence[bytes], chance: Random) -> Iterator[Alteration]:
    """Yield each alteration of each place once, in a random order, with the huge ones first."""
    yield from _huge(samples[0])
    places = [alteration for sample in samples for alteration in (*_text(sample), *_json(sample))]
    chance.shuffle(places)
    yield from places


def _huge(sample: bytes) -> Iterator[Alteration]:
    yield lambda: b""
    yield lambda: b"\n"
    yield lambda: sample.rstrip(b"\n")
    yield lambda: sample * 2
    yield lambda: sample * max(2, _HUGE // max(1, len(sample)))
    yield lambda: sample + b"x" * _ENDLESS
    yield lambda: b"x" * _HUGE + sample
    yield lambda: b"\n" * _HUGE + sample
    yield lambda: b"[" * 30000
    yield lambda: b'{"a":' * 30000


def _text(sample: bytes) -> Iterator[Alteration]:
    """Yield alterations of numbers, words and lines."""

    def put(start: int, end: int, new: bytes) -> Alteration:
        return lambda: sample[:start] + new + sample[end:]

    for match in _NUMBER.finditer(sample):
        yield from (put(*match.span(), new) for new in NUMBERS)
    for match in _WORD.finditer(sample):
        start, end = match.span()
        yield from (put(start, end, new) for new in (b"", b"-", b"'", b'"', b"x " * 5000))
        yield put(end, end, b" x")
    start = 0
    for line in sample.splitlines(keepends=True):
        end = start + len(line)
        yield put(start, end, b"")
        yield put(start, end, line * 2)
        yield put(start, end, line * 1000)
        yield put(start, len(sample), b"")
        yield put(start, len(sample), line[: len(line) // 2])
        yield from (put(start, start, new + b"\n") for new in LINES)
        yield from (put(start, end, new + b"\n") for new in LINES)
        start = end


def _json(sample: bytes) -> Iterator[Alteration]:
    """Yield alterations of every value of JSON in a sample: the whole sample, a line, or the end of a line."""
    for start, end, value in _documents(sample):
        for path in _paths(value):
            here = _at(value, path)

            # Made only when its turn comes: all of them together may be gigabytes.
            def put(text: Callable[[], str], place: _Place = (start, end, value, path)) -> Alteration:
                return lambda: _with_text(sample, place, text())

            yield from (put(lambda text=text: text) for text in VALUES)  # type: ignore[misc]
            yield from (put(change) for change in _changes(here))


_Place = tuple[int, int, Any, tuple[Any, ...]]


def _with_text(sample: bytes, place: _Place, text: str) -> bytes:
    """Return the sample with this JSON text in one place."""
    start, end, value, path = place
    hole = json.dumps(_with(value, path, _HOLE)).replace(f'"{_HOLE}"', text)
    return sample[:start] + hole.encode() + sample[end:]


def _changes(here: Any) -> Iterator[Callable[[], str]]:
    """Yield what makes other JSON texts of a value: nested, doubled, with a key missing or new, shorter, long."""
    yield lambda: json.dumps([here])
    yield lambda: json.dumps([here, here])
    if isinstance(here, dict):
        yield lambda: json.dumps(here | {"new": {"x": [1]}})
        yield lambda: json.dumps(here | {"\x1b[2J": "\x1b[2J"})
        for key in here:
            yield lambda key=key: json.dumps({name: here[name] for name in here if name != key})  # type: ignore[misc]
    if isinstance(here, list) and here:
        yield lambda: json.dumps(here[:-1])
        yield lambda: json.dumps(here * 1000)


def _documents(sample: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (start, end, value) of each JSON object or array that ends where the sample or a line ends."""
    with contextlib.suppress(ValueError):
        yield 0, len(sample), json.loads(sample)
        return
    start = 0
    for line in sample.splitlines(keepends=True):
        opening = re.search(rb"[\[{]", line)
        if opening:
            text = line[opening.start() :].rstrip(b"\r\n")
            with contextlib.suppress(ValueError):
                yield start + opening.start(), start + opening.start() + len(text), json.loads(text)
        start += len(line)


_HOLE = "the altered place"
Path = tuple[Any, ...]


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _paths(part, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy


def _random(samples: Sequence[bytes], chance: Random) -> Iterator[Alteration]:
    """Yield random alterations without end."""
    while True:
        sample = chance.choice(samples)
        seeds = [chance.random() for _ in range(chance.choice((1, 1, 2, 5)))]
        yield lambda sample=sample, seeds=seeds: _shaken(sample, seeds)  # type: ignore[misc]


def _shaken(sample: bytes, seeds: Sequence[float]) -> bytes:
    for seed in seeds:
        chance = Random(seed)  # noqa: S311
        sample = changed(
            sample, chance.randrange(len(CHANGES)), chance.random(), chance.random(), chance.randrange(1 << 16)
        )
    return sample


# What happens to bytes from `start` to `end`; `number` chooses among several.
Change = Callable[[bytes, int, int, int], bytes]
CHANGES: tuple[Change, ...] = (
    lambda data, start, end, number: data[:start] + bytes([data[start] ^ (1 << number % 8)]) + data[start + 1 :],
    lambda data, start, end, number: data[:start] + bytes([number % 256]) + data[start + 1 :],
    lambda data, start, end, number: data[:start],
    lambda data, start, end, number: data[start:],
    lambda data, start, end, number: data[:start] + data[end:],
    lambda data, start, end, number: data[:end] + data[start:end] * (number % 20) + data[end:],
    lambda data, start, end, number: data[:start] + CONTROLS[number % len(CONTROLS)] + data[start:],
    lambda data, start, end, number: data[:start] + b"\n" + LINES[number % len(LINES)] + b"\n" + data[start:],
    lambda data, start, end, number: data[:start] + NUMBERS[number % len(NUMBERS)] + data[end:],
    lambda data, start, end, number: data[:start] + VALUES[number % len(VALUES)].encode() + data[end:],
    lambda data, start, end, number: data[start:end] + data[:start] + data[end:],
)


def changed(data: bytes, change: int, at: float, length: float, number: int) -> bytes:
    """Return the bytes after one change. `at` and `length` are shares of the whole and of what follows, 0.0 to 1.0."""
    if not data:
        return CONTROLS[number % len(CONTROLS)]
    start = min(int(at * len(data)), len(data) - 1)
    # Mostly short pieces.
    end = min(len(data), start + 1 + int((len(data) - start) * length**4))
    return CHANGES[change](data, start, end, number)


def _drawn(samples: Sequence[bytes], count: int) -> list[bytes]:
    """Return what Hypothesis makes of the samples: changes in sequence, and other bytes."""
    drawn: list[bytes] = []
    share = strategies.floats(0, 1)
    change = strategies.tuples(strategies.integers(0, len(CHANGES) - 1), share, share, strategies.integers(0, 65535))

    @hypothesis.settings(
        max_examples=max(1, count),
        database=None,
        deadline=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategies.sampled_from(range(len(samples))), strategies.lists(change, max_size=6))
    def draw(which: int, changes: list[tuple[int, float, float, int]]) -> None:
        data = samples[which]
        for one in changes:
            data = changed(data, *one)[:_HUGE]
        drawn.append(data)

    if count and samples:
        draw()
    return drawn[:count]
