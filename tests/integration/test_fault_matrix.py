"""Whatever breaks, whenever: what the operator sees, that nothing is left, and that the next deploy and run work.

tests/integration/faults.py has the cells; each test breaks one thing, looks at every moment that has a cell for it,
repairs what was broken, and then everything must work. Faults come as from a cloud: on a VM itself, or by this
machine's engine, which is the lab's power switch and its network.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kit.remote.results.store import PARTS
from tests.integration import faults
from tests.integration.faults import CELLS, CODE, LAUNCH, MID_RUN, PULL, SHIP, STOP, UP
from tests.integration.rig import CONNECTIONS, VM, Cluster, Done, begun, engine, kit_argv, kit_environ, objects, until
from tests.pipes import rest

pytestmark = pytest.mark.timeout(600)

ALL = {"gpu1": [0, 1], "gpu2": [2, 3], "gpu3": [4, 5], "gpu4": [6, 7]}
NONE: dict[str, list[int]] = {name: [] for name in ALL}
SLEEP = ("sleep", "301")
# What is ignored stays so over exec.
DEAF = ("sh", "-c", "trap '' TERM; exec sleep 302")
IS_DEAF = ("sleep", "302")
Kit = subprocess.Popen[str]


@dataclass
class Scene:
    """A fault on the cluster. `met` are the moments of which the cell was seen."""

    fault: str
    cluster: Cluster
    met: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    @property
    def alive(self) -> Cluster:
        """The hosts that live and can be reached."""
        hosts = tuple(host for host in self.cluster.hosts if host.name not in self.gone)
        return Cluster(name=self.cluster.name, folder=self.cluster.folder, hosts=hosts)

    def host(self, name: str) -> VM:
        return next(host for host in self.cluster.hosts if host.name == name)

    def deaf(self) -> str:
        """A detached run, once all of its ranks are deaf to TERM. Returns its id."""
        # For half a minute, the head keeps the slots of a run that was lost with its container.
        done = self.cluster.kit("run", "-d", "--wait", "--", *DEAF)
        assert done.returncode == 0, done.stderr
        run = done.stdout.strip()
        wanted = {name: [(run, rank) for rank in ranks] for name, ranks in ALL.items()}
        until(f"deaf ranks {wanted}", lambda: self.cluster.commands(*IS_DEAF) == wanted)
        return run

    def saw(self, moment: str, process: Kit | Done) -> None:
        """The cell of this moment: what kit has said, how it ended, and that no rank and no lease is left."""
        cell = CELLS[self.fault, moment]
        if isinstance(process, subprocess.Popen):
            out, err = rest(process, timeout=200)
        else:
            out, err = process.stdout, process.stderr
        text = f"{self.fault} × {moment}: exit {process.returncode}\n{out[-2000:]}\n{err[-4000:]}"
        assert process.returncode == cell.code, text
        addresses = {host.name: host.address for host in self.cluster.hosts}
        for words in cell.sees:
            shown = re.sub(r"\{(\w+)\}", lambda match: addresses[match[1]], words)
            assert shown in err + out, f"{shown!r} is not in what kit says; {text}"
        assert "Traceback" not in err, text
        self.nothing_left()
        self.met.add(moment)

    def nothing_left(self) -> None:
        until("no process of a run is left", lambda: not self.alive.marked())
        if self.cluster.head.name not in self.gone:
            until("no run holds slots", lambda: not self.running())

    def running(self) -> list[str]:
        done = self.cluster.kit("runs", "--output", "json")
        assert done.returncode == 0, done.stderr
        return [run["id"] for run in objects(done)[-1]["runs"] if run["state"] == "running"]

    def works(self) -> None:
        """The next deploy and, on every slot, the next run."""
        deploy = self.cluster.kit("deploy")
        assert deploy.returncode == 0, deploy.stderr
        run = self.cluster.kit("run", "--wait", "--", "hostname")
        assert run.returncode == 0, run.stderr
        assert sorted(run.stdout.split()) == [name for name in ALL for _ in range(2)], run.stderr


@contextlib.contextmanager
def breaking(fault: str, cluster: Cluster) -> Iterator[Scene]:
    scene = Scene(fault, cluster)
    try:
        yield scene
    except BaseException:
        # The next test must not pay for this one.
        for run in scene.running():
            cluster.kit("stop", run, "--grace", "0s")
        cluster.kit("deploy")
        raise
    scene.nothing_left()
    scene.works()
    assert scene.met == {moment for name, moment in CELLS if name == fault}


# What breaks things


def power(cluster: Cluster, host: str, *words: str) -> None:
    """This machine's engine on a lab host: its power switch, and its network."""
    name = f"kit-lab-{cluster.name}-{host}"
    CONNECTIONS.forget()
    engine(words[0], name, *words[1:])


@contextlib.contextmanager
def cut(cluster: Cluster, host: str) -> Iterator[None]:
    """The link of a host is down. Afterwards it can be reached again.

    This machine may still be asking for its hardware address, and refuses connections until it gives up.
    """
    (vm,) = (one for one in cluster.hosts if one.name == host)
    route = f"default via {cluster.head.address.rpartition('.')[0]}.1"
    power(cluster, host, "exec", "ip", "link", "set", "eth0", "down")
    try:
        yield
    finally:
        power(cluster, host, "exec", "ip", "link", "set", "eth0", "up")
        power(cluster, host, "exec", "ip", "route", "replace", *route.split())
        until(f"{host} can be reached again", lambda: vm.ssh("true").returncode == 0)


@contextlib.contextmanager
def slow(cluster: Cluster, host: str) -> Iterator[None]:
    """An image takes a minute or two over the link of this host, and a file 8 s, so that each is met on its way."""
    name = f"kit-lab-{cluster.name}-{host}"
    index = engine("exec", name, "cat", "/sys/class/net/eth0/iflink")
    image = engine("inspect", "--format", "{{.Image}}", name)
    shape = f"d=$(ip -o link | awk -v i={index}: '$1 == i {{sub(/[@:].*/, \"\", $2); print $2}}'); tc qdisc"

    def tc(verb: str, *words: str) -> None:
        line = f"{shape} {verb} dev $d root {' '.join(words)}"
        engine("run", "--rm", "--network", "host", "--cap-add", "NET_ADMIN", image, "sh", "-c", line)

    limit = ("tbf", "rate", "100mbit", "burst", "256kb", "latency", "50ms")
    # What goes to the host, and what comes from it.
    tc("replace", *limit)
    engine("exec", name, "tc", "qdisc", "replace", "dev", "eth0", "root", *limit)
    try:
        yield
    finally:
        tc("del")
        engine("exec", name, "tc", "qdisc", "del", "dev", "eth0", "root")


@contextlib.contextmanager
def stopped(cluster: Cluster, host: str, service: str) -> Iterator[None]:
    """A service of a lab host is stopped as its service manager would: it gets TERM, and is not started again."""
    program = f"/usr/sbin/{service}"
    # As the lab's init starts it: a session's sshd, and the node's own, have other words.
    words = {"sshd": "[s]shd -D -E /var/log/sshd.log", "dockerd": "[d]ockerd --host unix:"}[service]
    end = f"mv {program} {program}.off && pkill -TERM -f '{words}'"
    power(cluster, host, "exec", "sh", "-c", end)
    try:
        yield
    finally:
        power(cluster, host, "exec", "mv", f"{program}.off", program)


@contextlib.contextmanager
def live_restore(cluster: Cluster, host: str) -> Iterator[None]:
    """The engine of a lab host leaves its containers alone when it ends.

    An engine takes this setting at HUP, and keeps it if it is no longer in the file.
    """
    (vm,) = (one for one in cluster.hosts if one.name == host)
    setting = ("docker", "info", "--format", "{{.LiveRestoreEnabled}}")
    file = "/etc/docker/daemon.json"

    def switch(wanted: str) -> None:
        vm.script('echo "{\\"live-restore\\": $2}" >"$1" && kill -HUP "$(cat /run/docker.pid)"', file, wanted)
        until(f"live-restore is {wanted} on {host}", lambda: vm.ssh(*setting).stdout.strip() == wanted)

    vm.script('[ ! -e "$1" ] && mkdir -p "${1%/*}"', file)
    switch("true")
    try:
        yield
    finally:
        switch("false")
        vm.text("rm", file)


def node(scene: Scene, host: str, *words: str) -> None:
    """A docker command on a host, about its node's container."""
    vm = scene.host(host)
    done = begun(lambda: vm.ssh("docker", *words, scene.cluster.container(vm)))
    assert done.returncode == 0, f"{host}: {words}: {done.stderr}"


def kill(scene: Scene, host: str, wanted: Callable[[str, int | None], bool]) -> None:
    """KILL to the processes of a run on a host that are `wanted` by command line and rank, once there are any."""
    vm = scene.host(host)

    def pids() -> list[str]:
        return [str(process.pid) for process in vm.marked() if wanted(process.command, process.rank)]

    vm.text("kill", "-KILL", *until(f"such a process on {host}", pids))


def is_mpirun(command: str, _rank: int | None) -> bool:
    return command.startswith("mpirun ")


@contextlib.contextmanager
def at_mpirun(scene: Scene, *action: str) -> Iterator[subprocess.Popen[str]]:
    """On the head, `action` as soon as there is an mpirun: a moment that no look from here would meet."""
    wait = "for i in $(seq 3000); do p=$(pgrep -x mpirun) && break; sleep 0.01; done; "
    head = scene.cluster.head
    look = subprocess.Popen(
        ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={head.folder}/.kit/lab/known_hosts",
         "-i", f"{head.folder}/.kit/lab/id_ed25519", f"root@{head.address}",
         shlex.join(["sh", "-c", "echo ready; " + wait + shlex.join(action)])],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert look.stdout
        assert look.stdout.readline() == "ready\n"
        yield look
    finally:
        look.kill()
        look.communicate()


@contextlib.contextmanager
def small_disk(host: VM, folder: str, size: str) -> Iterator[None]:
    """A disk of this size at a folder of a VM."""
    host.text("mkdir", "-p", folder)
    host.text("mount", "-t", "tmpfs", "-o", f"size={size}", "small", folder)
    try:
        yield
    finally:
        host.text("umount", "--lazy", folder)


def full(host: VM, folder: str) -> None:
    host.script('dd if=/dev/zero of="$1/filler" bs=4k 2>/dev/null; exit 0', folder)


def without_image(scene: Scene, host: str) -> None:
    vm = scene.host(host)
    vm.script(
        'docker rm -f "$1" >/dev/null; docker images -q kit | xargs -r docker rmi -f >/dev/null',
        scene.cluster.container(vm),
    )


def code_of(folder: Path, megabytes: int) -> str:
    """A folder of code that cannot be packed, for --code."""
    folder.mkdir()
    (folder / "weights.bin").write_bytes(os.urandom(megabytes * 1_000_000))
    return str(folder)


def line_of(process: Kit, words: str) -> str:
    """Wait until kit says this on standard error, and return that line."""
    assert process.stderr
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"kit never said {words!r}: {rest(process, timeout=200)}")


def run_of(made: Done) -> str:
    """The id of a run that `kit run --output json` has printed."""
    return str(objects(made)[-1]["id"])


def bytes_of_parts(home: Path) -> int:
    """How much of the files that kit pull has not got whole is at home."""
    return sum(part.stat().st_size for part in (home / PARTS).glob("*"))


def wait_for_more(home: Path) -> None:
    """Wait until a megabyte of a file has come."""
    before = bytes_of_parts(home)
    until("a part of a file comes", lambda: bytes_of_parts(home) > before + 1_000_000)


def logged(cluster: Cluster, made: Done) -> str:
    """What the ranks of a run of `kit run --output json` have printed."""
    return cluster.kit("logs", run_of(made)).stdout


def stopping(scene: Scene, run: str, *flags: str) -> contextlib.AbstractContextManager[Kit]:
    return scene.cluster.running("stop", run, *flags)


def asked_to_stop(scene: Scene, run: str) -> None:
    file = f"/opt/kit/{scene.cluster.name}/var/runs/{run}/stop"
    until("the run was asked to stop", lambda: scene.cluster.head.ssh("test", "-e", file).returncode == 0)


# One rank


def test_one_rank_is_killed(cluster: Cluster) -> None:
    with breaking(faults.RANK_KILLED, cluster) as scene, cluster.running("run", "--", *SLEEP) as run:
        cluster.wait_for_ranks(run, ALL)
        kill(scene, "gpu3", lambda command, rank: rank == 5 and command.startswith("sleep"))
        scene.saw(MID_RUN, run)


def test_one_rank_is_out_of_memory(cluster: Cluster) -> None:
    with breaking(faults.RANK_OOM, cluster) as scene:
        node(scene, "gpu2", "update", "--memory", "400m", "--memory-swap", "400m")
        try:
            script = '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || exec python3 -c "x = b\'x\' * (600 << 20)"; exec sleep 300'
            scene.saw(MID_RUN, cluster.kit("run", "--", "sh", "-c", script))
        finally:
            node(scene, "gpu2", "rm", "--force")


def test_one_rank_sleeps_for_ever(cluster: Cluster) -> None:
    with breaking(faults.RANK_SLEEPS, cluster) as scene:
        node(scene, "gpu3", "pause")
        try:
            words = ("-H", "gpu[1,3]", "--npernode", "1", "--start-timeout", "5s")
            with cluster.running("run", *words, "--", *SLEEP) as frozen:
                stalled = cluster.kit("run", "-H", "gpu2", "--stall-timeout", "3s", "--", *SLEEP)
                deaf = cluster.kit("run", "-d", "-H", "gpu4", "--", *DEAF).stdout.strip()
                until("its ranks", lambda: cluster.ranks()["gpu4"] == [0, 1])
                stop = cluster.kit("stop", deaf, "--grace", "1s")
                frozen.wait(200)
                scene.saw(LAUNCH, frozen)
        finally:
            node(scene, "gpu3", "unpause")
        scene.saw(MID_RUN, stalled)
        scene.saw(STOP, stop)


# The launcher, the containers


def test_mpirun_is_killed(cluster: Cluster) -> None:
    with breaking(faults.MPIRUN_KILLED, cluster) as scene:
        with at_mpirun(scene, "pkill", "-KILL", "-x", "mpirun"):
            scene.saw(LAUNCH, cluster.kit("run", "--", *SLEEP))
        with cluster.running("run", "--", *SLEEP) as run:
            cluster.wait_for_ranks(run, ALL)
            kill(scene, "gpu1", is_mpirun)
            scene.saw(MID_RUN, run)
        deaf = scene.deaf()
        with stopping(scene, deaf, "--grace", "60s") as stop:
            asked_to_stop(scene, deaf)
            kill(scene, "gpu1", is_mpirun)
            scene.saw(STOP, stop)


def test_the_heads_container_is_killed(cluster: Cluster) -> None:
    with breaking(faults.HEAD_KILLED, cluster) as scene:
        with cluster.running("run", "--", *SLEEP) as run:
            cluster.wait_for_ranks(run, ALL)
            node(scene, "gpu1", "kill")
            scene.saw(MID_RUN, run)
        scene.saw(LAUNCH, cluster.kit("run", "--", *SLEEP))
        scene.saw(UP, cluster.kit("deploy"))
        deaf = scene.deaf()
        with stopping(scene, deaf, "--grace", "60s") as stop:
            asked_to_stop(scene, deaf)
            node(scene, "gpu1", "kill")
            scene.saw(STOP, stop)


def test_a_nodes_container_is_killed(cluster: Cluster) -> None:
    with breaking(faults.NODE_KILLED, cluster) as scene:
        with cluster.running("run", "--", *SLEEP) as run:
            cluster.wait_for_ranks(run, ALL)
            node(scene, "gpu3", "kill")
            scene.saw(MID_RUN, run)
        scene.saw(LAUNCH, cluster.kit("run", "--", *SLEEP))
        scene.saw(UP, cluster.kit("deploy"))
        deaf = scene.deaf()
        with stopping(scene, deaf, "--grace", "60s") as stop:
            asked_to_stop(scene, deaf)
            node(scene, "gpu3", "kill")
            scene.saw(STOP, stop)


# Services of a host


def test_a_hosts_engine_is_stopped(cluster: Cluster) -> None:
    with breaking(faults.ENGINE_STOPPED, cluster) as scene:
        with cluster.running("run", "--", *SLEEP) as run:
            cluster.wait_for_ranks(run, ALL)
            with stopped(cluster, "gpu3", "dockerd"):
                scene.saw(MID_RUN, run)
                scene.saw(LAUNCH, cluster.kit("run", "--", *SLEEP))
                scene.saw(UP, cluster.kit("deploy"))
        until("the engine is back", lambda: scene.host("gpu3").ssh("docker", "info").returncode == 0)


def engine_is_back(scene: Scene, host: str) -> None:
    until(f"the engine of {host} is back", lambda: scene.host(host).ssh("docker", "info").returncode == 0)


def test_engines_with_live_restore_restart(cluster: Cluster) -> None:
    """Containers outlive such an engine, and so do ranks: those of the head as well as those of another host."""
    with contextlib.ExitStack() as stack:
        scene = stack.enter_context(breaking(faults.ENGINE_RESTARTED, cluster))
        for name in ("gpu1", "gpu3"):
            stack.enter_context(live_restore(cluster, name))
        sign = f"/dev/shm/{uuid.uuid4()}"
        short = ("sh", "-c", f"while [ ! -e {sign} ]; do sleep 0.2; done; hostname")
        with cluster.running("run", "--", *short) as run:
            cluster.wait_for_ranks(run, ALL)
            with stopped(cluster, "gpu1", "dockerd"), stopped(cluster, "gpu3", "dockerd"):
                waits = line_of(run, "no Docker Engine answers")
            engine_is_back(scene, "gpu1")
            engine_is_back(scene, "gpu3")
            for host in cluster.hosts:
                power(cluster, host.name, "exec", "docker", "exec", cluster.container(host), "touch", sign)
            out, err = rest(run, timeout=200)
            assert sorted(out.split()) == [name for name in ALL for _ in range(2)], err
            scene.saw(MID_RUN, Done(run.args, run.returncode, out, waits + err))
        with stopped(cluster, "gpu3", "dockerd"):
            until("no engine answers", lambda: scene.host("gpu3").ssh("docker", "info").returncode != 0)
            scene.saw(LAUNCH, cluster.kit("run", "--", "true"))
            deaf = scene.deaf()
            scene.saw(STOP, cluster.kit("stop", deaf, "--grace", "1s"))
        engine_is_back(scene, "gpu3")


def test_a_hosts_sshd_is_stopped(cluster: Cluster) -> None:
    with breaking(faults.SSHD_STOPPED, cluster) as scene:
        sign = f"/dev/shm/{uuid.uuid4()}"
        short = ("sh", "-c", f"while [ ! -e {sign} ]; do sleep 0.2; done")
        with cluster.running("run", "--np", "8", "--", *short) as run:
            cluster.wait_for_ranks(run, ALL)
            scene.gone.update(("gpu1", "gpu3"))
            with stopped(cluster, "gpu1", "sshd"), stopped(cluster, "gpu3", "sshd"):
                for host in cluster.hosts:
                    power(cluster, host.name, "exec", "docker", "exec", cluster.container(host), "touch", sign)
                scene.saw(MID_RUN, run)
        until("sshd is back", lambda: scene.host("gpu3").ssh("true").returncode == 0)
        until("sshd is back", lambda: scene.host("gpu1").ssh("true").returncode == 0)
        scene.gone.clear()
        with stopped(cluster, "gpu3", "sshd"):
            scene.gone.add("gpu3")
            scene.saw(LAUNCH, cluster.kit("run", "--", "true"))
            done = cluster.kit("run", "-d", "--", *DEAF)
            ranks = {name: ranks for name, ranks in ALL.items() if name != "gpu3"}
            until("its ranks", lambda: scene.alive.ranks() == ranks)
            scene.saw(STOP, cluster.kit("stop", done.stdout.strip(), "--grace", "1s"))
            scene.saw(UP, cluster.kit("deploy"))
        until("sshd is back", lambda: scene.host("gpu3").ssh("true").returncode == 0)
        scene.gone.clear()


# Long waits, side by side


@pytest.mark.calm
def test_links_are_cut_and_an_image_on_its_way(cluster: Cluster, tmp_path: Path) -> None:
    """gpu4's link in the middle of an image, gpu3's for good, gpu2's for 20 s: nobody minds the others.

    Beside the image, gpu4 gets the code of a run, and a file that another run made comes home. Then gpu4 is still
    without its image, and there are more ways not to get it: a full disk, Ctrl-C, a killed kit.
    """
    script = 'head -c 100000000 /dev/urandom >"$KIT_OUTPUT_DIR/large"; sha256sum "$KIT_OUTPUT_DIR/large"'
    made = cluster.kit("run", "-H", "gpu4", "--np", "1", "--output", "json", "--", "sh", "-c", script)
    assert made.returncode == 0, made.stderr
    home = tmp_path / "home"
    pull = ("pull", run_of(made), "output", str(home))
    with contextlib.ExitStack() as stack:
        blinks = stack.enter_context(breaking(faults.LINK_BLINKS, cluster))
        cuts = stack.enter_context(breaking(faults.LINK_CUT, cluster))
        without_image(cuts, "gpu4")
        stack.enter_context(slow(cluster, "gpu4"))
        deploy = stack.enter_context(cluster.running("deploy", "--progress", "plain"))
        line_of(deploy, "gpu4: image")
        long = stack.enter_context(cluster.running("run", "-H", "gpu[1,3]", "--npernode", "1", "--", *SLEEP))
        short = ("sh", "-c", "sleep 40; hostname")
        lucky = stack.enter_context(cluster.running("run", "-H", "gpu2", "--", *short))
        until("both runs", lambda: cluster.ranks() == {"gpu1": [0], "gpu2": [0, 1], "gpu3": [1], "gpu4": []})
        coded = ("--np", "1", "--code", code_of(tmp_path / "code", 100), "--", "true")
        sending = stack.enter_context(cluster.running("run", "-H", "gpu4", "--progress", "plain", *coded))
        line_of(sending, "gpu4: code")
        pulling = stack.enter_context(cluster.running(*pull))
        wait_for_more(home)
        with cut(cluster, "gpu4"), cut(cluster, "gpu3"):
            cuts.gone.update(("gpu3", "gpu4"))
            with cut(cluster, "gpu2"):
                launch = stack.enter_context(cluster.running("run", "-H", "gpu3", "--np", "1", "--", *SLEEP))
                time.sleep(20)
            out, err = lucky.communicate(timeout=200)
            assert (lucky.returncode, out) == (CELLS[faults.LINK_BLINKS, MID_RUN].code, "gpu2\ngpu2\n"), err
            blinks.met.add(MID_RUN)
            cuts.saw(MID_RUN, long)
            cuts.saw(LAUNCH, launch)
            cuts.saw(SHIP, deploy)
            cuts.saw(CODE, sending)
            cuts.saw(PULL, pulling)
            cuts.saw(UP, cluster.kit("deploy"))
        # Before the repair, the host that was cut off ends its ranks by itself.
        until("the host that was cut off has no rank", lambda: cluster.ranks() == NONE)
        cuts.gone.clear()

        four = cuts.host("gpu4")
        with small_disk(four, "/var/lib/docker/kit-ship", "64m"):
            Scene(faults.DISK_FULL, cluster).saw(SHIP, cluster.kit("deploy"))
        sent = ((SHIP, ("deploy",), "gpu4: image"), (CODE, ("run", "-H", "gpu4", *coded), "gpu4: code"))
        for fault, number in ((faults.CTRL_C, signal.SIGINT), (faults.OPERATOR_KILLED, signal.SIGKILL)):
            for moment, words, reached in sent:
                with cluster.running(words[0], "--progress", "plain", *words[1:]) as process:
                    line_of(process, reached)
                    process.send_signal(number)
                    Scene(fault, cluster).saw(moment, process)
            before = bytes_of_parts(home)
            with cluster.running(*pull) as process:
                wait_for_more(home)
                process.send_signal(number)
                Scene(fault, cluster).saw(PULL, process)
            assert before < bytes_of_parts(home) < 100_000_000
            assert not (home / "output/large").exists()
    arrived = bytes_of_parts(home)
    rest_of_it = cluster.kit(*pull, "--output", "json")
    assert rest_of_it.returncode == 0, rest_of_it.stderr
    (came,) = (one for one in objects(rest_of_it)[-1]["hosts"] if one["host"] == "gpu4")
    assert came["size"] == 100_000_000 - arrived
    assert hashlib.sha256((home / "output/large").read_bytes()).hexdigest() in logged(cluster, made)
    assert cluster.kit("run", "-H", "gpu4", *coded).returncode == 0


def test_a_host_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    with breaking(faults.HOST_GONE, cluster) as scene:
        script = 'hostname >"$KIT_OUTPUT_DIR/of-$(hostname)"'
        made = cluster.kit("run", "--npernode", "1", "--output", "json", "--", "sh", "-c", script)
        assert made.returncode == 0, made.stderr
        with cluster.running("run", "--npernode", "1", "--", *SLEEP) as run:
            cluster.wait_for_ranks(run, {"gpu1": [0], "gpu2": [1], "gpu3": [2], "gpu4": [3]})
            power(cluster, "gpu4", "kill")
            scene.gone.add("gpu4")
            try:
                with cluster.running("run", "-H", "gpu[3-4]", "--npernode", "1", "--", *SLEEP) as launch:
                    pull = cluster.kit("pull", run_of(made), "output", str(tmp_path))
                    up = cluster.kit("deploy")
                    run.wait(200)
                    launch.wait(200)
                    scene.saw(MID_RUN, run)
                    scene.saw(LAUNCH, launch)
                    scene.saw(UP, up)
                    scene.saw(PULL, pull)
                    names = sorted(path.name for path in (tmp_path / "output").iterdir())
                    assert names == ["of-gpu1", "of-gpu2", "of-gpu3"]
            finally:
                lab = cluster.kit("lab", "up", "--name", cluster.name, "--hosts", "4", "--slots", "2")
                assert lab.returncode == 0, lab.stderr
        until("its engine is back", lambda: scene.host("gpu4").ssh("docker", "info").returncode == 0)
        scene.gone.clear()
        rest_of_it = cluster.kit("pull", run_of(made), "output", str(tmp_path))
        assert rest_of_it.returncode == 0, rest_of_it.stderr
        assert (tmp_path / "output/of-gpu4").read_text() == "gpu4\n"


# Disks


def a_full_home(scene: Scene, folder: Path) -> None:
    """A limit instead of a full disk: kit's writes fail in the middle of a file."""
    cluster = scene.cluster
    script = 'head -c 300000 /dev/urandom >"$KIT_OUTPUT_DIR/large"; sha256sum "$KIT_OUTPUT_DIR/large"'
    made = cluster.kit("run", "-H", "gpu2", "--np", "1", "--output", "json", "--", "sh", "-c", script)
    assert made.returncode == 0, made.stderr
    words = kit_argv("-C", str(cluster.folder), "pull", run_of(made), "output", str(folder))
    limited = subprocess.run(
        ["prlimit", "--fsize=100000", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False, env=kit_environ(),
    )  # fmt: skip
    scene.saw(PULL, limited)
    assert not (folder / "output/large").exists()
    again = cluster.kit("pull", run_of(made), "output", str(folder))
    assert again.returncode == 0, again.stderr
    assert (folder / "output/large").stat().st_size == 300_000


def test_the_heads_disk_is_full(cluster: Cluster, tmp_path: Path) -> None:
    code = code_of(tmp_path / "code", 3)
    with breaking(faults.DISK_FULL, cluster) as scene, breaking(faults.WORK_FULL, cluster) as work:
        a_full_home(scene, tmp_path / "home")
        head, base = cluster.head, f"/opt/kit/{cluster.name}"
        runs = f"{base}/var/runs"
        with small_disk(cluster.hosts[1], f"{base}/code", "1m"):
            scene.saw(CODE, cluster.kit("run", "--code", code, "--", "true"))
        with small_disk(head, runs, "1m"):
            # A container sees what is mounted when it starts.
            node(scene, "gpu1", "restart", "--time", "1")
            until("sshd of the head", lambda: head.listeners(33) == [head.address])
            done = cluster.kit("run", "--", "sh", "-c", "yes | head -c 1000000")
            assert done.stdout.count("y\n") < 4_000_000
            scene.saw(MID_RUN, done)
            head.script('rm -rf "$1"/*', runs)
            work.saw(LAUNCH, cluster.kit("run", "--np", "1", "--code", code, "--", "true"))
            head.script('rm -rf "$1"/*', runs)
            with cluster.running("run", "--", *SLEEP) as run:
                cluster.wait_for_ranks(run, ALL)
                full(head, runs)
                run.send_signal(signal.SIGINT)
                scene.saw(STOP, run)
            scene.saw(LAUNCH, cluster.kit("run", "--", *SLEEP))
        node(scene, "gpu1", "restart", "--time", "1")
        until("sshd of the head", lambda: head.listeners(33) == [head.address])
        two = cluster.hosts[1]
        with small_disk(two, f"{base}/ssh", "16k"):
            full(two, f"{base}/ssh")
            scene.saw(UP, cluster.kit("deploy"))
        scene.met.add(SHIP)  # with the other images, above


def test_a_host_lost_its_code(cluster: Cluster, tmp_path: Path) -> None:
    run = ("run", "--npernode", "1", "--code", code_of(tmp_path / "code", 1), "--", "cat", "weights.bin")
    with breaking(faults.CODE_LOST, cluster) as scene:
        assert cluster.kit(*run[:-2], "true").returncode == 0
        scene.host("gpu3").text("sh", "-c", f"cd /opt/kit/{cluster.name} && rm -rf code/objects var/spare/tree*")
        lost = cluster.kit(*run)
        assert lost.stdout == ""
        scene.saw(LAUNCH, lost)
        assert cluster.kit(*run[:-2], "sha256sum", "weights.bin").stdout.count("weights.bin") == 4


# The operator


def changed(scene: Scene) -> contextlib.AbstractContextManager[Kit]:
    """Start a deploy that recreates every container."""
    return scene.cluster.running("deploy", "--verbose", "--progress", "plain", KIT_SHM_SIZE="512mb")


def test_the_operator_is_killed(cluster: Cluster) -> None:
    with breaking(faults.OPERATOR_KILLED, cluster) as scene:
        with changed(scene) as deploy:
            line_of(deploy, "docker compose up")
            deploy.kill()
            scene.saw(UP, deploy)
        scene.works()
        with contextlib.ExitStack() as stack:
            there = stack.enter_context(at_mpirun(scene, "echo", "mpirun"))
            young = stack.enter_context(cluster.running("run", "-H", "gpu3", "--", *SLEEP))
            assert there.stdout
            assert there.stdout.readline() == "mpirun\n"
            young.kill()
            deaf = cluster.kit("run", "-H", "gpu1", "-d", "--", *DEAF).stdout.strip()
            assert deaf
            some = stack.enter_context(cluster.running("run", "-H", "gpu2", "--", *SLEEP))
            kept = stack.enter_context(cluster.running("run", "-H", "gpu4", "--keep", "--", *SLEEP))
            until("ranks of both", lambda: (cluster.ranks()["gpu2"], cluster.ranks()["gpu4"]) == ([0, 1], [0, 1]))
            until("deaf ranks", lambda: len(cluster.commands(*IS_DEAF)["gpu1"]) == 2)
            some.kill()
            kept.kill()
            # Longer than any look at the head takes: what is killed must not have ended by then.
            stop = stack.enter_context(stopping(scene, deaf, "--grace", "10s"))
            asked_to_stop(scene, deaf)
            stop.kill()
            only = {**NONE, "gpu4": [0, 1]}
            until("only the run that was to be kept", lambda: cluster.ranks() == only)
            # A run has ended when its supervisor has looked at every host, a moment after its ranks.
            until("one run holds slots", lambda: len(scene.running()) == 1)
            (run,) = scene.running()
            assert cluster.kit("stop", run).returncode == 0
            for moment, process in ((LAUNCH, young), (MID_RUN, some), (STOP, stop)):
                scene.saw(moment, process)
        scene.met.update((SHIP, CODE, PULL))  # with the others, above


def test_ctrl_c(cluster: Cluster) -> None:
    with breaking(faults.CTRL_C, cluster) as scene:
        with changed(scene) as deploy:
            line_of(deploy, "docker compose up")
            deploy.send_signal(signal.SIGINT)
            scene.saw(UP, deploy)
        scene.works()
        with at_mpirun(scene, "echo", "mpirun") as there, cluster.running("run", "--", *SLEEP) as run:
            assert there.stdout
            assert there.stdout.readline() == "mpirun\n"
            run.send_signal(signal.SIGINT)
            scene.saw(LAUNCH, run)
        with cluster.running("run", "--", *SLEEP) as run:
            cluster.wait_for_ranks(run, ALL)
            run.send_signal(signal.SIGINT)
            scene.saw(MID_RUN, run)
        deaf = scene.deaf()
        with stopping(scene, deaf, "--grace", "3s") as stop:
            asked_to_stop(scene, deaf)
            stop.send_signal(signal.SIGINT)
            scene.saw(STOP, stop)
        scene.met.update((SHIP, CODE, PULL))  # with the others, above


def test_ctrl_c_twice(cluster: Cluster) -> None:
    with breaking(faults.CTRL_C_TWICE, cluster) as scene:
        with at_mpirun(scene, "echo", "mpirun") as there, cluster.running("run", "--", *DEAF) as run:
            assert there.stdout
            assert there.stdout.readline() == "mpirun\n"
            for _ in range(2):
                run.send_signal(signal.SIGINT)
                time.sleep(0.5)
            scene.saw(LAUNCH, run)
        with cluster.running("run", "--", *DEAF) as run:
            cluster.wait_for_ranks(run, ALL)
            for _ in range(2):
                run.send_signal(signal.SIGINT)
                time.sleep(0.5)
            scene.saw(MID_RUN, run)
