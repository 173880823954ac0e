"""kit run: where the ranks are, what they print, how they end. What counts is read from the hosts while it happens."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.rig import VM, Cluster, everywhere, objects, until
from tests.processes import files_of_processes

ALL = {"gpu1": [0, 1], "gpu2": [2, 3], "gpu3": [4, 5], "gpu4": [6, 7]}
NONE: dict[str, list[int]] = {"gpu1": [], "gpu2": [], "gpu3": [], "gpu4": []}

# All-reduces 4 MB until somebody stops it, and says after each round whether the sum was right.
ALL_REDUCE = """
import horovod.mxnet as hvd, mxnet as mx
hvd.init()
right = hvd.size() * (hvd.size() + 1) / 2
while True:
    tensor = mx.nd.ones((1 << 20,)) * (hvd.rank() + 1)
    total = hvd.allreduce(tensor, average=False, name="t").asnumpy()
    if hvd.rank() == 0:
        print("round", total.min() == right == total.max(), flush=True)
"""

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"


def test_eight_ranks_are_two_on_each_of_four_hosts(cluster: Cluster) -> None:
    with cluster.running("run", "--np", "8", "--npernode", "2", "--", "sleep", "300") as run:
        cluster.wait_for_ranks(run, ALL)
        marks = {process.run for processes in cluster.marked().values() for process in processes}
        assert len(marks) == 1

        shown = objects(cluster.kit("ps", "--output", "json"))[-1]["nodes"]
        assert {node["host"]: node["ranks"] for node in shown} == {
            name: {marks.copy().pop(): ranks} for name, ranks in ALL.items()
        }
        rows = cluster.kit("ps").stdout.splitlines()
        for name in ALL:
            assert next(row for row in rows if row.startswith(name)).split()[-1] == "2"

        run.send_signal(signal.SIGINT)
        assert run.wait(120) == 130
        # Not later: at this very moment.
        assert cluster.marked() == {}


def test_ctrl_c_ends_ranks_that_are_deaf_to_it(cluster: Cluster) -> None:
    with cluster.running("run", "--", "python3", "-c", DEAF) as run:
        cluster.wait_for_ranks(run, ALL)
        run.send_signal(signal.SIGINT)
        run.wait(120)
        assert cluster.marked() == {}
        assert run.returncode == 130


def test_a_killed_kit_leaves_no_rank(cluster: Cluster) -> None:
    with cluster.running("run", "--", "sleep", "300") as run:
        cluster.wait_for_ranks(run, ALL)
        run.kill()
        run.wait()
        cluster.wait_for_none()


def test_mpi_stays_on_the_clusters_network(cluster: Cluster) -> None:
    """Every host has its own docker0 with the one address 172.17.0.1: the ranks must never talk over it."""
    subnet = cluster.head.address.rpartition(".")[0] + "."
    bridge = everywhere(cluster.hosts, lambda host: host.bytes_of("docker0"))
    wire = everywhere(cluster.hosts, lambda host: host.bytes_of("eth0"))
    with cluster.running("run", "--", "python3", "-c", ALL_REDUCE) as run:
        assert run.stdout
        rounds = [run.stdout.readline() for _ in range(10)]
        assert rounds == ["round True\n"] * 10
        assert cluster.ranks() == ALL
        for host in cluster.hosts:
            pids = [process.pid for process in host.marked() if process.rank is not None]
            peers = host.peers(pids)
            # Open MPI's ranks speak to their own daemon over loopback.
            assert {peer for peer in peers if not peer.startswith((subnet, "127."))} == set()
            assert peers & {other.address for other in cluster.hosts if other != host}, host.name
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=120)
        assert run.returncode == 130
        assert cluster.marked() == {}
    assert everywhere(cluster.hosts, lambda host: host.bytes_of("docker0")) == bridge
    for name, after in everywhere(cluster.hosts, lambda host: host.bytes_of("eth0")).items():
        # A ring moves nearly all of the tensor in and out of each host; much less would be another way.
        assert after - wire[name] > 10 * 4 * 1024**2, name


@pytest.mark.parametrize("framework", ["mxnet", "tensorflow"])
def test_horovod_sums_right(framework: str, cluster: Cluster) -> None:
    done = cluster.kit("run", "--", "hvd_check", "--framework", framework, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ranks"], result["sum"], result["average"], result["right"]) == (8, 36, 4.5, True)
    placed = [(rank["host"], rank["rank"], rank["local_rank"]) for rank in result["placement"]]
    assert placed == [(name, rank, rank % 2) for name, ranks in ALL.items() for rank in ranks]


def test_mxnet_benchmark_on_eight_ranks(cluster: Cluster) -> None:
    words = "--model mobilenet0.25 --image-size 32 --batch-size 2 --num-warmup 1 --num-iters 2 --num-batches-per-iter 1"
    done = cluster.kit("run", "--", "mxnet_benchmark", *words.split(), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ranks"] == 8
    assert len(result["iters"]) == 2
    assert result["img_sec_total"] == pytest.approx(8 * result["img_sec_per_rank"])
    assert result["img_sec_total"] > 0


def where(cluster: Cluster, *flags: str) -> Counter[str]:
    """How many ranks a run with these flags has on each host, by the hosts' own names."""
    done = cluster.kit("run", *flags, "--", "hostname")
    assert done.returncode == 0, done.stderr
    return Counter(done.stdout.split())


@pytest.mark.parametrize(
    ("flags", "placed"),
    [
        (["--npernode", "1"], {"gpu1": 1, "gpu2": 1, "gpu3": 1, "gpu4": 1}),
        (["--np", "3"], {"gpu1": 2, "gpu2": 1}),
        (["-H", "gpu[2,4]"], {"gpu2": 2, "gpu4": 2}),
        (["-H", "gpu3", "--np", "1"], {"gpu3": 1}),
        (["--np", "9", "--oversubscribe"], {"gpu1": 3, "gpu2": 2, "gpu3": 2, "gpu4": 2}),
    ],
)
def test_placement(flags: list[str], placed: dict[str, int], cluster: Cluster) -> None:
    assert where(cluster, *flags) == placed


@pytest.mark.parametrize(
    ("flags", "numbers"),
    [
        (["--np", "9"], ["9", "8 slots"]),
        (["--np", "8", "--npernode", "1"], ["1 × 4 hosts = 4", "8"]),
        (["--npernode", "3"], ["3", "2 slots"]),
        (["-H", "gpu9"], ["gpu9"]),
    ],
)
def test_ranks_without_room_are_an_error_that_counts(flags: list[str], numbers: list[str], cluster: Cluster) -> None:
    done = cluster.kit("run", *flags, "--", "true")
    assert done.returncode == 2
    assert all(number in done.stderr for number in numbers), done.stderr
    assert cluster.kit("run", *flags, "--dry-run", "--", "true").returncode == 2


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["no-such-command"], 127),
        (["true"], 0),
    ],
)
def test_the_exit_code_is_the_jobs(command: list[str], code: int, cluster: Cluster) -> None:
    done = cluster.kit("run", "--", *command)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_one_rank_that_fails_ends_the_others(cluster: Cluster) -> None:
    script = '[ "$OMPI_COMM_WORLD_RANK" != 5 ] || exit 3; sleep 300'
    done = cluster.kit("run", "--", "sh", "-c", script)
    assert done.returncode == 3, done.stderr
    assert cluster.marked() == {}


def test_without_a_command_kit_yamls_is_run(cluster: Cluster) -> None:
    done = cluster.kit("run")
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of kit.yaml" for rank in range(8)], done.stderr


def test_a_dry_run_prints_what_would_be_run_and_runs_nothing(cluster: Cluster) -> None:
    done = cluster.kit("run", "--np", "4", "--dry-run", "--", "touch", "/tmp/it-ran")
    assert done.returncode == 0, done.stderr
    for host in cluster.hosts:
        assert (f"{host.address} slots=2" in done.stdout) == (host.name in ("gpu1", "gpu2"))
        assert cluster.inside(host, "test", "-e", "/tmp/it-ran").returncode == 1
    assert "mpirun" in done.stdout
    assert "btl_tcp_if_include" in done.stdout


def test_streams_are_kept_apart_and_tagged(cluster: Cluster) -> None:
    script = 'echo "out $OMPI_COMM_WORLD_RANK"; echo "err $OMPI_COMM_WORLD_RANK" >&2'
    plain = cluster.kit("run", "--", "sh", "-c", script)
    assert sorted(plain.stdout.splitlines()) == [f"out {rank}" for rank in range(8)]
    assert sorted(plain.stderr.splitlines()) == [f"err {rank}" for rank in range(8)]

    lines = list(objects(cluster.kit("run", "--tag-output", "--output", "json", "--", "sh", "-c", script)))
    printed = sorted((o["stream"], o["source"], o["text"]) for o in lines if o["kind"] == "line")
    words = (("stderr", "err"), ("stdout", "out"))
    assert printed == [(stream, str(rank), f"{word} {rank}") for stream, word in words for rank in range(8)]
    assert lines[-1]["kind"] == "run"
    assert lines[-1]["exit_code"] == 0


def test_variables_reach_every_rank_and_no_command_line(cluster: Cluster) -> None:
    secret = "x-8f31c2-not-to-be-seen $HOME \"quoted\" 'twice'"
    look = 'echo "$ITEST_SECRET|$ITEST_PLAIN"; sleep 300'
    flags = ("-x", "ITEST_SECRET", "-x", "ITEST_PLAIN=two  words")
    with cluster.running("run", *flags, "--", "sh", "-c", look, ITEST_SECRET=secret) as run:
        cluster.wait_for_ranks(run, ALL)
        assert run.stdout
        assert [run.stdout.readline() for _ in range(8)] == [f"{secret}|two  words\n"] * 8
        needle = secret.split(maxsplit=1)[0]
        # The pattern goes in by standard input, or the search would find itself.
        search = "grep -lzsF -f /dev/stdin /proc/[0-9]*/cmdline || true"
        places = everywhere(cluster.hosts, lambda host: host.text("sh", "-c", search, stdin=needle))
        assert places == dict.fromkeys(ALL, "")
        assert not [p for p in files_of_processes("cmdline") if needle.encode() in _bytes(p)]
        # The search itself works: what is on a command line, it finds.
        seen = everywhere(cluster.hosts, lambda host: host.text("sh", "-c", search, stdin="ITEST_SECRET|"))
        assert all(seen.values())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_stopped_head_is_reported_with_the_next_step(cluster: Cluster) -> None:
    head = cluster.head
    head.text("docker", "stop", "--time", "1", cluster.container(head))
    try:
        done = cluster.kit("run", "--", "true")
        assert done.returncode == 5
        assert "gpu1" in done.stderr
        assert "kit deploy" in done.stderr
    finally:
        assert cluster.kit("deploy").returncode == 0
    assert cluster.kit("run", "--np", "1", "--", "true").returncode == 0


def test_a_head_that_dies_under_a_run_takes_the_ranks_along(cluster: Cluster) -> None:
    try:
        with cluster.running("run", "--", "sleep", "300") as run:
            cluster.wait_for_ranks(run, ALL)
            cluster.head.text("docker", "kill", cluster.container(cluster.head))
            _, err = run.communicate(timeout=120)
            assert run.returncode not in (0, 70), err
            assert "Traceback" not in err
            assert cluster.marked() == {}
    finally:
        assert cluster.kit("deploy").returncode == 0
    # For half a minute, the head cannot know that no other host has a rank of that run.
    assert cluster.kit("run", "--wait", "--", "true").returncode == 0


def test_the_scripts_of_the_image_work_by_hand(cluster: Cluster) -> None:
    show = 'echo "$(hostname) $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR $MASTER_PORT"'
    done = cluster.inside(cluster.head, "hvd-distribute.sh", "8", "2", "sh", "-c", show)
    # Ranks find each other by the same variables as those of a run.
    seen = sorted((line.split() for line in done.stdout.splitlines()), key=lambda words: words[1])
    meeting = f"{cluster.head.address} {seen[0][-1]}" if seen else ""
    assert [" ".join(words) for words in seen] == [
        f"{name} {rank} 8 {rank % 2} 2 {number} {meeting}" for number, name in enumerate(ALL) for rank in ALL[name]
    ], done.stderr
    assert meeting.split()[1].isdigit()
    done = cluster.inside(cluster.head, "hvd-local.sh", "2", "hostname")
    assert done.stdout.split() == ["gpu1", "gpu1"], done.stderr
    assert cluster.marked() == {}


def test_two_runs_at_once_do_not_touch_each_other(cluster: Cluster) -> None:
    with cluster.running("run", "--npernode", "1", "--", "sleep", "300") as first:
        until("the first run", lambda: cluster.ranks() == {"gpu1": [0], "gpu2": [1], "gpu3": [2], "gpu4": [3]})
        with cluster.running("run", "--npernode", "1", "--", "sleep", "301") as second:
            until(
                "all its ranks",
                lambda: all(len(processes) == 1 for processes in cluster.commands("sleep", "301").values()),
            )
            assert len(_runs(cluster)) == 2
            second.send_signal(signal.SIGINT)
            assert second.wait(120) == 130
            assert len(_runs(cluster)) == 1
            commands = [
                p.command.split() for processes in cluster.marked().values() for p in processes if p.rank is not None
            ]
            assert [words for words in commands if words[0] == "sleep"] == [["sleep", "300"]] * 4
        assert first.poll() is None
        # Beside what keeps Open MPI from removing the folder of its sessions is that of the first run.
        for host in cluster.hosts:
            sessions = _sessions(cluster, host)
            assert "kit" in sessions
            assert len(sessions) > 1
    cluster.wait_for_none()
    # mpirun and its daemons remove an empty folder, and another run's mpirun that has just made it fails.
    assert all("kit" in _sessions(cluster, host) for host in cluster.hosts)


def _sessions(cluster: Cluster, host: VM) -> list[str]:
    return cluster.inside(host, "sh", "-c", 'ls "/tmp/ompi.$(uname -n).0"').stdout.split()


def _runs(cluster: Cluster) -> set[str]:
    return {process.run for processes in cluster.marked().values() for process in processes}


def test_local_runs_ranks_here_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """With code, and what they make stays."""
    (tmp_path / "sub").mkdir()
    script = 'cd "$KIT_WORKDIR/sub" && [ "$OLDPWD" = "$PWD" ] && touch "$KIT_OUTPUT_DIR/$RANK"; exec "$@"\n'
    (tmp_path / "sub" / "check.sh").write_text(script)
    check = ("sh", "check.sh", "hvd_check", "--framework", "mxnet", "--json")
    done = cluster.kit("local", "--np", "2", "--code", str(tmp_path), "--workdir", "sub", "--", *check)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ranks"], result["sum"], result["right"]) == (2, 3, True)
    made = Path(done.stderr.rpartition("what the run made is in ")[2].strip())
    assert sorted(str(path.relative_to(made)) for path in made.rglob("*")) == ["output", "output/0", "output/1"]
    left = subprocess.run(
        ["docker", "ps", "-aq", "--filter", "label=kit.local"], capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


def test_local_ranks_of_another_user_have_their_code_and_folders(cluster: Cluster, tmp_path: Path) -> None:
    script = (
        'touch here "$KIT_OUTPUT_DIR/$RANK" "$HOME/x" && echo "$(id -u):$(id -g)" '
        '$(sed -n "s/^CapEff:[[:space:]]*//p; s/^NoNewPrivs:[[:space:]]*//p" /proc/self/status)'
    )
    (tmp_path / "try.sh").write_text(script)
    words = ("hvd_check", "--framework", "mxnet", "--json")
    with_user = {"KIT_USER": "1000:1001"}
    done = cluster.kit("local", "--np", "2", "--code", str(tmp_path), "--", "sh", "try.sh", **with_user)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["1000:1001 0000000000000000 1"] * 2), done.stderr
    made = Path(done.stderr.rpartition("what the run made is in ")[2].strip())
    files = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    assert files == ["output/0", "output/1", "work/here"]
    summed = cluster.kit("local", "--np", "2", "--code", "none", "--", *words, **with_user)
    assert (summed.returncode, json.loads(summed.stdout)["sum"]) == (0, 3), summed.stderr


@pytest.mark.parametrize("flags", [(), ("--tag-output",)])
def test_many_lines_arrive_whole_and_complete(flags: tuple[str, ...], cluster: Cluster) -> None:
    """20,000 lines from 8 ranks that all write as fast as they can."""
    script = 'seq -f "$OMPI_COMM_WORLD_RANK:%.0f:$OMPI_COMM_WORLD_RANK" 2500'
    done = cluster.kit("run", *flags, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = [re.sub(r"^\d+ \| ", "", line) for line in done.stdout.splitlines()]
    assert Counter(lines) == Counter(f"{rank}:{n}:{rank}" for rank in range(8) for n in range(1, 2501))


def test_lines_come_as_they_are_written(cluster: Cluster) -> None:
    with cluster.running("run", "--np", "1", "--", "sh", "-c", "echo now; sleep 300") as run:
        assert run.stdout
        assert run.stdout.readline() == "now\n"
        assert run.poll() is None
