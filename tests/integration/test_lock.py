"""Deploys under fire: two at once, one whose lock is taken away, and some that are killed. The next one just works."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.rig import VM, Cluster, objects, until
from tests.pipes import rest

SIZES = (f"{size}mb" for size in itertools.count(300))
# Below the 30 s after which a head frees a lock that nobody shows for: what frees it sooner is the connection's end.
FREED_S = 20


@pytest.fixture(scope="module")
def fired(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, which is afterwards as it was before."""
    yield cluster
    assert cluster.kit("deploy").returncode == 0


@contextlib.contextmanager
def deploying(cluster: Cluster, *, until_line: str) -> Iterator[subprocess.Popen[str]]:
    """Start a deploy with another /dev/shm, which recreates every container. Enter when it has printed this line."""
    words = ("deploy", "--verbose", "--progress", "plain")
    with cluster.running(*words, KIT_SHM_SIZE=next(SIZES)) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if until_line in line:
                break
        else:
            raise AssertionError(f"never said: {until_line}\n{''.join(lines)}")
        yield process


def lock(cluster: Cluster) -> str:
    done = cluster.kit("lock", "status", "--output", "json")
    assert done.returncode == 0, done.stderr
    return str(objects(done)[-1]["state"])


def audit(cluster: Cluster, count: int) -> list[tuple[str, str]]:
    entries = objects(cluster.kit("audit", "-n", str(count), "--output", "json"))
    assert {entry["kind"] for entry in entries} == {"audit"}
    return [(entry["verb"], entry["outcome"]) for entry in entries]


def works(cluster: Cluster) -> None:
    """The cluster takes a deploy, and then a run on every slot."""
    size = next(SIZES)
    done = cluster.kit("deploy", KIT_SHM_SIZE=size)
    assert done.returncode == 0, done.stderr
    assert "is ready" in done.stdout
    run = cluster.kit("run", "--", "true", KIT_SHM_SIZE=size)
    assert run.returncode == 0, run.stderr
    for host in cluster.hosts:
        assert [(c["Name"], c["State"]["Running"]) for c in host.containers(cluster.name)] == [
            (f"/{cluster.container(host)}", True)
        ]


def lock_files(cluster: Cluster) -> str:
    return cluster.head.script('[ ! -e /opt/kit/.lock ] || find /opt/kit/.lock -name "$1"', cluster.name)


@contextlib.contextmanager
def compose_held_up(cluster: Cluster, host: VM) -> Iterator[None]:
    """Compose waits on this host, as for an earlier one, for two minutes at most. Others may look meanwhile."""
    hold = 'mkdir -p "${1%/*}" && exec 9>>"$1" && flock -s 9 || exit 1; sleep 600 </dev/null >/dev/null 2>&1 & echo $!'
    pid = host.script(hold, f"/opt/kit/.lock/{cluster.name}.compose").strip()
    try:
        yield
    finally:
        host.text("kill", pid)


def test_the_second_is_refused_and_the_first_comes_to_its_end(fired: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        held_up = stack.enter_context(contextlib.ExitStack())
        held_up.enter_context(compose_held_up(fired, fired.hosts[1]))
        first = stack.enter_context(deploying(fired, until_line="docker compose up"))
        # It holds the lock, and waits; a process that was stopped would lose it after a while.
        second = fired.kit("deploy", KIT_SHM_SIZE="999mb")
        down = fired.kit("down", "--yes")
        status = fired.kit("lock", "status")
        idle = fired.kit("deploy", "--dry-run")
        assert first.poll() is None
        held_up.close()
        assert first.wait(300) == 0
    for refused in (second, down):
        assert refused.returncode == 5, refused.stderr
        assert "holds the lock of the cluster since" in refused.stderr
        assert "for kit deploy" in refused.stderr
        assert "kit lock release" in refused.stderr
    assert "for kit deploy" in status.stdout
    assert idle.returncode == 0
    assert lock(fired) == "free"
    assert lock_files(fired) == ""


def test_two_at_once(fired: Cluster) -> None:
    """Either one is refused, or they come one after the other; never a mixture."""
    size = next(SIZES)
    with (
        fired.running("deploy", "--quiet", KIT_SHM_SIZE=size) as one,
        fired.running("deploy", "--quiet", KIT_SHM_SIZE=size) as two,
    ):
        codes = sorted((one.wait(300), two.wait(300)))
    assert codes in ([0, 0], [0, 5])
    again = fired.kit("deploy", KIT_SHM_SIZE=size)
    assert (again.returncode, "Nothing to do" in again.stdout) == (0, True), again.stdout + again.stderr


def test_a_lock_that_is_taken_away_stops_its_deploy(fired: Cluster) -> None:
    with deploying(fired, until_line="look again") as process:
        process.send_signal(signal.SIGSTOP)
        assert lock(fired) == "held"
        released = fired.kit("lock", "release", "--yes")
        before = fired.state()
        assert (released.returncode, "is free" in released.stdout) == (0, True), released.stderr
        assert lock(fired) == "free"
        process.send_signal(signal.SIGCONT)
        _, output = rest(process, timeout=120)
    assert process.returncode == 5, output
    assert "the lock of the cluster was lost" in output
    assert fired.state() == before, "it began something"
    assert audit(fired, 1) == [("lock release", "done")]
    assert "Nothing to do" in fired.kit("lock", "release").stdout


def test_an_interrupted_deploy_frees_the_lock_and_is_written_down(fired: Cluster) -> None:
    with deploying(fired, until_line="docker compose up") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert lock(fired) == "free"
    assert audit(fired, 1) == [("deploy", "interrupted")]
    works(fired)
    assert audit(fired, 1) == [("deploy", "done")]


@pytest.mark.parametrize("moment", ["write compose.yaml", "docker compose up", "verify"])
def test_a_killed_deploy_leaves_no_lock_and_the_next_one_works(fired: Cluster, moment: str) -> None:
    with deploying(fired, until_line=moment) as process:
        process.kill()
        process.wait()
    # Where nothing is left of it, its connection's end has reached the head.
    until("the lock of the killed deploy is gone", lambda: lock(fired) == "free", patience_s=FREED_S)
    assert lock_files(fired) == ""
    works(fired)


def test_a_deploy_that_is_killed_while_it_ships(fired: Cluster) -> None:
    """Half an image does not count as an image: the next deploy continues the copy."""
    host = fired.hosts[1]
    (container,) = host.containers(fired.name)
    tag = container["Config"]["Image"]
    host.text("docker", "rmi", "--force", tag)
    try:
        with deploying(fired, until_line="ship: ") as process:
            process.kill()
            process.wait()
        until("the lock of the killed deploy is gone", lambda: lock(fired) == "free", patience_s=FREED_S)
        until("no porter is left", lambda: host.ssh("pgrep", "-f", "python3 -I?c import sy[s]").returncode == 1)
        plan = objects(fired.kit("deploy", "--dry-run", "--output", "json"))[-1]
        ships = [h["host"] for h in plan["hosts"] for step in h["steps"] if step["step"] == "Ship"]
        assert ships == [host.name]
    finally:
        host.text("docker", "tag", container["Image"], tag)


def test_the_audit_is_roots_and_no_file_of_the_plans(fired: Cluster) -> None:
    table = fired.kit("audit")
    assert table.returncode == 0
    assert re.search(rf"deploy +done .* steps on {len(fired.hosts)} hosts$", table.stdout, re.MULTILINE)
    files = fired.head.files(fired.name)
    assert files["./var"].startswith("700 root root")
    look = 'cd /opt/kit/.audit 2>/dev/null || exit 0; stat -c "%a %U %G" . "$1"'
    assert fired.head.script(look, fired.name) == "700 root root\n600 root root\n"
    assert all(host.ssh("test", "-e", f"/opt/kit/.audit/{fired.name}").returncode != 0 for host in fired.hosts[1:])
