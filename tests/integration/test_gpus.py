"""GPUs on a real engine, pretended at its border: hook, CDI, default runtime; a lab of two hosts with two GPUs each."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.errors import StepError
from kit.flows.image.build import ImageResult
from kit.flows.lab.fault import lab_fault
from kit.model.host import Host
from kit.model.local import LocalContainer, LocalGpus
from kit.model.observed import HostFacts
from kit.model.values import replace
from kit.plan.cluster.gpus import compose_driver
from kit.remote.cluster.observe import parse
from kit.remote.engine.container import LocalEngine
from kit.remote.scripts import script
from tests.fakes.reporter import Remembering
from tests.integration.conftest import LAB, Preload
from tests.integration.prometheus import scraping
from tests.integration.rig import (
    VM,
    Cluster,
    begun,
    change_settings,
    everywhere,
    kit,
    objects,
    ssh_argv,
    taken_down,
    until,
)
from tests.sockets import free_port

GPU_HOSTS = ("gpu1", "gpu2")


@pytest.fixture(scope="module")
def gpu_cluster(image: ImageResult, preload: Preload) -> Iterator[Cluster]:
    """Two lab hosts with two pretended H200 each, deployed. The toolkit is installed, and not configured."""
    name = f"{LAB}-gpus"
    with contextlib.ExitStack() as undo:
        folder = Path(tempfile.mkdtemp(prefix=f"kit-{name}-"))
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        undo.enter_context(taken_down(folder, name))
        preload(name, GPU_HOSTS)
        up = kit(folder, "lab", "up", "--name", name, "--hosts", "2", "--gpus", "2", "--output", "json")
        assert up.returncode == 0, up.stderr
        hosts = tuple(VM(name=h["name"], address=h["address"], folder=folder) for h in objects(up)[-1]["hosts"])
        change_settings(folder, command=["sh", "-c", 'echo "GPUs: $CUDA_VISIBLE_DEVICES"'])
        cluster = Cluster(name=name, folder=folder, hosts=hosts)
        deploy = cluster.kit("deploy", "--verbose", "--progress", "plain")
        assert deploy.returncode == 0, deploy.stderr
        yield Cluster(name=name, folder=folder, hosts=hosts, printed=up.stdout + deploy.stdout + deploy.stderr)


@pytest.fixture
def second(gpu_cluster: Cluster) -> Iterator[VM]:
    """The second host, for tests that change what it has of the toolkit. It has only the hook again afterwards."""
    host = gpu_cluster.hosts[1]
    yield host
    toolkit(host, "hook")


@pytest.fixture
def by_hook(gpu_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, for tests that change what all hosts have of the toolkit. They have the hook again afterwards."""
    yield gpu_cluster
    everywhere(gpu_cluster.hosts, lambda host: toolkit(host, "hook"))


def toolkit(host: VM, kind: str) -> None:
    """Give the host this much of NVIDIA's toolkit, and restart its engine."""
    host.text("pretended-gpus", "toolkit", kind, "--restart")


def run(host: VM, image: str, *words: str, options: tuple[str, ...]) -> tuple[int, str]:
    """Run a command in a container without network. Return its exit code and output."""
    argv = ("docker", "run", "--rm", "--network", "none", *options, "--entrypoint", words[0], image, *words[1:])
    done = begun(lambda: host.ssh(*argv))
    return done.returncode, done.stdout + done.stderr


def gpus(host: VM, image: str, *options: str) -> list[str]:
    """Return the UUIDs that nvidia-smi lists in a container, compared with the nodes there."""
    script = "ls /dev | grep -c '^nvidia[0-9]'; nvidia-smi --query-gpu=uuid --format=csv,noheader"
    code, output = run(host, image, "sh", "-c", script, options=options)
    count, *uuids = output.splitlines()
    assert code == 0, output
    assert int(count) == len(uuids), output
    return uuids


def has(host: VM) -> list[str]:
    """Return the UUIDs of the host's GPUs."""
    return host.text("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").split()


def test_every_host_has_its_own_gpus_and_each_list_says_that_they_are_pretended(gpu_cluster: Cluster) -> None:
    uuids = [uuid for host in gpu_cluster.hosts for uuid in has(host)]
    assert len(set(uuids)) == 4
    assert "PRETENDED" in gpu_cluster.printed
    for host in gpu_cluster.hosts:
        listed = host.text("nvidia-smi", "-L").splitlines()
        assert [line.split(" (UUID")[0] for line in listed] == [f"GPU {n}: NVIDIA H200 (PRETENDED)" for n in range(2)]


def test_the_hook_gives_a_container_what_it_asks_for(gpu_cluster: Cluster, image: ImageResult) -> None:
    host = gpu_cluster.head
    assert "nvidia" not in host.text("docker", "info", "--format", "{{json .Runtimes}}")
    first, second = has(host)
    assert gpus(host, image.tag, "--gpus", "all") == [first, second]
    assert gpus(host, image.tag, "--gpus", "1") == [first]
    assert gpus(host, image.tag, "--gpus", "device=1") == [second]
    assert gpus(host, image.tag, "--gpus", f"device={second}") == [second]
    code, output = run(host, image.tag, "true", options=("--gpus", "device=7"))
    assert code == 125
    assert "unknown device" in output
    code, output = run(host, image.tag, "sh", "-c", "ls /dev/nvidia*; nvidia-smi", options=())
    assert code == 127, output


def test_the_node_sees_its_gpus(gpu_cluster: Cluster) -> None:
    for host in gpu_cluster.hosts:
        inside = gpu_cluster.inside(host, "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
        assert inside.stdout.split() == has(host), inside.stderr


# Prints what a rank may use. Each line is short enough to stay whole.
SEEN = ("sh", "-c", 'echo "$KIT_NODE $CUDA_VISIBLE_DEVICES"')


def test_each_rank_sees_a_gpu_of_its_own(gpu_cluster: Cluster) -> None:
    done = gpu_cluster.kit("run", "--gpu-per-rank", "--report-bindings", "--", *SEEN)
    assert done.returncode == 0, done.stderr
    places = [(host.name, uuid) for host in gpu_cluster.hosts for uuid in has(host)]
    assert sorted(done.stdout.splitlines()) == sorted(f"{name} {uuid}" for name, uuid in places)
    for rank, (name, uuid) in enumerate(places):
        assert f"rank {rank} on {name}: GPU {uuid} (PRETENDED); cores " in done.stderr
    both = gpu_cluster.kit("run", "--gpus-per-rank", "2", "--", *SEEN)
    assert sorted(both.stdout.split()) == sorted(
        word for host in gpu_cluster.hosts for word in (host.name, ",".join(has(host)))
    )
    # A whole host, as Horovod's scripts expect it: every rank sees every GPU.
    whole = gpu_cluster.kit("run", "--", *SEEN)
    assert sorted(whole.stdout.split()) == sorted(host.name for host in gpu_cluster.hosts for _ in range(2))
    few = gpu_cluster.kit("run", "--gpus-per-rank", "3", "--", "true")
    assert few.returncode == 2
    assert "gpu1 has 2 GPUs, and each rank gets 3" in few.stderr


def test_a_rank_runs_on_the_cores_near_its_gpu(gpu_cluster: Cluster) -> None:
    """NVIDIA's matrix says which they are: half of the host's for each of two GPUs with NVLink."""
    matrix = gpu_cluster.inside(gpu_cluster.head, "nvidia-smi", "topo", "-m").stdout
    near = [row.split("\t")[3] for row in matrix.splitlines() if re.match(r"GPU\d\t", row)]
    assert len(near) == 2, matrix
    script = "echo $LOCAL_RANK $(sed -n 's/^Cpus_allowed_list://p' /proc/self/status)"
    done = gpu_cluster.kit("run", "-H", "gpu1", "--gpu-per-rank", "--report-bindings", "--", "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == [f"{rank} {cores}" for rank, cores in enumerate(near)], done.stderr


def test_runs_side_by_side_have_different_gpus(gpu_cluster: Cluster) -> None:
    host = gpu_cluster.head
    script = 'echo "$CUDA_VISIBLE_DEVICES"; exec sleep 300'
    first = gpu_cluster.kit("run", "-d", "-H", host.name, "--np", "1", "--", "sh", "-c", script)
    assert first.returncode == 0, first.stderr
    run_id = first.stdout.strip()
    try:
        uuids = has(host)

        def lines() -> list[str]:
            return gpu_cluster.kit("logs", run_id).stdout.split()

        log = until("the run's line", lines)
        # kit's own ranks are no strangers on the GPUs.
        second = gpu_cluster.kit("run", "-H", host.name, "--np", "1", "--", "sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"')
        assert (log, second.stdout.split()) == (uuids[:1], uuids[1:]), second.stderr
        third = gpu_cluster.kit("run", "-H", host.name, "--gpus-per-rank", "2", "--", "true")
        assert third.returncode == 5
        assert run_id in third.stderr
    finally:
        gpu_cluster.kit("stop", run_id)


def test_a_gpu_that_others_use_is_named(gpu_cluster: Cluster) -> None:
    host = gpu_cluster.head
    host.text("pretended-gpus", "fault", "1", "busy")
    try:
        refused = gpu_cluster.kit("run", "--", "true")
        assert refused.returncode == 5
        assert re.search(rf"{host.name}: GPU 1 \(PRETENDED\): \S+ \(PID [0-9]+ of ubuntu", refused.stderr), (
            refused.stderr
        )
        assert "--ignore-busy-gpus" in refused.stderr
        # The first GPU is free.
        assert gpu_cluster.kit("run", "-H", host.name, "--np", "1", "--", "true").returncode == 0
        # So are both of the other host, and the run fits around the busy one.
        around = gpu_cluster.kit("run", "--np", "3", "--", "sh", "-c", 'echo "$KIT_NODE"')
        assert around.returncode == 0, around.stderr
        assert sorted(around.stdout.split()) == ["gpu1", "gpu2", "gpu2"]
        assert "the run uses others: gpu1: GPU 0; gpu2: GPUs 0, 1" in around.stderr
        beside = gpu_cluster.kit("run", "--ignore-busy-gpus", "--", "true")
        assert beside.returncode == 0, beside.stderr
        assert "other programs use GPUs" in beside.stderr
    finally:
        host.text("pretended-gpus", "mend", "all")


def test_kit_local_requests_the_named_gpus(gpu_cluster: Cluster, image: ImageResult, tmp_path: Path) -> None:
    """The request of kit local, sent to the engine of a lab host. This machine has no GPU."""
    host = gpu_cluster.head
    first, second = has(host)
    script = "nvidia-smi --query-gpu=uuid --format=csv,noheader"
    with engine_of(host, tmp_path) as engine:
        for gpus, expected in (
            (LocalGpus(driver="nvidia"), [first, second]),
            (LocalGpus(driver="nvidia", count=1), [first]),
            (LocalGpus(driver="nvidia", names=(second,)), [second]),
        ):
            seen = Remembering()
            assert engine.run(LocalContainer(image=image.tag, argv=("sh", "-c", script), gpus=gpus), seen) == 0
            assert [line.text for line in seen.lines] == expected


@contextlib.contextmanager
def engine_of(host: VM, folder: Path) -> Iterator[LocalEngine]:
    """The host's engine, as kit local would see it on the host: by a socket."""
    socket = folder / "engine"
    forward = {"LocalForward": f"{socket} /var/run/docker.sock", "SessionType": "none", "ExitOnForwardFailure": "yes"}
    argv = ssh_argv(host.folder, host.address, **forward)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as tunnel, pytest.MonkeyPatch.context() as patch:
        try:
            until("the tunnel to the engine", lambda: socket.exists() or tunnel.poll() is not None)
            patch.setenv("DOCKER_HOST", f"unix://{socket}")
            engine = LocalEngine()
            yield engine
            engine.close()
        finally:
            tunnel.terminate()


def test_another_number_of_gpus_is_another_lab(gpu_cluster: Cluster) -> None:
    up = gpu_cluster.kit("lab", "up", "--name", gpu_cluster.name, "--hosts", "2", "--gpus", "1", "--slots", "2")
    assert up.returncode == 2
    assert "2 PRETENDED h200 each" in up.stderr


def fault(cluster: Cluster, *words: str) -> dict[str, Any]:
    """Break or mend a GPU of the head. Return what the host has then."""
    done = cluster.kit("lab", "gpu", "gpu1", "--name", cluster.name, *words, "--output", "json")
    assert done.returncode == 0, done.stderr
    return objects(done)[-1]


@pytest.fixture
def mended(gpu_cluster: Cluster) -> Iterator[VM]:
    """The head, whose GPUs have no fault afterwards."""
    yield gpu_cluster.head
    fault(gpu_cluster, "--mend")


def test_a_node_that_lost_its_gpus_may_not_open_them(gpu_cluster: Cluster, mended: VM) -> None:
    devices = "for node in /dev/nvidia0 /dev/nvidiactl; do (: <$node) 2>&1; done; nvidia-smi -L; echo code $?"
    before = gpu_cluster.inside(mended, "sh", "-c", devices).stdout
    assert before.count("No such device or address") == 2, before
    assert fault(gpu_cluster, "--fault", "lost")["lost"] == 1
    after = gpu_cluster.inside(mended, "sh", "-c", devices).stdout
    assert after.count("Operation not permitted") == 2, after
    assert after.endswith("Failed to initialize NVML: Unknown Error\ncode 255\n")
    assert len(has(mended)) == 2, "the host has lost nothing"
    assert fault(gpu_cluster, "--mend")["lost"] == 0
    assert gpu_cluster.inside(mended, "sh", "-c", devices).stdout == before


def test_faults_that_a_doctor_can_find(gpu_cluster: Cluster, mended: VM) -> None:
    state = fault(gpu_cluster, "--gpu", "1", "--fault", "busy")
    fault(gpu_cluster, "--gpu", "1", "--fault", "xid:74")
    assert [gpu["faults"] for gpu in state["gpus"]] == [[], ["busy"]]
    apps = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
    (line,) = mended.text(*apps).splitlines()
    uuid, pid = line.split(", ")
    assert uuid == state["gpus"][1]["uuid"]
    assert mended.text("stat", "-c", "%U", f"/proc/{pid}").strip() == "ubuntu"
    assert gpu_cluster.inside(mended, *apps).stdout == "", "a container sees no process of the host"
    used = "--query-gpu=utilization.gpu,memory.used"
    assert mended.text("nvidia-smi", used, "--format=csv,noheader,nounits").splitlines() == ["0, 1", "97, 35943"]
    assert "NVRM: Xid (PCI:0000:3B:00): 74" in mended.text("dmesg")
    fault(gpu_cluster, "--mend")
    assert mended.text(*apps) == ""
    assert "NVRM" not in mended.text("dmesg")


def test_a_gpu_is_busy_while_a_rank_is(gpu_cluster: Cluster) -> None:
    spin = ("sh", "-c", "[ $OMPI_COMM_WORLD_LOCAL_RANK = 0 ] || exec sleep 600; while :; do :; done")
    load = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    with gpu_cluster.running("run", "-np", "2", "--", *spin):

        def busy(output: str) -> bool:
            # How busy depends on who else needs this machine's cores.
            first, second = (int(line) for line in output.split())
            return first > 5 > second

        until("the first GPU is busy, and the second is not", lambda: busy(gpu_cluster.head.text(*load)))
        until("the node sees it, too", lambda: busy(gpu_cluster.inside(gpu_cluster.head, *load).stdout))
        apps = gpu_cluster.head.text("nvidia-smi", "--query-compute-apps=process_name", "--format=csv,noheader")
        assert apps.split() == ["sleep"]
    until("no GPU is busy", lambda: gpu_cluster.head.text(*load).split() == ["0", "0"])


def test_prometheus_gets_gpus_and_ranks(gpu_cluster: Cluster, mended: VM, tmp_path: Path) -> None:
    """Every query of the dashboard has rows: a throttled GPU has a reason, too."""
    fault(gpu_cluster, "--gpu", "1", "--fault", "throttle")
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    with (
        gpu_cluster.running("run", "--gpu-per-rank", "--", "sleep", "600") as run,
        gpu_cluster.running("metrics", "--listen", address, "--every", "1s"),
        scraping(address, tmp_path) as prometheus,
    ):
        gpu_cluster.wait_for_ranks(run, {"gpu1": [0, 1], "gpu2": [2, 3]})
        until("rates of all ranks", lambda: len(prometheus.query("rate(kit_rank_cpu_seconds_total[30s])")) == 4)
        started = {("gpu1", "0"), ("gpu1", "1"), ("gpu2", "2"), ("gpu2", "3")}

        def ranks() -> set[tuple[str, str]]:
            rows = [row["metric"] for row in prometheus.query("kit_rank_threads")]
            return {(one["host"], one["rank"]) for one in rows}

        # A reading while a rank starts may have what becomes the rank, and the next one may be too early for the rank.
        until("all ranks are read", lambda: ranks() == started)
        gpus = [row["metric"] for row in prometheus.query("kit_gpu_info")]
        assert {(one["host"], one["uuid"]) for one in gpus} == {(h.name, u) for h in gpu_cluster.hosts for u in has(h)}
        throttled = prometheus.query('kit_gpu_throttled{reason!="gpu_idle"} == 1')
        assert {(row["metric"]["host"], row["metric"]["gpu"]) for row in throttled} == {(mended.name, "1")}
        assert prometheus.empty_panels() == set()


def test_cdi_and_the_default_runtime(second: VM, image: ImageResult) -> None:
    one, other = has(second)
    toolkit(second, "cdi")
    assert gpus(second, image.tag, "--device", "nvidia.com/gpu=all") == [one, other]
    assert gpus(second, image.tag, "--device", f"nvidia.com/gpu={other}") == [other]
    toolkit(second, "runtime")
    assert json.loads(second.text("docker", "info", "--format", "{{json .DefaultRuntime}}")) == "nvidia"
    assert gpus(second, image.tag, "--env", "NVIDIA_VISIBLE_DEVICES=1") == [other]
    assert gpus(second, image.tag, "--env", "NVIDIA_VISIBLE_DEVICES=all") == [one, other]
    code, output = run(second, image.tag, "sh", "-c", "ls /dev/nvidia*", options=())
    assert code != 0, output
    service = ("--no-resolve-image", "--restart-condition", "none", "--env", "NVIDIA_VISIBLE_DEVICES=1")
    second.text("docker", "swarm", "init", "--advertise-addr", "eth0")
    second.text("docker", "service", "create", "--detach", "--name", "smi", *service, image.tag, "nvidia-smi", "-L")
    listed = until("the service has ended", lambda: second.text("docker", "service", "logs", "--raw", "smi"))
    second.text("docker", "swarm", "leave", "--force")
    assert listed.strip() == f"GPU 0: NVIDIA H200 (PRETENDED) (UUID: {other})"


def test_a_deploy_recreates_a_node_that_lost_its_gpus(gpu_cluster: Cluster, mended: VM) -> None:
    """The toolkit is not configured in daemon.json: this cluster got its GPUs by the hook alone."""
    fault(gpu_cluster, "--fault", "lost")
    lost = "the node sees 0 of the host's 2 GPUs: Failed to initialize NVML: Unknown Error (PRETENDED)"
    ps = gpu_cluster.kit("ps")
    assert f"gpu1: {lost}; run: kit deploy" in ps.stdout, ps.stdout
    assert "2 × H200 (PRETENDED), 0 free" in ps.stdout
    assert doctor(gpu_cluster)["gpu-lost"] == {"gpu1": lost}
    refused = gpu_cluster.kit("run", "--", "true")
    assert refused.returncode == 5, refused.stderr
    assert "gpu1: the node sees no GPU: Failed to initialize NVML: Unknown Error (PRETENDED)" in refused.stderr
    deploy = gpu_cluster.kit("deploy", "--progress", "plain")
    assert deploy.returncode == 0, deploy.stderr
    inside = gpu_cluster.inside(mended, "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
    assert inside.stdout.split() == has(mended)
    assert lost not in gpu_cluster.kit("ps").stdout
    assert doctor(gpu_cluster) == {}


def test_the_line_leaves_a_broken_host_out_and_ends_a_run_whose_gpus_are_idle(gpu_cluster: Cluster, mended: VM) -> None:
    fault(gpu_cluster, "--gpu", "1", "--fault", "lost")
    try:
        assert "gpu-lost" in gpu_cluster.kit("doctor", "--pairs", "none", "--cordon").stdout
        refused = gpu_cluster.kit("run", "-H", "gpu1", "--np", "1", "--", "true")
        assert refused.returncode == 5
        assert "gpu1 is cordoned: kit doctor: gpu-lost, by " in refused.stderr
        queued = gpu_cluster.kit("run", "--queue", "--idle-gpu", "10s", "--np", "2", "--", "sleep", "600")
        assert queued.returncode == 0, queued.stderr
        run = queued.stdout.strip()
        assert gpu_cluster.kit("wait", run).returncode == 124
        record = next(one for one in objects(gpu_cluster.kit("runs", "--json"))[-1]["runs"] if one["id"] == run)
        assert record["stopped"] == "its GPUs were idle for 10 s"
        assert [place["node"] for place in record["places"]] == ["gpu2"]
        assert record["metrics"]["hosts"]["gpu2"]["gpu_mean"] == 0
    finally:
        gpu_cluster.kit("hosts", "uncordon", "gpu1")


def test_the_doctor_looks_into_nodes(gpu_cluster: Cluster) -> None:
    """Shared memory of a node that is too small, and a head that cannot log in to a node."""
    try:
        for name in ("shm", "head-ssh"):
            lab_fault("gpu2", name, name=gpu_cluster.name, folder=gpu_cluster.folder)
        found = doctor(gpu_cluster)
        assert set(found) == {"shm", "head-ssh"}, found
        assert set(found["shm"]) == {"gpu2"}
        assert "gpu2" in found["head-ssh"]
    finally:
        lab_fault("gpu2", "all", name=gpu_cluster.name, folder=gpu_cluster.folder, mend=True)
    assert doctor(gpu_cluster) == {}


def doctor(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return what kit doctor sees on each host, by check."""
    result = objects(cluster.kit("doctor", "--json"))[-1]
    assert result["deployed"]
    return {
        one["id"]: {host: sight["seen"] for sight in one["seen"] for host in sight["hosts"]}
        for one in result["findings"]
    }


def observed(host: VM) -> HostFacts:
    """Return what kit deploy sees of a host."""
    text = host.ssh(*script("observe", "/opt/kit/none", "", "compose")).stdout
    return parse(Host(name=host.name, address=host.address), text)


def test_what_the_engine_can_do_decides(gpu_cluster: Cluster, second: VM) -> None:
    """A hook as old as the engine, CDI, another vendor's CDI file, the base package, a snap, a hook that came late."""
    assert compose_driver(observed(second)) == "nvidia"
    toolkit(second, "cdi")
    facts = observed(second)
    assert compose_driver(facts) == "cdi", facts.gpu_engine
    second.text("sed", "-i", "s|nvidia.com/gpu|example.com/gpu|", "/etc/cdi/nvidia.yaml")
    assert observed(second).gpu_engine.cdi == ()
    toolkit(second, "snap")
    problem = compose_driver(observed(second))
    assert isinstance(problem, StepError)
    assert "the engine is a snap" in problem.message
    toolkit(second, "base")
    assert observed(second).gpu_engine.toolkit_base_only
    problem = compose_driver(observed(second))
    assert isinstance(problem, StepError)
    assert "nvidia-container-toolkit-base" in problem.message
    assert doctor(gpu_cluster) == {"gpu-hook": {"gpu2": problem.message}}
    # The hook comes, and nobody restarts the engine. Only then the engine refuses GPUs.
    second.text("pretended-gpus", "toolkit", "hook")
    hook = observed(second).gpu_engine.hook

    def late() -> HostFacts | None:
        # The start of the engine is known to a few seconds only.
        second.text("touch", "-h", hook)
        facts = observed(second)
        return facts if facts.gpu_engine.hook_newer else None

    facts = until("the hook is newer than the engine", late)
    problem = compose_driver(replace(facts, containers=()))
    assert isinstance(problem, StepError)
    assert "sudo systemctl restart docker" in str(problem.hint)


def deployed(cluster: Cluster, *words: str) -> str:
    """Deploy, and return what kit printed."""
    done = cluster.kit("deploy", "--progress", "plain", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def node(cluster: Cluster, host: VM) -> dict[str, Any]:
    """Return what the engine knows of the host's node."""
    (container,) = (one for one in host.containers(cluster.name) if one["State"]["Running"])
    return dict(container)


def seen_inside(cluster: Cluster, host: VM) -> list[str]:
    """Return the UUIDs that nvidia-smi lists in the host's node."""
    argv = ("docker", "exec", node(cluster, host)["Id"], "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
    return begun(lambda: host.ssh(*argv)).stdout.split()


def check_ranks(cluster: Cluster) -> None:
    """Check that each rank gets another GPU, and that its node has all."""
    assert {host.name: seen_inside(cluster, host) for host in cluster.hosts} == {h.name: has(h) for h in cluster.hosts}
    done = cluster.kit("run", "--gpu-per-rank", "--", *SEEN)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"{h.name} {uuid}" for h in cluster.hosts for uuid in has(h))


def test_a_deploy_by_cdi(by_hook: Cluster) -> None:
    """The engines read a CDI file for all GPUs, so the nodes get them by it, until the driver is another one."""
    everywhere(by_hook.hosts, lambda host: toolkit(host, "cdi"))
    deployed(by_hook)
    for host in by_hook.hosts:
        (request,) = node(by_hook, host)["HostConfig"]["DeviceRequests"]
        assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=all"])
    check_ranks(by_hook)
    assert "gpu-hook" not in doctor(by_hook)
    # After an upgrade of the driver, its old CDI file would give a node libraries that are gone.
    with driver(by_hook.hosts[1], "570.86.15") as host:
        assert compose_driver(observed(host)) == "nvidia"


@contextlib.contextmanager
def driver(host: VM, version: str) -> Iterator[VM]:
    """Let the host have another version of NVIDIA's driver."""
    path = "/usr/lib/kit-lab/state/gpus.json"
    old = json.loads(host.text("cat", path))["driver"]
    host.text("sed", "-i", f"s/{old}/{version}/", path)
    try:
        yield host
    finally:
        host.text("sed", "-i", f"s/{version}/{old}/", path)


def test_the_gpus_decide_the_flavor(gpu_cluster: Cluster) -> None:
    """Nothing is built or shipped: a dry run names the image, and a driver that is too old stops it before that."""
    plan = gpu_cluster.kit("deploy", "--dry-run", KIT_IMAGE_FLAVOUR="auto")
    assert plan.returncode == 0, plan.stderr
    assert "kit:cuda-tensorflow-" in plan.stdout
    with driver(gpu_cluster.hosts[1], "470.82.01"):
        old = gpu_cluster.kit("deploy", "--dry-run", KIT_IMAGE_FLAVOUR="auto")
    assert old.returncode != 0
    assert "gpu2" in old.stderr
    assert "470.82.01" in old.stderr


def test_each_rank_gets_a_mig_device(gpu_cluster: Cluster, mended: VM) -> None:
    """CUDA shows a process one MIG device at most."""
    for number in ("0", "1"):
        fault(gpu_cluster, "--gpu", number, "--fault", "mig")
    deployed(gpu_cluster)
    listed = mended.text("nvidia-smi", "-L")
    devices = re.findall(r"UUID: (MIG-[0-9a-f-]+)", listed)
    assert len(devices) == 4, listed
    done = gpu_cluster.kit("run", "-H", "gpu1", "--gpu-per-rank", "--", *SEEN)
    assert done.returncode == 0, done.stderr
    got = [line.split()[1] for line in done.stdout.splitlines()]
    assert len(set(got)) == 2
    assert set(got) <= set(devices)


# The last test: the cluster stays a stack of Swarm.
def test_swarm_gives_the_ranks_their_gpus(by_hook: Cluster) -> None:
    """By the default runtime alone; then by GPUs that the engines advertise, which kit's services reserve."""
    everywhere(by_hook.hosts, lambda host: toolkit(host, "runtime"))
    change_settings(by_hook.folder, orchestrator="swarm")
    deployed(by_hook)
    for host in by_hook.hosts:
        settings = node(by_hook, host)["HostConfig"]
        assert (settings["Runtime"], settings["DeviceRequests"]) == ("nvidia", None)
    check_ranks(by_hook)
    everywhere(by_hook.hosts, lambda host: toolkit(host, "swarm"))
    deployed(by_hook)
    resources = "{{json .Spec.TaskTemplate.Resources.Reservations.GenericResources}}"
    for service in by_hook.head.text("docker", "service", "ls", "--quiet").split():
        reserved = by_hook.head.text("docker", "service", "inspect", "--format", resources, service)
        assert json.loads(reserved) == [{"DiscreteResourceSpec": {"Kind": "NVIDIA-GPU", "Value": 2}}]
    check_ranks(by_hook)
    # As with Compose, a deploy replaces a node that lost its GPUs.
    fault(by_hook, "--fault", "lost")
    assert "gpu1: the node sees 0 of the host's 2 GPUs" in by_hook.kit("ps").stdout
    deployed(by_hook)
    check_ranks(by_hook)
