"""Runs live on the cluster: detach, attach, logs, wait, stop; leases, limits, attempts. No state but the head's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import Cluster, Done, kit, kit_argv, kit_environ, objects, until
from tests.pipes import rest
from tests.terminals import COLUMNS, ROWS, Terminal

ALL = {"gpu1": [0, 1], "gpu2": [2, 3], "gpu3": [4, 5], "gpu4": [6, 7]}
SLEEP = ("sleep", "303")
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def detached(cluster: Cluster, *words: str) -> str:
    """The id of a run that nobody waits for."""
    done = cluster.kit("run", "-d", *words)
    assert done.returncode == 0, done.stderr
    assert RUN_ID.fullmatch(done.stdout.strip()), done.stdout
    return done.stdout.strip()


def record(cluster: Cluster, run: str, folder: Path | None = None) -> dict[str, Any]:
    runs = objects(kit(folder or cluster.folder, "runs", "--output", "json"))[-1]["runs"]
    return next(item for item in runs if item["id"] == run)


def stopped(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    assert "processes left: 0" in done.stdout, done.stdout


def test_a_run_goes_on_without_anybody(cluster: Cluster, tmp_path: Path) -> None:
    script = 'echo "first $OMPI_COMM_WORLD_RANK"; while [ ! -e /dev/shm/go ]; do sleep 0.1; done; echo last; exit 7'
    cluster.kit("exec", "--", "rm", "-f", "/dev/shm/go")
    run = detached(cluster, "--", "sh", "-c", script)
    until("its ranks", lambda: cluster.ranks() == ALL)

    # Another machine with the same hosts file and access: another folder.
    other = tmp_path / "other"
    other.mkdir()
    (other / "hosts").write_text((cluster.folder / "hosts").read_text())
    settings = (cluster.folder / "kit.yaml").read_text()
    (other / "kit.yaml").write_text(settings.replace(".kit/lab/", f"{cluster.folder}/.kit/lab/"))
    seen = record(cluster, run, other)
    assert (seen["state"], seen["np"], [place["node"] for place in seen["places"]]) == ("running", 8, list(ALL))

    with cluster.running("attach", run) as attach, cluster.running("wait", run) as wait:
        assert attach.stdout
        first = sorted(attach.stdout.readline() for _ in range(8))
        assert first == [f"first {rank}\n" for rank in range(8)]
        # The looking ends, the run does not.
        with cluster.running("attach", run) as glance:
            assert glance.stdout
            glance.stdout.readline()
            glance.send_signal(signal.SIGINT)
            _, err = rest(glance, timeout=120)
        assert "goes on" in err
        assert wait.poll() is None
        assert cluster.ranks() == ALL
        cluster.kit("exec", "--", "touch", "/dev/shm/go")
        out, err = rest(attach, timeout=120)
        assert "last\n" in out
        assert (attach.returncode, wait.wait(120)) == (7, 7), err
    cluster.wait_for_none()

    ended = record(cluster, run, other)
    assert (ended["state"], ended["exit_code"], ended["failure"]["kind"]) == ("ended", 7, "rank")
    assert kit(other, "wait", run[:-1]).returncode == 7
    one = cluster.kit("logs", run, "--rank", "3")
    assert "first 3" in one.stdout.splitlines()
    assert not [line for line in one.stdout.splitlines() if line.startswith("first") and line != "first 3"]
    cluster.kit("exec", "--", "rm", "-f", "/dev/shm/go")


def test_stop_counts_what_is_left_and_hits_no_other_run(cluster: Cluster) -> None:
    other = detached(cluster, "--npernode", "1", "--", *SLEEP)
    one = detached(cluster, "--np", "4", "--npernode", "1", "--", *SLEEP)
    # Their ranks have the same numbers, and one run alone would look like both.
    wanted = {host: sorted([(one, number), (other, number)]) for number, host in enumerate(ALL)}
    until("both runs", lambda: cluster.commands(*SLEEP) == wanted)
    marks = {process.run for processes in cluster.marked().values() for process in processes}
    assert marks == {one, other}
    stopped(cluster.kit("stop", one))
    assert {process.run for processes in cluster.marked().values() for process in processes} == {other}

    eight = cluster.kit("run", "--np", "8", "--", "true")
    assert eight.returncode == 5
    assert other in eight.stderr, "the refusal does not name the holder"
    stopped(cluster.kit("stop", other))
    assert cluster.marked() == {}
    again = cluster.kit("stop", other)
    assert again.returncode == 0
    assert record(cluster, other)["stopped"]


def test_a_run_waits_for_its_turn(cluster: Cluster) -> None:
    first = detached(cluster, "--", *SLEEP)
    with cluster.running("run", "--wait", "--", "hostname") as second:
        assert second.stderr
        assert any(first in line for line in second.stderr)
        stopped(cluster.kit("stop", first))
        out, err = rest(second, timeout=120)
        assert (second.returncode, Counter(out.split())) == (0, dict.fromkeys(ALL, 2)), err


def test_ranks_that_take_term_have_their_grace(cluster: Cluster) -> None:
    script = "trap 'sleep 1.5; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    run = detached(cluster, "--", "sh", "-c", script)
    until("all are up", lambda: cluster.kit("logs", run).stdout.count("up\n") == 8)
    stopped(cluster.kit("stop", run, "--grace", "30s"))
    assert cluster.kit("logs", run).stdout.count("saved\n") == 8
    assert cluster.kit("wait", run).returncode == 143


def test_fifty_thousand_lines_and_more(cluster: Cluster) -> None:
    script = 'seq -f "$OMPI_COMM_WORLD_RANK:%.0f:$OMPI_COMM_WORLD_RANK" 8000'
    done = cluster.kit("run", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    wanted = Counter(f"{rank}:{n}:{rank}" for rank in range(8) for n in range(1, 8001))
    assert Counter(done.stdout.splitlines()) == wanted
    # And once more from the log, where a rank's lines are in its own order.
    run = objects(cluster.kit("runs", "--output", "json"))[-1]["runs"][0]["id"]
    five = cluster.kit("logs", run, "--rank", "5")
    assert five.stdout.splitlines() == [f"5:{n}:5" for n in range(1, 8001)]


def test_a_long_log_begins_at_its_beginning(cluster: Cluster) -> None:
    """The log has 100 MB, and kit reads no more of it than it prints."""
    script = "echo beginning; head -c 100000000 /dev/zero | tr '\\0' x | fold -w 3000; echo; echo end"
    run = detached(cluster, "--np", "1", "--", "sh", "-c", script)
    assert cluster.kit("wait", run).returncode == 0
    with cluster.running("attach", run) as attach:
        assert attach.stdout
        assert attach.stdout.readline() == "beginning\n"
        attach.kill()
    cluster.wait_for_none()


STALLS = """
import os, time
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
def waits_for_the_others():
    time.sleep(300)
def is_where_it_hangs():
    time.sleep(301)
print("begun", rank, flush=True)
is_where_it_hangs() if rank == 5 else waits_for_the_others()
"""


def test_a_hang_is_reported_rank_by_rank(cluster: Cluster) -> None:
    # Longer than a busy machine takes to start eight Pythons: each of them has said its line by then.
    done = cluster.kit("run", "--stall-timeout", "20s", "--", "python3", "-c", STALLS)
    assert done.returncode == 124, done.stderr
    report = re.split(r"^rank (\d) on (\w+): ", done.stderr, flags=re.MULTILINE)[1:]
    ranks = {int(report[i]): (report[i + 1], report[i + 2]) for i in range(0, len(report), 3)}
    assert {rank: host for rank, (host, _) in ranks.items()} == {
        n: host for host, ranks_there in ALL.items() for n in ranks_there
    }
    for rank, (_, text) in ranks.items():
        line, where = (7, "is_where_it_hangs") if rank == 5 else (5, "waits_for_the_others")
        assert f'File "<string>", line {line} in {where}' in text, text
        assert f"last line: begun {rank}" in text
    assert cluster.marked() == {}


def test_a_progress_bar_is_live_and_no_silence(cluster: Cluster) -> None:
    """The bar takes longer than the limit, and its line ends only with it."""
    bar = r'for n in $(seq 10 24); do printf "\r$n%%"; sleep 0.5; done; echo'
    arrived = []
    with cluster.running("run", "--np", "1", "--stall-timeout", "6s", "--", "sh", "-c", bar) as run:
        assert run.stdout
        # This stream takes a carriage return for the end of a line.
        for line in run.stdout:
            arrived.append((time.monotonic(), line))
        assert run.wait(120) == 0, run.stderr
    assert [line for _, line in arrived if line.strip()][-1] == "24%\n"
    assert arrived[-1][0] - arrived[0][0] > 3


def test_rank_0_gets_standard_input(cluster: Cluster) -> None:
    content = "".join(f"line {n}\n" for n in range(20000))
    words = kit_argv("-C", str(cluster.folder), "run", "--np", "4", "--npernode", "1", "--tag-output", "--", "cat")
    done = subprocess.run(
        words, input=content, capture_output=True, text=True, timeout=300, check=False, env=kit_environ()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"0 | line {n}\n" for n in range(20000))


@pytest.fixture
def terminal(cluster: Cluster) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        started.append(Terminal(kit_argv("-C", str(cluster.folder), *words), kit_environ()))
        return started[-1]

    yield start
    for one in started:
        one.close()
    cluster.wait_for_none()


def by_hand(cluster: Cluster) -> dict[str, int]:
    """The ranks that `kit ps` counts of each mpirun that somebody started in the head."""
    nodes = objects(cluster.kit("ps", "--output", "json"))[-1]["nodes"]
    counted: Counter[str] = Counter()
    for node in nodes:
        counted.update({run: len(ranks) for run, ranks in node["ranks"].items() if run.startswith("by-hand-")})
    return dict(counted)


def test_ranks_of_a_shell_hold_their_slots_and_end_with_it(cluster: Cluster, terminal: Callable[..., Terminal]) -> None:
    shell = terminal("exec", "-it", "head", "--", "bash")
    shell.type("stty -echo; mpirun --allow-run-as-root -np 6 --hostfile /etc/kit/hosts sleep 307\n")
    until("six ranks", lambda: sum(by_hand(cluster).values()) == 6)
    (mark,) = by_hand(cluster)
    refused = cluster.kit("run", "--np", "4", "--", "true")
    assert refused.returncode == 5
    assert f"{mark} of a shell in the head, 6 ranks" in refused.stderr
    # What is free can be used.
    assert cluster.kit("run", "--np", "2", "--", "hostname").stdout.split() == ["gpu4", "gpu4"]
    stopped(cluster.kit("stop", mark))
    # The shell is still there. With it, the next ranks go: kit is killed, and the terminal is closed.
    shell.type("hvd-distribute.sh 8 2 sleep 308\n")
    until("eight ranks", lambda: sum(by_hand(cluster).values()) == 8)
    os.kill(shell.pid, signal.SIGKILL)
    shell.close()
    cluster.wait_for_none()
    assert cluster.kit("run", "--", "true").returncode == 0


def test_a_terminal_in_a_run(cluster: Cluster, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("run", "-it", "--np", "1", "-H", "gpu2", "-x", "MINE=7", "--", "bash", "--norc")
    screen.read_until(lambda text: "# " in text, patience_s=60)
    screen.type('stty size; test -t 1 && echo "in:$KIT_RUN:$KIT_NODE:$MINE:$RANK:"\n')
    screen.read_until(lambda text: bool(re.search(r"in:\d[^:]*:gpu2:7:0:", text)), patience_s=60)
    assert f"{ROWS} {COLUMNS}" in screen.text
    (run,) = re.findall(r"in:(\d[^:]*):", screen.text)
    found = record(cluster, run)
    assert (found["state"], found["np"], found["command"]) == ("running", 1, ["bash", "--norc"])
    assert [(place["node"], place["slots"]) for place in found["places"]] == [("gpu2", [0])]
    # Ctrl-C is the command's; the run ends with the shell.
    screen.type("echo up-$((40+1)); cat\n")
    # The shell has given the terminal its echo back.
    screen.read_until(lambda text: "up-41" in text)
    screen.type("ping\n")
    # The terminal's echo, and what cat says.
    screen.read_until(lambda text: text.count("ping") == 2)
    prompts = screen.text.count("# ")
    screen.type("\x03")
    screen.read_until(lambda text: text.count("# ") > prompts)
    screen.type("echo still-$((40+2))\n")
    screen.read_until(lambda text: "still-42" in text)
    screen.type("exit 3\n")
    assert screen.code() == 3, screen.text
    found = record(cluster, run)
    assert (found["state"], found["exit_code"], found["stopped"]) == ("ended", 3, "")
    cluster.wait_for_none()


def test_a_run_that_is_stopped_closes_its_terminal(cluster: Cluster, terminal: Callable[..., Terminal]) -> None:
    screen = terminal("run", "-it", "--np", "1", "--", "bash", "--norc")
    screen.read_until(lambda text: "# " in text, patience_s=60)
    stopped(cluster.kit("stop", "--grace", "1s"))
    screen.read_until(lambda text: "stopped by" in text, patience_s=60)
    assert screen.code() not in (0, 70)


def test_ranks_that_are_killed_with_their_keepers_are_the_first_failure(cluster: Cluster) -> None:
    with cluster.running("run", "--", "sh", "-c", "echo up; exec sleep 306") as run:
        # mpirun names a rank only if all had started.
        assert run.stdout
        assert [run.stdout.readline() for _ in range(8)] == ["up\n"] * 8
        cluster.hosts[1].script("pkill -9 -f '[s]leep 306'; exit 0")
        _, err = rest(run, timeout=120)
    assert run.returncode == 137, err
    assert "on gpu2 was killed by SIGKILL" in err
    assert "mpirun noticed" not in err
    cluster.wait_for_none()


def test_attempts_are_counted(cluster: Cluster) -> None:
    script = 'echo "attempt $KIT_ATTEMPT"; [ "$KIT_ATTEMPT" = 3 ]'
    done = cluster.kit("run", "--np", "2", "--retries", "3", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    # The first to fail may end the other before it speaks.
    assert sorted(set(done.stdout.splitlines())) == ["attempt 1", "attempt 2", "attempt 3"]
    assert done.stdout.count("attempt 3\n") == 2
    few = cluster.kit("run", "--np", "2", "--retries", "1", "--", "sh", "-c", "exit 9")
    assert few.returncode == 9
    lost = cluster.kit("run", "--np", "2", "--retries", "3", "--retry-on", "lost-host", "--", "sh", "-c", "exit 9")
    assert (lost.returncode, lost.stderr.count("attempt")) == (9, 0)


def test_a_run_goes_on_without_a_lost_host(cluster: Cluster) -> None:
    script = (
        'if [ "$KIT_ATTEMPT" = 1 ]; then touch "$KIT_CHECKPOINT_DIR.seen" 2>/dev/null; sleep 300; fi;'
        ' echo "$(hostname) of $OMPI_COMM_WORLD_SIZE in attempt $KIT_ATTEMPT"'
    )
    try:
        words = ("--retries", "1", "--retry-on", "lost-host", "--min-np", "6")
        with cluster.running("run", *words, "--", "sh", "-c", script) as run:
            cluster.wait_for_ranks(run, ALL)
            host = cluster.hosts[3]
            host.text("docker", "kill", cluster.container(host))
            out, err = run.communicate(timeout=240)
            assert run.returncode == 0, err
            rest = ("gpu1", "gpu2", "gpu3")
            assert Counter(out.splitlines()) == {f"{name} of 6 in attempt 2": 2 for name in rest}
            assert "without gpu4" in err
        # It ended well, and kit reported that before the last daemon had ended.
        cluster.wait_for_none()
    finally:
        assert cluster.kit("deploy").returncode == 0


def test_a_connection_that_breaks_ends_nothing(cluster: Cluster) -> None:
    """The operator's own session on the head is killed under it: kit goes on where the log was left."""
    sign = f"/dev/shm/{uuid.uuid4()}"
    # It has something to say before and after, however late the session ends.
    script = (
        'for i in $(seq 60); do echo "$OMPI_COMM_WORLD_RANK:$i"; sleep 0.1;'
        f" [ $i != 50 ] || until [ -e {sign} ]; do sleep 0.1; done; done"
    )
    with cluster.running("run", "--", "sh", "-c", script) as run:
        cluster.wait_for_ranks(run, ALL)
        # Whatever session looks like: all of them, and this one too.
        cluster.head.ssh("sh", "-c", "pkill -KILL -f '^sshd-session: root' ; pkill -KILL -f '^sshd: root'")
        assert cluster.kit("exec", "--", "touch", sign).returncode == 0
        out, err = run.communicate(timeout=120)
    cluster.kit("exec", "--", "rm", "-f", sign)
    assert run.returncode == 0, err
    assert "connecting again" in err
    assert Counter(out.splitlines()) == Counter(f"{rank}:{i}" for rank in range(8) for i in range(1, 61))


def test_the_json_of_a_run_is_one_object_at_the_end(cluster: Cluster) -> None:
    done = cluster.kit("run", "--output", "json", "--np", "2", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["run"]
    assert (lines[0]["exit_code"], lines[0]["failure"]["kind"], lines[0]["failure"]["exit_code"]) == (3, "rank", 3)
    assert sum(lines[0]["left"].values()) == 0
