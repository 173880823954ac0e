"""kit bench report and compare, from words to files, on made-up sessions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.cli.main import main
from kit.cli.text.bench_summary import bench_table
from kit.errors import InputError
from kit.flows.bench.report import load, write
from kit.remote.bench.session_folder import check_new
from tests import benchdata

RECORDED = Path(__file__).parents[2] / "docs" / "benchmarks"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    benchdata.write(tmp_path / "bench" / "20260101-egs", benchdata.egs(id="20260101-egs"))
    benchdata.write(tmp_path / "bench" / "20260102-egs", benchdata.egs(0.8, id="20260102-egs"))
    return tmp_path


@pytest.fixture
def kit(root: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["-C", str(root), *words], environ={})
        return (code, *capsys.readouterr())

    return call


def test_the_latest_session_is_reported(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, err = kit("bench", "report")
    assert code == 0
    assert "274.4 img/s" in out
    assert "8 ranks do 6.9 times the work of one rank" in out
    folder = root / "bench" / "20260102-egs"
    assert [Path(line) for line in err.splitlines()] == [
        folder / name for name in ("results.csv", "report.html", "results.png")
    ]
    assert "\x1b" not in out


def test_reported_again_the_files_are_the_same(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    folder = root / "bench" / "20260101-egs"
    names = ("results.csv", "report.html", "results.png")
    kit("bench", "report", "20260101")
    first = [(folder / name).read_bytes() for name in names]
    kit("bench", "report", str(folder))
    assert [(folder / name).read_bytes() for name in names] == first


def test_the_page_asks_for_nothing(root: Path) -> None:
    text = (write(root / "bench" / "20260101-egs").folder / "report.html").read_text()
    without_names = text.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in without_names.replace("http-equiv", "")
    assert "<script" not in text
    assert "url(" not in text


def test_compare_in_words_and_as_json(kit: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = kit("bench", "compare", "20260101-egs", "20260102-egs")
    assert code == 0
    assert "-20.0 %" in out
    assert "4 of 4 figures changed beyond the noise." in out
    code, out, _ = kit("bench", "compare", "20260101-egs", "20260101-egs", "--output", "json")
    comparison = json.loads(out)
    assert (code, comparison["kind"], {change["verdict"] for change in comparison["changes"]}) == (
        0,
        "bench-comparison",
        {"noise"},
    )


def test_sizes_within_the_noise_are_only_counted(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    for name in ("a", "b"):
        benchdata.write(root / "bench" / name, benchdata.ladder())
    _, out, _ = kit("bench", "compare", "a", "b")
    assert "KiB" not in out
    # 4 trainings; of 5 tests 18 sizes on the ring and 22 of the collectives.
    assert "0 of 204 figures changed beyond the noise." in out
    assert "200 more are within the noise" in out
    _, out, _ = kit("bench", "compare", "a", "b", "--verbose")
    assert "KiB" in out


def test_the_report_says_which_differences_had_too_few_repeats(
    root: Path, kit: Callable[..., tuple[int, str, str]]
) -> None:
    shutil.copytree(RECORDED / "resnet18-kvstore", root / "bench" / "recorded")
    _, out, _ = kit("bench", "report", "recorded")
    assert "too few repeats to tell (about 80 of each would)" in out
    assert "use local: nothing beats it beyond the noise; too few repeats to tell device, dist_sync, " in out
    html = (root / "bench" / "recorded" / "report.html").read_text()
    (horovod,) = [line for line in html.splitlines() if "0.57 ×" in line]
    assert "<td>beyond</td>" in horovod
    # The committed page has the verdicts that kit finds in the committed samples.
    committed = (RECORDED / "resnet18-kvstore" / "report.html").read_text().splitlines()
    verdicts = [line for line in html.splitlines() if line.startswith('<tr><th scope="row">') and " ×</td>" in line]
    assert len(verdicts) == 7
    assert set(verdicts) <= set(committed)


def test_compare_says_how_many_repeats_would_decide(root: Path, kit: Callable[..., tuple[int, str, str]]) -> None:
    for name in ("default", "tuned"):
        shutil.copytree(RECORDED / "resnet50-paced" / name, root / "bench" / name)
    _, out, _ = kit("bench", "compare", "default", "tuned")
    assert "+4.7 %   too few repeats to tell (about 28 of each would)" in out
    assert "1 has too few repeats to tell; about 28 on each side would." in out
    _, out, _ = kit("bench", "compare", "default", "tuned", "--output", "json")
    changes = [change for change in json.loads(out)["changes"] if change["metric"] == "efficiency"]
    assert [(change["verdict"], change["repeats"]) for change in changes] == [
        ("noise", None),
        ("noise", None),
        ("unknown", 28),
        ("better", None),
    ]


def test_compare_draws_both(
    kit: Callable[..., tuple[int, str, str]], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "here").mkdir()
    monkeypatch.chdir(root / "here")
    code, _, err = kit("bench", "compare", "20260101-egs", "20260102-egs", "--plot", "both.png")
    assert code == 0
    assert err.split() == ["both.png"]
    assert (root / "here" / "both.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = kit("bench", "compare", "20260101-egs", "20260102-egs", "--plot", "both.gif")
    assert (code, "'both.gif' is not the name of a PNG file" in err) == (2, True)
    for name in ("c", "d"):
        benchdata.write(root / "bench" / name, benchdata.compression())
    code, _, err = kit("bench", "compare", "c", "d", "--plot", "both.png")
    assert (code, "there is nothing to plot" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "says", "write_this"),
    [
        (("report", "nothing"), "there is no session 'nothing'", "20260101-egs, 20260102-egs"),
        (("report", "2026"), "more than one session begins with '2026'", "20260101-egs, 20260102-egs"),
        (("compare", "20260101-egs"), "b is missing", "kit bench compare [options] a b"),
        (("compare",), "a and b are missing", "kit bench compare [options] a b"),
    ],
)
def test_a_wrong_name_lists_what_there_is(
    kit: Callable[..., tuple[int, str, str]], words: tuple[str, ...], says: str, write_this: str
) -> None:
    code, out, err = kit("bench", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert write_this in err


def test_a_broken_file_is_reported(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    (root / "bench" / "20260101-egs" / "session.json").write_text("[1")
    code, _, err = kit("bench", "report", "20260101-egs")
    assert code == 2
    assert "session.json" in err
    assert "Traceback" not in err


def test_two_sessions_with_nothing_in_common(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    benchdata.write(root / "bench" / "climbed", benchdata.ladder())
    (root / "bench" / "climbed" / "session.json").write_text(
        (root / "bench" / "climbed" / "session.json").read_text().replace('"id": "', '"id": "other-')
    )
    code, out, err = kit("bench", "compare", "20260101-egs", "climbed")
    assert (code, out) == (2, "")
    assert "have no case in common: one is of --preset egs, the other of the ladder" in err
    assert "kit bench list" in err


def test_a_session_that_was_cut_off_is_reported_as_far_as_it_went(root: Path) -> None:
    folder = root / "bench" / "20260101-egs"
    samples = folder / "samples.jsonl"
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join(lines[:4]) + lines[4][:30])
    states = [case.state for case in write(folder).summary.cases]
    assert states == ["measured", "measured", "not run", "not run"]
    samples.unlink()
    assert {case.state for case in write(folder).summary.cases} == {"not run"}


def test_a_folder_that_cannot_be_written_to_is_reported(
    kit: Callable[..., tuple[int, str, str]], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    code, out, err = kit("bench", "report", "20260101-egs")
    assert code == 1
    assert "warning:" in err
    assert "results.csv cannot be written: No space left on device" in err
    assert "→ make room, or copy the folder to where you may write" in err
    # It can be read all the same.
    assert "8 ranks do 6.9 times the work of one rank" in out
    code, out, _ = kit("bench", "report", "20260101-egs", "--output", "json")
    assert (code, json.loads(out)["files"], json.loads(out)["summary"]["preset"]) == (1, [], "egs")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_its_terminal_by_cutting_names(tmp_path: Path, width: int) -> None:
    summary = load(benchdata.write(tmp_path / "s", benchdata.ladder()))
    lines = bench_table(summary, width=width).splitlines()
    whole = bench_table(summary).splitlines()
    assert len(lines) == len(whole)
    # Figures are never cut: below what they take it is as wide as they need.
    assert max(map(len, lines)) <= max(width, 90)
    assert any("341.6 img/s" in line for line in lines)


def test_the_latest_session_is_the_one_that_began_last(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    """--dir chooses the name of the folder: kit bench --dir bench/monday."""
    session = benchdata.egs(id="20251231-egs")
    folder = benchdata.write(root / "bench" / "monday", session)
    meta = folder / "session.json"
    meta.write_text(meta.read_text().replace('"started": "2026', '"started": "2025'))
    rows = json.loads(kit("bench", "list", "--output", "json")[1])["value"]
    assert [row["folder"] for row in rows] == ["monday", "20260101-egs", "20260102-egs"]
    assert kit("bench", "report")[2].splitlines()[0] == str(root / "bench" / "20260102-egs" / "results.csv")
    # By the name that the list shows, the other verbs find it.
    assert kit("bench", "list")[1].splitlines()[1].split()[0] == "monday"
    assert kit("bench", "report", "monday")[0] == 0


@pytest.mark.parametrize("words", [("report", "x" * 300), ("compare", "20260101-egs", "x" * 300)])
def test_a_name_that_no_folder_can_have(kit: Callable[..., tuple[int, str, str]], words: tuple[str, ...]) -> None:
    code, _, err = kit("bench", *words)
    assert (code, f"there is no session '{'x' * 300}'" in err) == (2, True)


def test_a_folder_that_others_closed(kit: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", closed)
    code, _, err = kit("bench", "report", "/home/ann/bench/1")
    assert (code, "cannot read /home/ann/bench/1/session.json: Permission denied" in err) == (1, True)
    assert "→" in err


def test_without_a_session_the_hint_is_how_to_measure_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(tmp_path), "bench", "report", "monday"], environ={}) == 2
    err = capsys.readouterr().err
    assert "there is no session 'monday', and none in " in err
    assert "→ to measure one: kit bench" in err


def test_the_rest_of_a_session_can_be_measured(kit: Callable[..., tuple[int, str, str]], root: Path) -> None:
    folder = root / "bench" / "20260101-egs"
    resume = f"→ to measure the rest: kit bench --resume --session {folder}"
    assert resume not in kit("bench", "report", "20260101-egs")[1]
    samples = folder / "samples.jsonl"
    # Each case has its first repeat before any has its last, so a session that ended early often has a figure of each.
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:-1]))
    assert kit("bench", "report", "20260101-egs")[1].splitlines()[-1] == resume
    samples.unlink()
    assert kit("bench", "report", "20260101-egs")[1].splitlines()[-1] == resume
    assert "To see how far each went: kit bench list" in kit("bench", "compare", "20260101-egs", "20260102-egs")[1]


def test_a_plot_in_a_folder_that_is_missing(kit: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    words = ("bench", "compare", "20260101-egs", "20260102-egs", "--plot")
    code, _, err = kit(*words, str(tmp_path / "my plots" / "both.png"))
    assert (code, f"→ make its folder: mkdir -p '{tmp_path}/my plots'" in err) == (1, True)
    (tmp_path / "folder.png").mkdir()
    code, _, err = kit(*words, str(tmp_path / "folder.png"))
    assert (code, "→ name a file in a folder" in err) == (1, True)
    assert not (tmp_path / ".folder.png.part").exists()


def test_a_folder_for_a_session_that_cannot_be() -> None:
    with pytest.raises(InputError, match="cannot be a folder of yours: File name too long"):
        check_new(Path("x" * 300))
