"""Tests the text of `kit runs show`."""

from __future__ import annotations

from typing import Any

from kit.cli.screen.jsonout import shown_run
from kit.cli.text import shown
from kit.cli.text.use import use
from kit.model.run import Failure, HostUse, Member, Place, RunCode, RunRecord, RunUse, ShownRun
from kit.model.values import replace

START = 1_800_000_000.0
CODE = RunCode(
    digest="ab" * 32, folder="/home/ann/net", files=3, size=1200, commit="cd" * 20, branch="main",
    origin="https://example.com/net.git", dirty=True,
)  # fmt: skip
RUN = RunRecord(
    id="20270115-080000-3fa2", cluster="lab", image="kit:cpu-1", command=("python3", "train.py", "--name", "a b"),
    places=tuple(Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=2, slots=(0, 1)) for n in (1, 2)),
    env=("LR", "TOKEN"), by="ann@pc", state="ended", started=START, ended=START + 200, attempt=2, exit_code=1,
    code=CODE, failure=Failure(kind="rank", host="gpu2", rank=3, exit_code=1, lines=("ValueError: no",)),
)  # fmt: skip
SHOWN = ShownRun(record=RUN, head="gpu1", log="/var/r/log", work="/var/r/work", diff="+a\n-b\n")


def rows(value: ShownRun) -> dict[str, str]:
    text = shown.shown(value).partition("\n\n")[0]
    return {word: rest for word, _, rest in (" ".join(line.split()).partition(" ") for line in text.splitlines())}


def test_a_failed_run_with_code() -> None:
    assert rows(SHOWN) == {
        "Run": RUN.id,
        "State": "failed (1)",
        "Command": "python3 train.py --name 'a b'",
        "Ranks": "4 on 2 hosts: gpu[1-2], 2 on each",
        "Started": "2027-01-15 08:00:00 UTC by ann@pc",
        "Ended": "2027-01-15 08:03:20 UTC, after 3m 20s",
        "Attempts": "2",
        "Image": "kit:cpu-1",
        "Variables": "LR, TOKEN (kit does not keep their values)",
        "Code": "abababababab, 3 files, 1.2 kB, from /home/ann/net",
        "Commit": f"cdcdcdcdcdcd on main, and changes; see the 2 lines: kit runs show {RUN.id} --diff",
        "Origin": "https://example.com/net.git",
        "Log": f"gpu1:/var/r/log; print it: kit logs {RUN.id}",
        "Files": f"gpu[1-2]:/var/r; bring them home: kit pull {RUN.id}",
    }
    story = shown.shown(SHOWN).partition("\n\n")[2]
    assert story.splitlines()[0] == f"kit: error: run {RUN.id} failed: rank 3 on gpu2 ended with exit code 1"
    assert "ValueError: no" in story


def test_json_has_the_cause_and_the_fix_too() -> None:
    lines = ("ModuleNotFoundError: No module named 'torch'",)
    failure = Failure(kind="rank", host="gpu2", rank=3, exit_code=1, lines=lines)
    value = replace(SHOWN, record=replace(RUN, failure=failure))
    story, printed = shown.shown(value).partition("\n\n")[2], shown_run(value)
    assert printed["headline"] == "rank 3 on gpu2 ended with exit code 1"
    assert f"  {printed['cause']['text']}\n  → {printed['cause']['hint']}" in story
    unknown = replace(failure, exit_code=77, lines=("no",))
    for run in (replace(RUN, failure=unknown), replace(RUN, stopped="Ctrl-C"), replace(RUN, failure=None)):
        assert shown_run(replace(SHOWN, record=run))["cause"] is None
    assert shown_run(replace(SHOWN, record=replace(RUN, stopped="Ctrl-C")))["headline"] is None


def test_a_living_run_without_code() -> None:
    run = replace(RUN, state="running", ended=None, exit_code=None, failure=None, code=None, env=(), attempt=0)
    lines = shown.shown(replace(SHOWN, record=run, work="", diff="")).splitlines()
    assert [line.split()[0] for line in lines] == [
        "Run",
        "State",
        "Command",
        "Ranks",
        "Started",
        "Image",
        "Log",
        "Files",
    ]


def test_what_git_says() -> None:
    def commit(code: RunCode, **change: str | bool) -> str:
        value = replace(SHOWN, record=replace(RUN, code=code), **change)
        return rows(value).get("Commit", "")

    assert commit(replace(CODE, dirty=False), diff="") == "cdcdcdcdcdcd on main"
    assert commit(CODE, diff="") == "cdcdcdcdcdcd on main, and files that git does not track"
    unknown = commit(CODE, diff="", diff_cut=True)
    assert unknown.endswith(", and perhaps changes: git could not compare the code with its commit")
    assert "see the more than 2 lines" in commit(CODE, diff_cut=True)
    assert commit(replace(CODE, commit="", dirty=True), diff="").startswith("none yet on main")
    assert commit(replace(CODE, branch="", dirty=False)) == "cdcdcdcdcdcd"
    assert commit(replace(CODE, commit="", branch="", dirty=False)) == ""


def test_the_difference_alone() -> None:
    assert shown.diff(SHOWN) == b"+a\n-b\n"
    assert shown.diff(replace(SHOWN, diff="")) == b""


def test_bytes_that_are_no_text_stay_in_the_difference() -> None:
    value = replace(SHOWN, diff=b"+caf\xe9\r\n".decode("utf-8", "surrogateescape"))
    assert shown.diff(value) == b"+caf\xe9\r\n"
    # A lone surrogate is no JSON that every reader takes.
    assert shown_run(value)["diff"] == "+caf\ufffd\r\n"


def test_what_a_run_may_use_of_each_host() -> None:
    def limits(**more: Any) -> str | None:
        return rows(replace(SHOWN, record=replace(RUN, **more))).get("Limits")

    assert limits() is None
    assert limits(exclusive=True) == "the CPUs of its slots, for itself; on each host"
    assert limits(cpus=1, memory=64 << 30) == "1 CPU, 68.72 GB of memory; on each host"
    assert limits(exclusive=True, cpus=8) == "the CPUs of its slots, for itself, 8 CPUs; on each host"


def test_a_run_that_a_retry_left_fewer_hosts() -> None:
    record = replace(RUN, places=(RUN.places[0], replace(RUN.places[1], ranks=0, slots=())), most_np=4)
    assert rows(ShownRun(record=record, head="gpu1", log="", work=""))["Ranks"] == (
        "2 on 1 host: gpu1; at most 4 during the run"
    )


def test_a_run_of_an_array() -> None:
    array = Member(of="20261121-101500-aaaa", index=7, size=9)
    shown = rows(replace(SHOWN, record=replace(RUN, array=array)))
    assert shown["Array"] == "20261121-101500-aaaa, index 7, of 9 runs"


GIB = 10**9


def test_what_a_run_used_of_its_hosts() -> None:
    one = HostUse(
        memory_peak=12 * GIB, host_memory_size=64 * GIB, cpu_mean=3.8, cores=8, gpu_mean=90.0, gpu_memory_peak=30 * GIB,
        gpu_memory_size=40 * GIB, received=2 * GIB, sent=GIB, read=5, written=7,
    )  # fmt: skip
    two = replace(one, memory_peak=GIB, cpu_mean=1.2, cores=16, gpu_mean=70.0, gpu_memory_peak=31 * GIB)
    assert use(RunUse(hosts={"gpu1": one, "gpu2": two}, readings=9)) == [
        ("Memory", "12.00 GB at most, on gpu1, which has 64.00 GB"),
        ("Cores", "2.5 of 8 to 16 in use on average on each host (from 1.2 on gpu2 to 3.8 on gpu1)"),
        ("GPUs", "80 % in use on average; 31.00 GB of memory at most of 40.00 GB each, on gpu2"),
        ("Network", "4.00 GB received, 2.00 GB sent, by all hosts together"),
        ("Disks", "10 B read, 14 B written"),
    ]


def test_each_gpu_counts_once() -> None:
    hosts = {"gpu1": HostUse(gpu_mean=90.0, gpus=7), "gpu2": HostUse(gpu_mean=10.0, gpus=1)}
    assert dict(use(RunUse(hosts=hosts)))["GPUs"] == "80 % in use on average"


def test_what_is_not_known_has_no_row() -> None:
    rows = dict(use(RunUse(hosts={"gpu1": HostUse(memory_peak=5)}, left_out=3)))
    assert list(rows) == ["Memory", "Network", "Disks", ""]
    assert rows["Memory"] == "5 B at most, on gpu1"
    assert rows[""] == "without 3 other hosts"
    assert use(RunUse(hosts={})) == []


def test_a_run_is_shown_with_what_it_used() -> None:
    record = RunRecord(
        id="20261121-101500-3fa2", cluster="lab", image="i", command=("ls",), state="ended", ended=5.0, exit_code=0,
        places=(Place(node="gpu1", address="a", ranks=2),), metrics=RunUse(hosts={"gpu1": HostUse(memory_peak=5)}),
    )  # fmt: skip
    assert "Memory   5 B at most, on gpu1" in shown.shown(ShownRun(record=record, head="gpu1", log="/x/log", work=""))


def test_a_shared_folder_of_checkpoints() -> None:
    assert "Checkpoints" not in rows(SHOWN)
    assert rows(replace(SHOWN, checkpoints="gpu1:/mnt/my ckpt"))["Checkpoints"] == (
        "gpu1:/mnt/my ckpt (--checkpoint-dir); kit pull brings home what changed there during the run"
    )
    assert shown_run(replace(SHOWN, checkpoints="gpu1:/c"))["checkpoints"] == "gpu1:/c"
    assert "\x1b" not in shown.shown(replace(SHOWN, checkpoints="gpu1:/\x1b[2J"))
