"""The look at a VM that has Python: what it asks the engine, when it leaves that to Docker's client, and its limits."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.model.observed import GpuEngine, HostFacts, Lease
from kit.remote.cluster.gpus import gpu_processes, node_gpus_of
from kit.remote.cluster.observe import interfaces_of, leases_of, parse
from kit.remote.scripts import kernel, script
from kit.remote.ssh.transport import Completed
from tests.contract.script_contract import IMAGE
from tests.contract.test_scripts import SocketMachine
from tests.fakes.facts import host

QUICK = {"/_ping", f"/images/{IMAGE}/json", "/containers/json"}


class ShortMachine(SocketMachine):
    """A VM on which the look's limits are short, with separate files of the engine's process and of CDI."""

    limits = "15.0, 15.0, 10.0"
    smi_s = 23

    def localized(self, text: str) -> str:
        assert "LIST_S = 15.0, 15.0, 10.0" in text or "observe" not in text
        text = super().localized(text)
        for path in ("/run/docker.pid", "/etc/cdi", "/run/cdi"):
            text = text.replace(path, f"{self.root}{path}")
        text = text.replace("  sleep 23 &", f"  sleep {self.smi_s} &")
        return text.replace("LIST_S = 15.0, 15.0, 10.0", f"LIST_S = {self.limits}")

    @contextlib.contextmanager
    def dockerd(self, *programs: str) -> Iterator[None]:
        """Run a program called dockerd, on whose PATH are these programs."""
        folder = Path(self.root, "sbin")
        folder.mkdir(parents=True)
        for name in programs:
            (folder / name).touch(0o755)
        program = Path(self.root, "dockerd")
        shutil.copy(shutil.which("sleep") or "", program)
        with subprocess.Popen([program, "60"], env={"PATH": f"relative:/nowhere:{folder}"}) as process:
            file = Path(self.root, "run/docker.pid")
            file.parent.mkdir(exist_ok=True)
            file.write_text(str(process.pid))
            yield
            process.kill()

    def by_client(self) -> HostFacts:
        """Return what Docker's client shows: the VM has no Python then."""
        (self._path / "python3").unlink()
        with self.engine() as state:
            state["described"] = True
        return self.facts()

    def stub_of(self, name: str, text: str) -> None:
        path = self._path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    @property
    def plugin(self) -> Path:
        return self._home / ".docker/cli-plugins/docker-compose"

    def look(self, wanted: str) -> Completed:
        return self.run("observe", self.folder, IMAGE, wanted)


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[ShortMachine]:
    machine = ShortMachine(tmp_path)
    yield machine
    machine.stub.close()


def test_an_engine_without_swarm_is_asked_nothing_that_takes_time(vm: ShortMachine) -> None:
    assert vm.facts().engine == "26.1.5"
    assert set(vm.stub.requests) == QUICK


def test_a_deploy_to_swarm_knows_the_engines_settings(vm: ShortMachine) -> None:
    assert vm.facts(wanted="swarm").swarm.live_restore
    assert "/info" in vm.stub.requests


def test_gpus_need_the_engines_runtimes(vm: ShortMachine) -> None:
    vm.stub_of("nvidia-smi", "echo 'Tesla T4, 15360, GPU-77aa'")
    facts = vm.facts()
    assert [gpu.uuid for gpu in facts.gpus] == ["GPU-77aa"]
    assert "/info" in vm.stub.requests


@pytest.mark.parametrize("path", ["/containers/json", f"/images/{IMAGE}/json"])
def test_an_engine_that_is_busy_is_not_an_engine_that_is_empty(vm: ShortMachine, path: str) -> None:
    vm.limits = "15.0, 15.0, 1.0"
    vm.stub.silent = (path,)
    done = vm.look("compose")
    what = "containers" if "containers" in path else "images"
    assert (done.code, done.text) == (75, "")
    assert done.error_text == f"the engine did not report its {what} within 1 s"


def test_an_engine_that_does_not_answer_is_slow(vm: ShortMachine) -> None:
    vm.limits = "15.0, 0.5, 0.5"
    vm.stub.silent = tuple(QUICK)
    facts = vm.facts()
    assert (facts.engine, facts.slow, facts.image_id, facts.containers) == ("", True, None, ())


@pytest.mark.parametrize("name", ["DOCKER_HOST", "DOCKER_CONTEXT"])
def test_an_engine_elsewhere_is_left_to_the_client(vm: ShortMachine, name: str) -> None:
    with vm.engine() as state:
        state["described"] = True
    words = vm.localized(script("observe")[2])
    environ = {"PATH": str(vm._path), "HOME": str(vm._home), "KIT_STUB_ENGINE": str(vm._state), name: "other"}
    done = subprocess.run(
        ["sh", "-c", words, "kit-observe", vm.folder, IMAGE, "compose"], env=environ, capture_output=True, check=True
    )
    assert parse(host(1), done.stdout.decode()).engine == "26.1.5"
    assert vm.stub.requests == []


def test_a_context_is_left_to_the_client(vm: ShortMachine) -> None:
    with vm.engine() as state:
        state["described"] = True
    (vm._home / ".docker/config.json").write_text('{"currentContext": "rootless"}')
    assert vm.facts().engine == "26.1.5"
    assert vm.stub.requests == []


@pytest.mark.parametrize("text", ["exit 1", "echo Segmentation fault"])
def test_a_plugin_that_does_not_start(vm: ShortMachine, text: str) -> None:
    vm.plugin.write_text(f"#!/bin/sh\n{text}\n")
    assert (vm.facts().engine, vm.facts().compose) == ("26.1.5", None)


def test_a_container_of_compose_shows_that_the_plugin_works(vm: ShortMachine) -> None:
    vm.plugin.write_text(f"#!/bin/sh\ntouch {vm.root}-started\n")
    vm.container("one", cluster=vm.cluster)
    with vm.engine() as state:
        state["containers"][0]["labels"]["com.docker.compose.version"] = "2.40.0"
    assert vm.facts().compose == "2.40.0"
    assert not Path(f"{vm.root}-started").exists()
    vm.plugin.unlink()
    assert vm.facts().compose is None


def test_the_look_waits_for_compose(vm: ShortMachine) -> None:
    vm.put("f", b"")
    file = Path(vm.root, f".lock/{vm.cluster}.compose")
    file.parent.mkdir(mode=0o700)
    file.touch()
    folder = os.open(file, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    release = threading.Timer(0.7, fcntl.flock, (folder, fcntl.LOCK_UN))
    start = time.monotonic()
    release.start()
    assert vm.facts().engine
    assert time.monotonic() - start > 0.7
    os.close(folder)


def test_runs_that_go_on(vm: ShortMachine) -> None:
    ids = [f"20261121-101500-000{letter}" for letter in "abc"]
    with contextlib.ExitStack() as stack:
        for name, watched, ended in ((ids[0], True, False), (ids[1], False, False), (ids[2], True, True)):
            run = Path(vm.folder, "var/runs", name)
            run.mkdir(parents=True)
            (run / "record.json").write_text("{}")
            lock = stack.enter_context((run / "lock").open("w"))
            if watched:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if ended:
                (run / "end.json").write_text("{}")
        assert vm.facts().living == (ids[0],)


def test_slots_that_active_runs_hold(vm: ShortMachine) -> None:
    """Ranks can write to records. What does not fit hides no other run."""
    place = {"node": "gpu1", "address": "10.0.0.1", "ranks": 2, "slots": [0, 2]}
    records: list[object] = [
        {"places": [place, {**place, "node": "gpu2", "slots": [1]}]},
        {"places": [{**place, "slots": "all"}]},
        {"places": [{**place, "slots": [-1]}]},
        {"places": [7]},
        [],
    ]
    vm.put("cluster.json", b"{}")
    with contextlib.ExitStack() as stack:
        for number, record in enumerate([*records, {"places": [place]}]):
            run = Path(vm.folder, "var/runs", f"20261121-101500-000{number}")
            run.mkdir(parents=True)
            (run / "record.json").write_text(json.dumps(record))
            lock = stack.enter_context((run / "lock").open("w"))
            # The last one has ended.
            if number < len(records):
                fcntl.flock(lock, fcntl.LOCK_EX)
        done = vm.run("look", vm.folder, "", "state")
    lines = done.text.partition("@@ slots\n")[2].partition("@@ ranks")[0].splitlines()
    assert leases_of(lines) == (
        Lease(run="20261121-101500-0000", slots={"gpu1": frozenset({0, 2}), "gpu2": frozenset({1})}),
    )


def test_names_of_other_kinds_than_files_are_left_out(vm: ShortMachine) -> None:
    vm.put("f", b"", "600")
    Path(vm.folder, "link").symlink_to("f")
    Path(vm.folder, "folder").mkdir()
    facts = vm.facts()
    assert (dict(facts.modes), set(facts.files)) == ({"f": "600"}, {"f"})


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("ip"), reason="needs ip of iproute2")
def test_the_kernel_shows_what_programs_show(vm: ShortMachine) -> None:
    def printed(*argv: str) -> list[str]:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()

    with vm.listener() as (address, port):
        tcp = Path("/proc/net/tcp").read_text().splitlines()[1:]
        listeners = {line.split()[1] for line in tcp if line.split()[3] == "0A"}
        assert set(kernel.listening()) == listeners
        assert f"{address}:{port}" in vm.facts().listening
    assert interfaces_of(kernel.addresses()) == interfaces_of(printed("ip", "-4", "-o", "addr", "show"))
    devices = [line.split()[line.split().index("dev") + 1] for line in printed("ip", "-4", "route", "show", "default")]
    assert [line.split()[-1] for line in kernel.default_routes()] == devices


def test_both_ways_report_the_same(vm: ShortMachine) -> None:
    """The system is the machine's: the tests of the contract compare the rest."""
    by_python, by_client = vm.facts(), vm.by_client()

    def system(facts: HostFacts) -> tuple[object, ...]:
        return facts.arch, facts.cores, facts.memory_mib, facts.os, facts.engine, facts.compose, facts.image_id

    assert system(by_python) == system(by_client)
    assert (by_python.python is not None, by_client.python) == (True, None)


SMI = """case $* in
  *mig.mode.current,compute_cap*)
    echo 'NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b, 0, 00000000:17:00.0, 535.104.05, Enabled, 8.0' ;;
  -L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c3b)'; echo '  MIG 3g.20gb     Device  0: (UUID: MIG-c7e5)' ;;
  *) exit 9 ;;
esac"""
OLD_SMI = """case $* in
  *mig.mode*) echo 'Field "mig.mode.current" is not a valid field to query.' ; exit 2 ;;
  *) echo 'Tesla K80, 11441, GPU-77aa, 0, 00000000:00:1E.0, 440.64' ;;
esac"""
MIDDLE_SMI = """case $* in
  *compute_cap*) echo 'Field "compute_cap" is not a valid field to query.' ; exit 2 ;;
  *mig.mode*) echo 'NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b, 0, 00000000:17:00.0, 470.57.02, Enabled' ;;
  -L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c3b)'; echo '  MIG 3g.20gb     Device  0: (UUID: MIG-c7e5)' ;;
  *) exit 9 ;;
esac"""
# As nvidia-ctk writes it, shortened.
CDI = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - args: [nvidia-cdi-hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/libcuda.so"]
    hookName: createContainer
  mounts:
  - containerPath: /usr/lib/libcuda.so.535.104.05
    hostPath: /usr/lib/libcuda.so.535.104.05
devices:
- containerEdits: {}
  name: "0"
- name: '1:0'
  containerEdits: {}
- containerEdits: {}
  name: all
kind: nvidia.com/gpu
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_both_ways_report_the_same_of_gpus(vm: ShortMachine) -> None:
    vm.stub_of("nvidia-smi", SMI)
    folder = Path(vm.root, "etc/cdi")
    folder.mkdir(parents=True)
    (folder / "nvidia.yaml").write_text(CDI)
    (folder / "other.json").write_text(
        '{"cdiVersion":"0.5.0","kind":"example.com/nvidia.com/gpu","devices":[{"name":"9"}]}'
    )
    # WSL's library has no driver in its name.
    wsl = Path(vm.root, "run/cdi")
    wsl.mkdir(parents=True)
    mount = "/usr/lib/wsl/drivers/nvdm.inf_amd64_1/libcuda.so.1.1"
    (wsl / "nvidia.yaml").write_text(
        f"containerEdits:\n  mounts:\n  - hostPath: {mount}\ndevices:\n- name: all\nkind: nvidia.com/gpu\n"
    )
    with vm.dockerd("nvidia-container-runtime-hook", "nvidia-container-runtime"):
        done = vm.look("compose")
        by_python, by_client = vm.facts(), vm.by_client()
    (gpu,) = by_python.gpus
    assert (gpu.index, gpu.pci, gpu.mig) == (0, "00000000:17:00.0", ("MIG-c7e5",))
    assert gpu.capability == "8.0"
    assert (by_python.driver, by_python.gpu_fault) == ("535.104.05", "")
    engine = by_python.gpu_engine
    sbin = f"{vm.root}/sbin"
    assert engine.hook == f"{sbin}/nvidia-container-runtime-hook"
    assert engine.runtime == f"{sbin}/nvidia-container-runtime"
    assert not engine.hook_newer
    rows = [line for line in done.text.splitlines() if line.startswith("cdi")]
    of_etc = ("cdi_driver {} 535.104.05", "cdi_driver {} 535.104.05", "cdi {} 0", "cdi {} 1:0", "cdi {} all")
    assert rows == [*(row.format(folder) for row in of_etc), f"cdi {wsl} all"]
    assert (by_python.gpus, by_python.driver, engine.hook) == (
        by_client.gpus,
        by_client.driver,
        by_client.gpu_engine.hook,
    )
    assert by_python.gpu_processes is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("smi", "driver", "mig"), [(MIDDLE_SMI, "470.57.02", ("MIG-c7e5",)), (OLD_SMI, "440.64", None)]
)
def test_drivers_that_do_not_know_all_fields(
    vm: ShortMachine, smi: str, driver: str, mig: tuple[str, ...] | None
) -> None:
    vm.stub_of("nvidia-smi", smi)
    for facts in (vm.facts(), vm.by_client()):
        (gpu,) = facts.gpus
        assert (facts.driver, facts.gpu_fault, gpu.mig, gpu.capability) == (driver, "", mig, "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_gpus_whose_program_hangs_are_not_missing(vm: ShortMachine) -> None:
    """timeout exits with 124 if it ended the program."""
    vm.stub_of("nvidia-smi", "exit 124")
    for facts in (vm.facts(), vm.by_client()):
        assert (facts.gpus, facts.gpu_fault) == ((), "nvidia-smi did not answer within 20 s")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_nvidia_smi_that_cannot_be_ended_hides_nothing_else(vm: ShortMachine, tmp_path: Path) -> None:
    """`timeout` waits for one that hangs in the driver, and its output stays open."""
    vm.stub_of("nvidia-smi", f"echo $$ >>{tmp_path}/hanging; exec sleep 300")
    vm.smi_s = 1
    try:
        begun = time.monotonic()
        for facts in (vm.facts(), vm.by_client()):
            assert (facts.gpus, facts.gpu_fault) == ((), "nvidia-smi did not answer within 20 s")
            assert facts.engine
        assert not any(line.startswith("has ") for line in vm.lines("gpu_processes", "lab"))
        # `timeout` would end it after 20 s.
        assert time.monotonic() - begun < 15
    finally:
        for pid in (tmp_path / "hanging").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_hook_that_came_after_dockerd_started(vm: ShortMachine) -> None:
    vm.stub_of("nvidia-smi", OLD_SMI)
    with vm.dockerd():
        assert vm.facts().gpu_engine.hook == ""
        deadline = time.monotonic() + 30
        while not vm.facts().gpu_engine.hook_newer and time.monotonic() < deadline:
            Path(vm.root, "sbin/nvidia-container-runtime-hook").touch(0o755)
            time.sleep(0.5)
        facts = vm.facts()
    assert facts.gpu_engine.hook_newer
    assert [gpu.uuid for gpu in facts.gpus] == ["GPU-77aa"]
    assert facts.driver == "440.64"


def test_a_vm_without_nvidia_smi_starts_no_program_for_gpus(vm: ShortMachine) -> None:
    assert "gpu_engine" not in vm.look("compose").text
    assert vm.facts().gpu_engine == GpuEngine()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_processes_on_the_gpus(vm: ShortMachine) -> None:
    assert vm.lines("gpu_processes") == []
    gpu = "GPU 0: NVIDIA A100 (UUID: GPU-5c3b)"
    rows = f"GPU-5c3b, {os.getpid()}, 1024\nGPU-5c3b, 4194305, 5\nMIG-c7e5, {os.getpid()}, [N/A]"
    vm.stub_of("nvidia-smi", f"case $* in *compute-apps*) echo '{rows}' ;; -L) echo '{gpu}' ;; esac")
    first, second = gpu_processes(vm.lines("gpu_processes"))
    assert (first.gpu, first.pid, first.memory_mib, first.cluster) == ("GPU-5c3b", os.getpid(), 1024, "")
    assert first.user == Path("/proc/self").owner()
    assert first.command == Path("/proc/self/comm").read_text().strip()
    assert (second.gpu, second.memory_mib) == ("MIG-c7e5", 0)
    assert f"has {gpu}" in vm.lines("gpu_processes", "lab")
    done = vm.run("look", vm.folder, "", "state")
    assert parse(host(1), done.text).gpu_processes == (first, second)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (
            "echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c3b)'; echo 'GPU 1: Tesla T4 (UUID: GPU-77aa)'",
            ({"GPU-5c3b", "GPU-77aa"}, ""),
        ),
        # Since and before driver 470.
        (
            "echo 'GPU 0: A100 (UUID: GPU-5c3b)'; echo '  MIG 1g.5gb     Device  0: (UUID: MIG-c7e5)'; "
            "echo '  MIG 3g.20gb    Device  1: (UUID: MIG-GPU-5c3b/2/0)'",
            ({"GPU-5c3b", "MIG-c7e5", "MIG-GPU-5c3b/2/0"}, ""),
        ),
        (
            "echo Failed to initialize NVML: Unknown Error; exit 255",
            (set(), "Failed to initialize NVML: Unknown Error"),
        ),
        # An image without nvidia-smi, whose node has no device of NVIDIA; then one that has.
        ("case $* in *ls*) ;; *) echo nvidia-smi: not found ;; esac", (set(), "nvidia-smi: not found")),
        ("case $* in *ls*) echo /dev/nvidia0 ;; *) echo not found ;; esac", (None, "")),
    ],
)
def test_the_gpus_that_a_node_sees(vm: ShortMachine, inside: str, expected: tuple[set[str] | None, str]) -> None:
    vm.stub_of("docker", f"case $1 in ps) echo {'f' * 64} ;; exec) {inside} ;; esac")
    assert node_gpus_of(vm.lines("gpu_node", vm.cluster)) == expected
    vm.stub_of("docker", "exit 0")
    assert vm.lines("gpu_node", vm.cluster) == []
