"""Any text gives a valid value, or an InputError with a line of the file and a hint."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.config.fields import settings as fields
from kit.config.hostrange import RangeError, expand
from kit.config.hosts import parse_hosts, render_hosts
from kit.config.selection import select_hosts
from kit.config.settings import load_spec as load_spec_of_folder
from kit.config.validate import spec_from, values_of
from kit.config.yaml import load_spec
from kit.errors import InputError, InputErrors
from kit.model.host import Inventory

# A folder that has no kit.yaml.
NO_FILES = Path("/proc")
MODERATE = settings(max_examples=250)

HOST_WORDS = r"""
    n1 10.0.0.1 gpu[01-03] gpu[3-1] u@n2 slots=2 slots=0 max_slots=4 port=22 user=u key=~/k name=a name=b[1-3]
    internal=10.9.9.1 internal=10.9.8.[1-3] n1:4 = [ ] # // /* */ " key="a @ :: ::1 rank 0=n ^n , -
"""
YAML_VALUES = r"""
    yes | no | null | ~ | 010 | 1:30 | 1.5 | 1e3 | -1 | 33 | auto | [a, b] | [1, yes, ~] | {a: b} | {A: 1, A: 2} | 'x
    | "\x00" | !!int x | !t x | &a [*a] | *a | 2001-01-01 | 10.0.0.0/8 | 0.0.0.0/0 | /a:/b | [/a:/b, ~/c:/d] | 8gb
    | ssh-layer | [[[[ | >- | x: y | @ | % | .inf | 0x1F | 1_000 | a b | name: kit | [tensorflow] | 'a b' | "4096"
    | core | unlimited | true | default | /a/b:/c:ro | cpu | .nan | ''
"""

words = st.sampled_from([*HOST_WORDS.split(), "\ufeff", "\u2028"])
host_lines = st.lists(st.lists(words, max_size=5).map(" ".join), max_size=8).map("\n".join)
yaml_keys = st.sampled_from([*{f.key for f in fields().values()}, "nmae", "on", "1", "? x", "<<", "&a", "*a", "- "])
yaml_values = st.sampled_from([value.strip() for value in YAML_VALUES.split("|")])
yaml_lines = st.tuples(st.sampled_from(["", "  ", "\t", "- "]), yaml_keys, yaml_values).map(
    lambda parts: f"{parts[0]}{parts[1]}: {parts[2]}"
)
yaml_files = st.lists(yaml_lines, max_size=8).map("\n".join)


def check(error: InputError, text: str) -> None:
    last = max(1, len(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")))
    for problem in error.problems if isinstance(error, InputErrors) else (error,):
        assert problem.message
        assert problem.hint
        assert str(problem).isprintable()
        assert problem.hint.isprintable()
        assert problem.line is not None
        assert 1 <= problem.line <= last


@MODERATE
@given(st.one_of(st.text(max_size=200), host_lines))
def test_any_hosts_file(text: str) -> None:
    try:
        inventory = parse_hosts(text, source="hosts")
    except InputError as error:
        check(error, text)
        return
    assert inventory.hosts
    assert len({name.lower() for name in inventory.names}) == len(inventory.hosts)
    assert all(name.isprintable() and "/" not in name for name in inventory.names)
    again = parse_hosts(render_hosts(inventory), source="hosts")
    assert fields_without_lines(again) == fields_without_lines(inventory)


def fields_without_lines(inventory: Inventory) -> list[tuple[object, ...]]:
    """Return all fields but the line, which changes when a file is rendered."""
    return [(h.name, h.address, h.slots, h.user, h.port, h.key, h.internal) for h in inventory.hosts]


labels = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)


@MODERATE
@given(
    st.lists(
        st.tuples(
            labels,
            st.none() | st.integers(1, 4096),
            st.none() | st.integers(1, 65535),
            st.none() | st.from_regex(r"[a-zA-Z0-9~./ #='-]{1,12}", fullmatch=True).map(str.strip).filter(bool),
        ),
        min_size=1,
        max_size=6,
        unique_by=lambda row: row[0],
    )
)
def test_a_rendered_inventory_parses_to_itself(rows: list[tuple[str, int | None, int | None, str | None]]) -> None:
    lines = [
        address
        + (f" slots={slots}" if slots else "")
        + (f" port={port}" if port else "")
        + (f' key="{key}"' if key else "")
        for address, slots, port, key in rows
    ]
    text = "\n".join(lines)
    try:
        inventory = parse_hosts(text, source="hosts")
    except InputError as error:
        check(error, text)  # a key such as name=x reads like a forgotten value
        assert any(key and "=" in key for _, _, _, key in rows)
        return
    assert [(h.address, h.slots, h.port, h.key) for h in inventory.hosts] == rows
    assert fields_without_lines(parse_hosts(render_hosts(inventory), source="hosts")) == fields_without_lines(inventory)


@MODERATE
@given(
    st.lists(
        st.tuples(labels, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), min_size=1, max_size=3)),
        min_size=1,
        max_size=2,
    ),
    st.integers(1, 4),
)
def test_a_range_is_what_reading_it_by_hand_gives(parts: list[tuple[str, list[tuple[int, int]]]], width: int) -> None:
    word, choices = "", []
    for label, runs in parts:
        inside, numbers = [], []
        for low, extra in runs:
            first = str(low).zfill(width)
            inside.append(f"{first}-{str(low + extra).zfill(len(first))}" if extra else first)
            for number in range(low, low + extra + 1):
                numbers.append(str(number).zfill(len(first)))
        if len(set(numbers)) < len(numbers):
            with pytest.raises(RangeError):
                expand(f"{label}[{','.join(inside)}]", most=10_000)
            return
        word += f"{label}[{','.join(inside)}]"
        choices.append([label + number for number in numbers])
    assert expand(word, most=10_000) == ["".join(names) for names in itertools.product(*choices)]


@MODERATE
@given(st.one_of(st.text(max_size=200), yaml_files))
def test_any_kit_yaml(text: str) -> None:
    try:
        spec = load_spec(text, source="kit.yaml")
    except InputError as error:
        check(error, text)
        return
    assert spec_from(values_of(spec)) == spec


@MODERATE
@given(
    st.dictionaries(
        st.sampled_from([path for path, f in fields().items() if not f.is_section]),
        st.one_of(st.none(), st.text(max_size=20), st.integers(), st.booleans(), yaml_values),
        max_size=4,
    )
)
def test_any_flags(flags: dict[str, object]) -> None:
    try:
        spec = load_spec_of_folder(NO_FILES, flags=flags, environ={})
    except InputErrors as error:
        for problem in error.problems:
            assert problem.hint
            assert problem.file is None
            assert problem.message.startswith("--")
        return
    assert spec_from(values_of(spec)) == spec


@MODERATE
@given(
    st.dictionaries(st.sampled_from(sorted(f.variable for f in fields().values() if f.variable)), st.text(max_size=20))
)
def test_any_environment(environ: dict[str, str]) -> None:
    try:
        load_spec_of_folder(NO_FILES, flags={}, environ=environ)
    except InputErrors as error:
        for problem in error.problems:
            assert problem.hint
            assert problem.message.startswith("KIT_")


@MODERATE
@given(st.one_of(st.text(max_size=40), st.lists(words, max_size=4).map(",".join)))
def test_any_selection(wanted: str) -> None:
    inventory = parse_hosts("n1\ngpu[01-03]\n", source="hosts")
    with contextlib.suppress(InputError):
        assert set(select_hosts(inventory, wanted).names) <= set(inventory.names)
