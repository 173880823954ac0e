"""What kit pull brings home and where it goes. Names and links are those of ranks: hostile."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from kit.model.results import MADE, Clock, Entry, Listing, OtherFiles, SharedListing
from kit.model.run import RunRecord
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
    ("patterns", "only"),
    [
        ([], False),
        (["log"], True),
        (["log.txt", "log/"], True),
        (["log", "output"], False),
        (["output"], False),
    ],
)
def test_patterns_that_select_only_the_log(patterns: list[str], *, only: bool) -> None:
    assert pulling.selects_only_the_log(patterns) is only


@pytest.mark.parametrize(
    ("patterns", "may"),
    [
        ([], True),
        (["checkpoints/*"], True),
        (["output", "check*"], True),
        (["*/best"], True),
        (["output", "log"], False),
    ],
)
def test_patterns_that_may_name_checkpoints(patterns: list[str], *, may: bool) -> None:
    assert pulling.may_name_checkpoints(patterns) is may


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
    apart = pulling.sorted_out(entries, ["output"], TOPS)
    assert [entry.path for entry in apart.entries] == ["output/a", "output/good"]
    assert sorted(apart.skipped) == ["output/../log", "output/bad", "output/pipe"]
    # What kit would bring if it could be read.
    assert apart.failed == {"output/deep": "more than 100 folders deep"}


def test_a_host_whose_working_folder_has_the_code_keeps_it_there() -> None:
    entries = (file("work/x"), file("output/a"), link("output/bad", "/etc"))
    listings = {
        host: Listing(top="/srv", below="run", live=False, unsettled=host == "gpu2", entries=entries)
        for host in ("gpu1", "gpu2")
    }
    chosen = pulling.chosen(listings, ())
    paths = {host: [entry.path for entry in come] for host, come in chosen.entries.items()}
    assert paths == {"gpu1": ["work/x", "output/a"], "gpu2": ["output/a"]}
    assert {host: list(why) for host, why in chosen.skipped.items()} == {host: ["output/bad"] for host in listings}
    assert chosen.without_work == ("gpu2",)
    # Files that somebody names come.
    assert pulling.chosen(listings, ("work/x",)).without_work == ()


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


# The folder of --checkpoint-dir

S = 10**9


def run(started: float, ended: float | None) -> RunRecord:
    return RunRecord(id="r", cluster="c", image="i", command=(), places=(), started=started, ended=ended)


@pytest.mark.parametrize(
    ("started", "ended", "offset", "window"),
    [
        (1000.7, 2000.2, 0.0, (1000 * S, 2060 * S)),
        (1000.7, None, 0.0, (1000 * S, pulling.ALWAYS[1])),
        (1000.7, 2000.2, 300.0, (1300 * S, 2360 * S)),
        (1000.7, 2000.2, -300.0, (700 * S, 1760 * S)),
        (1000.7, None, -(2.0**40), (int(1000.7 - 2.0**40) * S, pulling.ALWAYS[1])),
    ],
)
def test_the_files_of_a_run_changed_during_it(
    started: float, ended: float | None, offset: float, window: tuple[int, int]
) -> None:
    assert pulling.during(run(started, ended), offset) == window


@pytest.mark.parametrize(
    ("there", "here", "offset"),
    [
        (1000, 50.0, 0.0),
        # It was read 5 s later.
        (1005, 55.0, 0.0),
        (1006, 55.0, 0.0),
        (1300, 50.0, 300.0),
        (1290, 60.0, 280.0),
        (400, 50.0, -600.0),
    ],
)
def test_how_far_a_clock_is_before_the_heads(there: int, here: float, offset: float) -> None:
    head = Clock(there=1000 * S, here=50.0)
    assert pulling.clock_offset(head, Clock(there=there * S, here=here)) == pytest.approx(offset)


def listed(*entries: Entry, store: str = "", others: int = 0) -> SharedListing:
    listing = Listing(top="/c", below="", live=False, entries=entries)
    return SharedListing(listing=listing, exists=True, store=store, others=others, others_size=10 * others)


def one(path: str, *, size: int = 1, time: int = 5, inode: int = 7) -> Entry:
    return Entry(path=path, size=size, time=time, inode=inode)


def kept(**listings: SharedListing) -> dict[str, list[str]]:
    return {host: [entry.path for entry in entries] for host, entries in pulling.once(listings).items()}


def test_a_file_that_hosts_share_comes_from_one_of_them() -> None:
    assert kept(gpu1=listed(one("a"), link("b", "a")), gpu2=listed(one("a"), link("b", "a"), one("c"))) == {
        "gpu1": ["a", "b"],
        "gpu2": ["c"],
    }


@pytest.mark.parametrize("other", [one("a", size=2), one("a", time=6), one("a", inode=8), link("a", "b")])
def test_files_that_differ_come_from_both(other: Entry) -> None:
    assert kept(gpu1=listed(one("a")), gpu2=listed(other)) == {"gpu1": ["a"], "gpu2": ["a"]}


def test_with_the_same_store_the_newest_state_of_a_file_comes() -> None:
    """A client of NFS may see an old size for some seconds."""
    first, second = listed(one("a", size=1, time=5), store="s:/x"), listed(one("a", size=9, time=8), store="s:/x")
    assert kept(gpu1=first, gpu2=second) == {"gpu1": [], "gpu2": ["a"]}
    assert kept(gpu1=second, gpu2=first) == {"gpu1": ["a"], "gpu2": []}
    assert kept(gpu1=first, gpu2=listed(one("a", size=9), store="s:/y")) == {"gpu1": ["a"], "gpu2": ["a"]}


def test_other_files_are_counted_with_the_hosts_that_see_them() -> None:
    listings = {"gpu1": listed(others=3), "gpu2": listed(others=3), "gpu3": listed(), "gpu4": listed(others=1)}
    assert pulling.others(listings) == (
        OtherFiles(hosts=("gpu1", "gpu2"), files=3, size=30),
        OtherFiles(hosts=("gpu4",), files=1, size=10),
    )
