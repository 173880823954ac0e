"""Settings put into the text of a kit.yaml: every other byte stays, and what comes out is what was meant."""

from __future__ import annotations

import difflib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kit.config.edit import MARK, NewSetting, edited, tuned, value_of
from kit.config.sample import sample_config
from kit.config.yaml import load_spec
from kit.errors import InputError, InputErrors
from kit.model.values import replace

ARGS = NewSetting(section="mpi", key="args", value="--mca coll_tuned_use_dynamic_rules 1", reason="a ring is faster")
BIND = NewSetting(section="mpi", key="bind_to", value="socket", reason="two sockets")
OMP = NewSetting(section="env", key="OMP_NUM_THREADS", value="4", reason="8 cores: 2 ranks")
ALL = (ARGS, BIND, OMP)
NETWORK = NewSetting(section="", key="network", value="10.1.0.0/24", reason="118.0 MB/s: ten times as fast")

BY_HAND = """\
# mine, and it stays
name:   resnet          # a comment behind
env:
    A: '1'   # quoted
    ODD: 010
    V: 1.10

    # between

mpi: # words for mpirun
    yield_when_idle:  true
volumes:
- /data:/data:ro
-   /x:/y
command: [sh, -c,
          "echo  two  spaces"]
# the end"""


def changes(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that went and lines that came."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return [line[2:] for line in lines if line[:2] == "- "], [line[2:] for line in lines if line[:2] == "+ "]


@pytest.mark.parametrize(
    "text", [BY_HAND, sample_config(), "", "\n# nothing\n", "name: a\nmpi:\n", "env: {}  # none\n"]
)
def test_nothing_goes_and_what_comes_is_what_was_requested(text: str) -> None:
    after = edited(text, ALL, source="kit.yaml")
    gone, come = changes(text, after)
    assert gone in ([], ["env: {}  # none"])
    assert [line.strip() for line in come if MARK in line] == sorted(
        (f"{MARK}{entry.reason}" for entry in ALL), key=after.index
    )
    spec, before = load_spec(after, source="kit.yaml"), load_spec(text, source="kit.yaml")
    assert spec.mpi.args == ("--mca", "coll_tuned_use_dynamic_rules", "1")
    assert (spec.mpi.bind_to, spec.env) == ("socket", {**before.env, "OMP_NUM_THREADS": "4"})
    assert replace(spec, mpi=before.mpi, env=before.env) == before
    assert tuned(after) == {"mpi.args", "mpi.bind_to", "env.OMP_NUM_THREADS"}
    assert edited(after, ALL, source="kit.yaml") == after


def test_what_tune_wrote_before_is_written_over_with_its_reason_and_nothing_else() -> None:
    long = NewSetting(section="mpi", key="args", value="--mca a b", reason="many words " * 40)
    first = edited(BY_HAND, (long, OMP), source="kit.yaml")
    assert max(map(len, first.splitlines())) <= 120
    second = edited(first, (ARGS,), source="kit.yaml")
    assert second == edited(edited(BY_HAND, (OMP,), source="kit.yaml"), (ARGS,), source="kit.yaml")
    assert "many words" not in second


def test_a_value_of_several_lines_is_replaced_whole() -> None:
    text = "mpi:\n  args:\n    - --mca\n    - a\n    - b\n  bind_to: none\n"
    after = edited(text, (ARGS,), source="kit.yaml")
    assert yaml.safe_load(after)["mpi"] == {"args": ARGS.value, "bind_to": "none"}
    text = "mpi:\n  args:\n  - --mca\n  - a\n  - b\n  bind_to: none\n"
    assert yaml.safe_load(edited(text, (ARGS,), source="kit.yaml"))["mpi"] == {"args": ARGS.value, "bind_to": "none"}


def test_a_line_of_a_person_is_no_line_of_tunes() -> None:
    after = edited(BY_HAND, ALL, source="kit.yaml")
    assert tuned(BY_HAND) == frozenset()
    assert tuned(after.replace(f"{MARK}two sockets", "# because I want it")) == {"mpi.args", "env.OMP_NUM_THREADS"}


def test_ends_of_lines_stay_as_they_are() -> None:
    after = edited(BY_HAND.replace("\n", "\r\n"), ALL, source="kit.yaml")
    assert after.count("\n") == after.count("\r\n")
    assert after == edited(BY_HAND, ALL, source="kit.yaml").replace("\n", "\r\n")


@pytest.mark.parametrize(
    "text",
    ["env: {A: b,\n  C: d}\n", "env: &a {A: b}\n", "env: [A]\n", "{name: a}\n", '"env":\n  A: b\n', "name: a\n...\n"],
)
def test_a_file_that_lines_cannot_be_added_to_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        edited(text, (OMP,), source="kit.yaml")
    assert not isinstance(caught.value, InputErrors)
    # A line that the file has.
    assert (caught.value.line or 1) <= text.count("\n")


def test_a_section_on_one_line_gets_lines_with_the_same_words() -> None:
    text = 'mpi: {args: "-x \'NOTE=a b\'", bind_to: none}  # mine\nenv: {ODD: 010, B: "1, 2"}\n'
    after = edited(text, (OMP, ARGS), source="kit.yaml")
    assert "mpi:  # mine\n" in after
    assert '\n  ODD: 010\n  B: "1, 2"\n' in after
    spec, before = load_spec(after, source="kit.yaml"), load_spec(text, source="kit.yaml")
    assert spec.env == {**before.env, "OMP_NUM_THREADS": "4"}
    assert spec.mpi.bind_to == "none"
    assert before.mpi.args == ("-x", "NOTE=a b")
    assert spec.mpi.args == ("--mca", "coll_tuned_use_dynamic_rules", "1")


def test_a_file_that_is_already_wrong_is_refused() -> None:
    with pytest.raises(InputErrors):
        edited("nmae: x\n", (), source="kit.yaml")


@pytest.mark.parametrize(
    "text", [BY_HAND, sample_config(), "", "\n# nothing\n", "name: a\nmpi:\n", "env: {}  # none\n", "name: a\n\n"]
)
def test_a_key_at_the_top_comes_behind_all_that_is_there(text: str) -> None:
    after = edited(text, (NETWORK,), source="kit.yaml")
    gone, come = changes(text, after)
    assert gone == []
    assert [line for line in come if line] == [f"{MARK}{NETWORK.reason}", "network: 10.1.0.0/24"]
    assert after.startswith(text)
    spec, before = load_spec(after, source="kit.yaml"), load_spec(text, source="kit.yaml")
    assert spec == replace(before, network="10.1.0.0/24")
    assert tuned(after) == {"network"}
    assert value_of(after, "network", source="kit.yaml") == "10.1.0.0/24"
    assert edited(after, (NETWORK,), source="kit.yaml") == after
    both = edited(after, (NETWORK, *ALL), source="kit.yaml")
    assert tuned(both) == {"network", "mpi.args", "mpi.bind_to", "env.OMP_NUM_THREADS"}
    assert edited(both, (NETWORK, *ALL), source="kit.yaml") == both


def test_a_key_at_the_top_is_overwritten_in_its_place() -> None:
    text = "name: a\n# mine\nnetwork:  auto   # as it comes\nenv:\n  network: mine\n"
    after = edited(text, (NETWORK,), source="kit.yaml")
    mark = f"{MARK}{NETWORK.reason}\n"
    assert after == f"name: a\n# mine\n{mark}network: 10.1.0.0/24\nenv:\n  network: mine\n"
    long = NewSetting(section="", key="network", value="10.2.0.0/24", reason="many words " * 40)
    again = edited(after, (long,), source="kit.yaml")
    assert max(map(len, again.splitlines())) <= 120
    assert again.count(MARK) == 1
    assert edited(again, (NETWORK,), source="kit.yaml") == after
    folded = edited("network:\n  10.0.0.0/8\nname: a\n", (NETWORK,), source="kit.yaml")
    assert folded == f"{mark}network: 10.1.0.0/24\nname: a\n"


def test_a_key_at_the_top_is_a_persons_without_the_mark() -> None:
    after = edited(BY_HAND, (NETWORK,), source="kit.yaml")
    assert tuned(after.replace(f"{MARK}{NETWORK.reason}\n", "")) == frozenset()
    assert tuned(after.replace("network: 10.1.0.0/24", "")) == frozenset()


def test_ends_of_lines_stay_at_the_top_too() -> None:
    after = edited(BY_HAND.replace("\n", "\r\n"), (NETWORK,), source="kit.yaml")
    assert after == edited(BY_HAND, (NETWORK,), source="kit.yaml").replace("\n", "\r\n")
    assert tuned(after) == {"network"}
    assert edited(after, (NETWORK,), source="kit.yaml") == after


@pytest.mark.parametrize("text", ["{name: a}\n", '"network": auto\n', "name: a\n...\n", "\ufeffnetwork: auto\n"])
def test_a_file_that_no_key_can_be_put_into_is_refused(text: str) -> None:
    with pytest.raises((InputError, InputErrors)):
        edited(text, (NETWORK,), source="kit.yaml")


def test_what_is_to_be_added_by_hand_is_named_as_kit_yaml_has_it() -> None:
    with pytest.raises(InputError) as refused:
        edited('"network": auto\n"env":\n  A: b\n', (NETWORK, OMP), source="kit.yaml")
    assert refused.value.hint is not None
    assert "network: 10.1.0.0/24" in refused.value.hint


def test_what_is_at_a_place() -> None:
    assert value_of(BY_HAND, "env.ODD", source="k") == "010"
    assert value_of(BY_HAND, "mpi.args", source="k") is None
    assert value_of("", "mpi.args", source="k") is None
    assert value_of(BY_HAND, "name", source="k") == "resnet"
    assert value_of(BY_HAND, "network", source="k") is None


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Z_]{0,6}", fullmatch=True),
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
    ),
    st.booleans(),
)
def test_any_environment_stays(env: dict[str, str], first: bool) -> None:
    env.pop("OMP_NUM_THREADS", None)
    parts = ["env:\n" + "".join(f"  {name}: {json.dumps(value)}\n" for name, value in env.items()), "name: a\n"]
    text = "".join(parts if first else reversed(parts))
    if not env:
        return
    spec = load_spec(edited(text, ALL, source="k"), source="k")
    assert spec.env == {**env, "OMP_NUM_THREADS": "4"}
