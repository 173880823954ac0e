"""Arrays of waiting runs, and what the words for runs and arrays mean."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import until
from tests.fakes.line import Line

words: Any = launcher.load("kitqueue.words")


def run(name: str, queued: float = 0.0, of: str = "", index: int = 0) -> dict[str, Any]:
    array = {"array": {"of": of, "index": index, "size": 9}} if of else {}
    return {"id": name, "queued": queued, **array}


KNOWN = [run("ab1", 1.0), run("ab2", 4.0, "ac", 1), run("ab3", 3.0, "ac", 0), run("x", 2.0, "xyz")]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ab1", ("", ("ab1",))),
        ("ab2", ("", ("ab2",))),
        ("ac", ("ac", ("ab3", "ab2"))),
        ("ab", None),
        ("a", None),
        ("ab9", None),
        ("", None),
        # A whole id wins against the beginning of another one.
        ("x", ("", ("x",))),
        ("xy", ("xyz", ("x",))),
    ],
)
def test_what_a_word_means(word: str, meant: tuple[str, tuple[str, ...]] | None) -> None:
    assert words.meant(word, KNOWN) == meant


def test_the_latest_is_an_array_if_its_newest_run_belongs_to_one() -> None:
    assert words.latest(KNOWN) == ("ac", ("ab3", "ab2"))
    assert words.latest(KNOWN[:1]) == ("", ("ab1",))
    assert words.latest([]) is None
    # A run that never waited has only its start.
    assert words.latest([*KNOWN, {"id": "new", "started": 9.0}]) == ("", ("new",))


def test_the_latest_in_line_is_newer_than_what_has_started() -> None:
    old, new = run("old", 1.0), run("new", 3.0)
    assert words.latest_in_line([old, new], [run("between", 2.0)]) == new
    assert words.latest_in_line([old, new], []) == new
    # It has started since the line was read, or another run has started past the line.
    assert words.latest_in_line([old, new], [new]) is None
    assert words.latest_in_line([old, new], [{"id": "past", "started": 4.0}]) is None
    assert words.latest_in_line([], [old]) is None


@pytest.mark.parametrize("word", ["", "m9", "m", "latest"])
@pytest.mark.parametrize("how", ["ok", "failed", "any"])
def test_a_run_waits_for_no_other_that_nobody_knows(word: str, how: str) -> None:
    values = [] if word == "latest" else [run("m7", 1.0), run("m8", 2.0)]
    with pytest.raises(words.Unknown) as caught:
        words.groups([[word, how]], values)
    assert (caught.value.word, caught.value.known, caught.value.size) == (word, 0, 0)


def test_an_empty_word_means_no_run() -> None:
    assert words.meant("", [run("m7", 1.0)]) is None


def test_a_single_run_is_no_part_of_an_array_that_misses_runs() -> None:
    values = [run("m7", of="ac", index=7), run("z", 5.0)]
    assert words.groups([["z", "ok"], ["latest", "ok"]], values) == [["z", "ok", ["z"]]] * 2


def test_an_array_is_whole_whatever_else_is_known() -> None:
    larger = {"id": "n0", "queued": 1.0, "array": {"of": "ad", "index": 0, "size": 12}}
    members = [run(f"m{index}", of="ac", index=index) for index in range(9)]
    ((_, _, ids),) = words.groups([["ac", "ok"]], [run("z"), larger, *members])
    assert len(ids) == 9


@pytest.mark.parametrize("how", ["ok", "failed"])
def test_an_array_of_which_runs_are_missing_is_unknown(how: str) -> None:
    members = [run(f"m{index}", of="ac", index=index) for index in range(9)]
    assert words.groups([["ac", how]], members) == [["ac", how, [f"m{index}" for index in range(9)]]]
    for word in ("ac", "latest"):
        with pytest.raises(words.Unknown) as caught:
            words.groups([[word, how]], members[6:])
        assert (caught.value.word, caught.value.known, caught.value.size) == (word, 3, 9)
    # One of its runs, and all that are left, have a meaning.
    assert words.groups([["m7", how], ["ac", "any"]], members[6:]) == [
        ["m7", how, ["m7"]],
        ["ac", "any", ["m6", "m7", "m8"]],
    ]


def test_an_array_is_held_moved_and_removed_as_a_whole_or_singly(line: Line) -> None:
    (first,) = line.queue(line.entry(2, 2, 2))
    line.hosts_of(first)
    of, entries = line.array(3, 2, 2, 2)
    (single,) = line.queue(line.entry(2, 2, 2))
    members = list(line.queue(*entries))
    shown = line.ask("line")["line"]
    assert [entry.get("array") for entry in shown[1:]] == [{"of": of, "index": i, "size": 3} for i in range(3)]
    assert line.waits(single, "slots")

    answer = line.ask("change", id=of, how="first")
    assert (answer["members"], answer["living"], answer["others"]) == (members, [], [])
    assert line.waiting == [*members, single]
    assert line.waits(members[0], "slots")
    line.ask("change", id=of, how="last")
    assert line.waiting == [single, *members]

    line.ask("change", id=of, how="hold")
    line.ask("change", id=members[1], how="release")
    assert line.waits(members[0], "held")
    assert line.waits(members[1], "turn")

    assert line.ask("change", id=members[0], how="remove")["members"] == [members[0]]
    assert line.ask("change", id=of, how="remove")["members"] == members[1:]
    assert line.waiting == [single]
    assert line.ask("change", id=of, how="remove") == {"missing": of}


def test_the_runs_of_an_array_have_the_difference_of_their_code_on_the_disk_once(line: Line) -> None:
    _, entries = line.array(4, 2, 2, 2)
    for entry in entries:
        entry["request"]["info"]["code"] = {"digest": "", "dirty": True}
    first, second, third, last = line.queue(*entries, diff={"diff": "+x\n"})
    line.hosts_of(first)
    folder = line.head.runs / ".queue" / ".diffs"
    until(lambda: not (folder / first).exists())
    assert sorted(file.name for file in folder.iterdir()) == [second, third, last]
    assert len({file.stat().st_ino for file in folder.iterdir()}) == 1
    assert (line.head.runs / first / "code.diff").read_text() == "+x\n"
    assert "diff" not in line.record(first)["code"]
    line.ask("change", id=second, how="remove")
    line.let_go(first)
    line.let_go(third)
    line.hosts_of(last)
    assert (line.head.runs / last / "code.diff").read_text() == "+x\n"
    until(lambda: not [*folder.iterdir()])


def test_stop_and_attach_of_an_array(line: Line) -> None:
    of, entries = line.array(3, 2, 2, 2)
    living, *waiting = line.queue(*entries)
    line.hosts_of(living)
    assert line.record(living)["array"] == {"of": of, "index": 0, "size": 3}
    attach = line.head.door()
    assert attach.ask({"op": "attach", "id": of}) == {"array": of, "members": waiting, "living": [living]}
    assert attach.end()[0] == 4
    stop = line.ask("stop", id=of)
    assert (stop["removed"]["id"], stop["members"], stop["living"]) == (waiting[0], waiting, [living])
    # Nobody is in line any more. kit stops the others by their own ids.
    assert line.ask("stop", id=of) == {"removed": None, "members": [], "others": [], "living": [living]}
    line.let_go(living)


@pytest.mark.parametrize("how", ["ok", "any"])
def test_a_run_after_an_array_waits_for_all_of_it(line: Line, how: str) -> None:
    of, entries = line.array(2, 1)
    members = line.queue(*entries)
    (after,) = line.queue(line.entry(1, after=[[of, how]]))
    assert line.waits(after, "after")["ids"] == list(members)
    line.let_go(members[1])
    # The first one has not ended.
    until(lambda: line.waits(after, "after")["ids"] == [members[0]])
    line.let_go(members[0], 0 if how == "ok" else 3)
    line.let_go(after)


def test_one_failure_of_an_array_is_enough(line: Line) -> None:
    of, entries = line.array(2, 1)
    members = line.queue(*entries)
    ok, failed = line.queue(line.entry(1, after=[[of, "ok"]]), line.entry(1, after=[[of, "failed"]]))
    line.let_go(members[0], 3)
    assert line.waits(ok, "never")["ids"] == [members[0]]
    assert line.waits(failed, "after")["ids"] == [members[1]]
    line.let_go(members[1])
    line.let_go(failed)


def test_words_for_the_runs_that_a_run_waits_for(line: Line) -> None:
    (first,) = line.queue(line.entry(1, script="exit 0"))
    line.hosts_of(first)
    line.attached(first).story()
    everything = line.entry(2, 2, 2)
    of, entries = line.array(2, 1, held=True)
    # By the beginning of an id; and the newest; also one that comes in the same request.
    begin = line.entry(1, held=True, after=[[first[:-1], "ok"]])
    latest = line.entry(1, held=True, after=[["latest", "any"]])
    assert line.ask("queue", entries=[everything])["ahead"] == 0
    line.hosts_of(everything["id"])
    line.queue(begin)
    line.queue(*entries)
    assert line.ask("queue", entries=[latest])["ahead"] == 3
    same = line.entry(1, held=True, after=[[latest["id"], "any"], [of, "ok"]])
    line.queue(same)
    shown = {entry["id"]: entry["after"] for entry in line.ask("line")["line"]}
    assert shown[begin["id"]] == [[first, "ok"]]
    assert shown[latest["id"]] == [[of, "any"]]
    assert shown[same["id"]] == [[latest["id"], "any"], [of, "ok"]]

    before = line.waiting
    unknown = [line.entry(1), line.entry(1, after=[["99999999", "ok"]])]
    assert line.ask("queue", entries=unknown) == {"unknown": "99999999"}
    assert line.ask("queue", entries=[line.entry(1, after=[[line.head.stamp, "ok"]])]) == {"unknown": line.head.stamp}
    assert line.ask("queue", entries=[line.entry(1), begin]) == {"taken": [begin["id"]]}
    assert line.waiting == before


def test_a_word_for_a_run_in_line_and_another_means_neither(line: Line) -> None:
    living, _ = line.queue(line.entry(2, 2, 2), line.entry(1))
    line.hosts_of(living)
    door = line.head.door()
    assert door.ask({"op": "attach", "id": line.head.stamp}) == {"missing": line.head.stamp}
    line.let_go(living)
