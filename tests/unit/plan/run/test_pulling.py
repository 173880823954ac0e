"""What kit pull brings home and where it goes. Names and links are those of ranks: hostile."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from kit.model.results import MADE, Entry
from kit.plan.run import pulling

TOPS = (*MADE, "log")


def file(path: str, size: int = 1) -> Entry:
    return Entry(path=path, size=size)


def link(path: str, target: str) -> Entry:
    return Entry(path=path, kind="l", text=target)


@pytest.mark.parametrize(
    ("words", "run", "patterns", "folder"),
    [
        ([], None, (), None),
        (["latest"], None, (), None),
        (["20261121"], "20261121", (), None),
        (["20261121", "here"], "20261121", (), "here"),
        (["20261121", "output"], "20261121", ("output",), None),
        (["20261121", "./output"], "20261121", (), "./output"),
        (["20261121", "output/a", "log", "/tmp/x"], "20261121", ("output/a", "log"), "/tmp/x"),
        (["20261121", "**/best", "*/x"], "20261121", ("**/best", "*/x"), None),
    ],
)
def test_the_last_word_is_the_folder_unless_it_is_a_path(
    words: list[str], run: str | None, patterns: tuple[str, ...], folder: str | None
) -> None:
    assert pulling.request(words) == pulling.Request(run=run, patterns=patterns, folder=folder)


def test_a_path_begins_with_what_runs_make() -> None:
    with pytest.raises(InputError, match=r"'model\.h5' is no path in the folder of a run"):
        pulling.request(["20261121", "model.h5", "here"])


@pytest.mark.parametrize(
    ("pattern", "path", "selected"),
    [
        ("output", "output/a/b", True),
        ("output/", "output/a", True),
        ("output/*.h5", "output/a.h5", True),
        ("output/*.h5", "output/a/b.h5", False),
        ("**/b.h5", "output/a/b.h5", True),
        ("**", "output/a/b.h5", True),
        ("*/a", "output/a/b.h5", True),
        ("out*", "output/x", True),
        ("outpu", "output/x", False),
        ("log", "log", True),
        ("log.txt", "log", True),
        ("work/[ab]", "work/b", True),
    ],
)
def test_patterns(pattern: str, path: str, selected: bool) -> None:
    assert pulling.selects([pattern], path) is selected
    assert pulling.selects([], path)


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "output/../../x", "../x", "output//x", "output/./x", "elsewhere/x", "output/a\0b"]
)
def test_a_path_that_leads_out_is_refused(path: str) -> None:
    assert not pulling.is_sound(path, TOPS)


@pytest.mark.parametrize("path", ["output/x", "log", "work/..x/y", "output/\udcff"])
def test_a_path_inside_is_sound(path: str) -> None:
    assert pulling.is_sound(path, TOPS)


@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("ckpt-10", True),
        ("../checkpoints/x", True),
        ("./a/b", True),
        ("../../x", False),
        ("/etc/passwd", False),
        ("", False),
        # If `a` is a link to `.`, this leads out.
        ("a/../../x", False),
        ("a/../x", False),
    ],
)
def test_a_link_must_stay_in_the_folder(target: str, inside: bool) -> None:
    assert pulling.stays("output/latest", target) is inside


def test_what_cannot_come_has_a_reason() -> None:
    entries = (
        file("output/a"),
        Entry(path="output", kind="d"),
        link("output/good", "a"),
        link("output/bad", "/etc"),
        Entry(path="output/pipe", kind="s"),
        Entry(path="output/deep", kind="e", text="more than 100 folders deep"),
        file("output/../log"),
        file("work/x"),
    )
    good, skipped = pulling.sorted_out(entries, ["output"], TOPS)
    assert [entry.path for entry in good] == ["output/a", "output/good"]
    assert sorted(skipped) == ["output/../log", "output/bad", "output/deep", "output/pipe"]


def targets(**listings: list[Entry]) -> dict[str, list[str]]:
    return {host: [one.target for one in files] for host, files in pulling.layout(listings).items()}


def test_files_keep_their_names_unless_two_hosts_have_them() -> None:
    assert targets(
        gpu1=[file("output/model"), file("output/metrics"), file("log")], gpu2=[file("output/metrics"), file("work/x")]
    ) == {"gpu1": ["output/model", "gpu1/output/metrics", "log.txt"], "gpu2": ["gpu2/output/metrics", "work/x"]}


def test_a_file_and_a_folder_of_one_name_collide() -> None:
    assert targets(gpu1=[file("output/a")], gpu2=[file("output/a/b"), file("output/c")]) == {
        "gpu1": ["gpu1/output/a"],
        "gpu2": ["gpu2/output/a/b", "output/c"],
    }


def test_nothing_goes_through_a_link_of_another_host() -> None:
    assert targets(gpu1=[link("output", "work")], gpu2=[file("output/b")]) == {
        "gpu1": ["gpu1/output"],
        "gpu2": ["gpu2/output/b"],
    }
