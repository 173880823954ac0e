"""The lab's pretended GPUs: nvidia-smi's answers, read by kit's own parsers, the faults, the engine's border."""

from __future__ import annotations

import ast
import errno
import json
import re
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.model.lab import LabSpec
from kit.model.nvidia import values
from kit.model.nvidia.listing import listed
from kit.model.nvidia.state import GpuState, state
from kit.model.nvidia.tables import APP_FIELDS, compute_apps, rows, samples
from kit.model.nvidia.topology import topology
from kit.plan import lab as plan
from tests.fakes import launcher
from tests.unit.remote.ship.porter.test_language import newer

LAB = launcher.IMAGES / "lab"
FILES = sorted((LAB / "pretended").glob("*.py"))


def module(name: str) -> Any:
    return launcher.load(f"pretended.{name}", LAB)


models, states, machine, query, tables, log = (
    module(name) for name in ("models", "state", "machine", "query", "tables", "log")
)
smi, container, gpus, toolkit, runtime = (module(name) for name in ("smi", "container", "gpus", "toolkit", "runtime"))


def lab_host(model: str = "h200", total: int = 2, **values: Any) -> Any:
    return states.State(host="gpu1", model=model, total=total, **values)


def faulty(number: int, *faults: str, model: str = "h200") -> Any:
    return lab_host(model).with_faults(number, frozenset(faults))


def rank(*minors: int, pid: int = 7, load: int = 60, memory: int = 900) -> Any:
    return machine.Process(pid=pid, name="/usr/bin/python3", memory=memory, load=load, minors=frozenset(minors))


def seen(host: Any, *processes: Any, minors: tuple[int, ...] = (0, 1)) -> Any:
    return machine.Machine(state=host, gpus=machine.gpus(host, list(minors), processes), processes=processes)


def answered(words: str, of: Any) -> str:
    command, options = smi.words(words.split())
    return str(smi.answer(command, options, of))


def full(of: Any) -> tuple[GpuState, ...]:
    return state(answered("-q -x", of)).gpus


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_runs_on_an_old_python_of_a_container(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=(3, 6))
    assert newer(path) == []


def test_kit_and_the_hosts_name_the_same_models_and_driver() -> None:
    assert set(plan.GPU_MODELS) == set(models.MODELS)
    assert plan.GPU_TOOLKITS == toolkit.KINDS
    assert {*plan.GPU_FAULTS} == {"xid:79", *gpus.FAULTS}
    assert LabSpec().gpu_driver == models.DRIVER
    assert all(len(set(model.buses)) == plan.MAX_GPUS for model in models.MODELS.values())


def test_it_goes_on_printing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Enough

    def fixed(of: Any, *, sampled: bool) -> Any:
        return seen(of)

    monkeypatch.setattr(smi, "load", lab_host)
    monkeypatch.setattr(smi, "look", fixed)
    monkeypatch.setattr(smi.time, "sleep", sleep)
    with pytest.raises(Enough):
        smi.main(["--query-gpu=index", "--format=csv,noheader", "--loop=2"])
    assert capsys.readouterr().out.split() == ["0", "1"] * 3
    assert pauses == [2, 2, 2]
    assert smi.main(["--query-gpu=index", "--format=csv", "-l", "x"]) == 2


@pytest.mark.parametrize("model", sorted(models.MODELS))
def test_all_formats_describe_the_same_gpus(model: str) -> None:
    of = seen(lab_host(model), rank(1))
    described = full(of)
    names = [(gpu.index, gpu.name, gpu.uuid) for gpu in described]
    assert [name for _, name, _ in names] == [f"{models.MODELS[model].name} (PRETENDED)"] * 2
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in listed(answered("-L", of))] == names
    text = answered("--query-gpu=index,name,uuid,driver_version --format=csv", of)
    table = list(rows(text, ("index", "name", "uuid", "driver_version")))
    assert [(int(row["index"] or -1), row["name"], row["uuid"]) for row in table] == names
    assert {row["driver_version"] for row in table} == {models.DRIVER}
    assert topology(answered("topo -m", of)).between_gpus() == (models.MODELS[model].link,)
    assert [sample.busy_percent for sample in samples(answered("dmon -c 1", of))] == [0, 60]
    asked = f"--query-compute-apps={','.join(APP_FIELDS)} --format=csv,noheader"
    assert [(app.gpu, app.pid, app.memory_mib) for app in compute_apps(answered(asked, of))] == [(names[1][2], 7, 900)]
    assert [len(gpu.processes) for gpu in described] == [0, 1]
    assert answered("", of).count("PRETENDED") == 2
    assert answered("-q", of).count("PRETENDED") == 2
    assert all(len(line) == 91 for line in answered("", of).splitlines()[1:] if line)


def test_the_header_and_the_units_of_a_query() -> None:
    of = seen(lab_host(total=1), minors=(0,))
    fields = "index,memory.total,clocks.sm,utilization.gpu,clocks_throttle_reasons.hw_slowdown"
    header, line = answered(f"--query-gpu={fields} --format=csv", of).splitlines()
    assert header == (
        "index, memory.total [MiB], clocks.current.sm [MHz], utilization.gpu [%], clocks_throttle_reasons.hw_slowdown"
    )
    assert line == "0, 143771 MiB, 345 MHz, 0 %, Not Active"
    assert answered(f"--query-gpu={fields} --format=csv,noheader,nounits", of) == "0, 143771, 345, 0, Not Active\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--query-gpu=color --format=csv", 2),
        ("--query-gpu=index", 2),
        ("--query-gpu=index --format=json", 2),
        ("-i 5 -L", 6),
        ("-i", 2),
        ("reboot", 2),
    ],
)
def test_what_the_real_tool_refuses(words: str, code: int) -> None:
    with pytest.raises(machine.Failed) as caught:
        answered(words, seen(lab_host()))
    assert caught.value.code == code


def test_an_old_driver_knows_fewer_fields() -> None:
    old = seen(faulty(0, "throttle")._replace(driver="470.103.01"))
    for field in ("clocks_event_reasons.hw_slowdown", "compute_cap"):
        with pytest.raises(machine.Failed, match="not a valid field"):
            answered(f"--query-gpu={field} --format=csv", old)
    asked = "--query-gpu=clocks_throttle_reasons.hw_slowdown --format=csv,noheader"
    assert answered(asked, old) == "Active\nNot Active\n"
    assert "<clocks_throttle_reason_hw_slowdown>" in answered("-q -x", old)
    assert "hw_thermal_slowdown" in full(old)[0].reasons


def test_uuids_are_valid_and_stable_and_differ_by_host() -> None:
    uuids = [
        lab_host().uuid(0),
        lab_host().uuid(1),
        lab_host()._replace(host="gpu2").uuid(0),
        lab_host().mig_uuid(0, 0),
    ]
    assert len(set(uuids)) == 4
    assert lab_host().uuid(0) == uuids[0]
    for text in uuids:
        uuid.UUID(text.partition("-")[2])


def test_a_container_counts_its_own_gpus_from_zero() -> None:
    of = seen(lab_host(), minors=(1,))
    assert [(gpu.index, gpu.uuid) for gpu in listed(answered("-L", of))] == [(0, lab_host().uuid(1))]


@pytest.mark.parametrize(
    ("control", "errors", "says"),
    [
        (errno.ENOENT, {}, "couldn't communicate with the NVIDIA driver"),
        (errno.EPERM, {0: errno.EPERM}, "Failed to initialize NVML: Unknown Error"),
    ],
)
def test_what_cannot_be_opened(control: int, errors: dict[int, int], says: str) -> None:
    with pytest.raises(machine.Failed, match=says) as caught:
        machine.usable(errors, control)
    assert values.failure(str(caught.value))


def test_a_node_without_driver_counts_and_a_denied_one_does_not() -> None:
    assert machine.usable({1: errno.EPERM, 0: errno.ENXIO}, errno.ENXIO) == [0]
    assert machine.usable({0: errno.EPERM}, errno.EPERM, unified=True) == [0]


@pytest.mark.parametrize(
    ("environ", "minors"),
    [
        ({}, set()),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1"}, {3}),
        ({"LOCAL_RANK": "4"}, {2}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {3}),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {2, 3}),
        ({"CUDA_VISIBLE_DEVICES": "0,9,1"}, {2}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, {3}),
        ({"CUDA_VISIBLE_DEVICES": "MIG-d4"}, {3}),
        ({"CUDA_VISIBLE_DEVICES": "MIG-x"}, set()),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, set()),
        ({"CUDA_VISIBLE_DEVICES": ""}, set()),
        ({"CUDA_VISIBLE_DEVICES": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, {3}),
    ],
)
def test_the_gpus_of_a_process(environ: dict[str, str], minors: set[int]) -> None:
    assert machine.named(environ, [(2, ("GPU-a1",)), (3, ("GPU-b2", "MIG-c3", "MIG-d4"))]) == minors


def test_a_gpu_is_as_busy_as_its_processes() -> None:
    idle, busy = seen(lab_host(), rank(1), rank(1, pid=8, load=70)).gpus
    assert (idle.load, busy.load) == (0, 100)
    assert busy.used == 1801
    assert query.power(busy) == 700


def test_xid_79_takes_the_gpu_and_writes_to_the_kernel_log() -> None:
    with pytest.raises(machine.Failed, match=r"GPU 0000:3B:00\.0: GPU is lost") as caught:
        answered("-L", seen(faulty(1, "xid:79")))
    assert values.failure(str(caught.value))
    line = gpus.kernel_line(lab_host(), 1, gpus.xid_of("xid:79"), 12.5)
    assert line == (
        "[   12.500000] NVRM: Xid (PCI:0000:3B:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )


@pytest.mark.parametrize("model", sorted(models.MODELS))
def test_ecc_errors_are_counted_and_wait_for_a_reset(model: str) -> None:
    described = full(seen(faulty(0, "ecc", model=model)))
    assert [gpu.uncorrected for gpu in described] == [3, 0]
    assert [gpu.reset_pending for gpu in described] == [True, False]
    field = "--query-gpu=ecc.errors.uncorrected.volatile.total --format=csv,noheader"
    assert answered(field, seen(faulty(0, "ecc", model=model))) == "3\n0\n"


@pytest.mark.parametrize("model", sorted(models.MODELS))
def test_a_gpu_that_must_be_reset_has_no_values(model: str) -> None:
    host = seen(faulty(0, "reset", model=model))
    assert [gpu.failed for gpu in full(host)] == ["GPU requires reset", None]
    rows = answered("--query-gpu=memory.total,temperature.gpu,index --format=csv,noheader", host).splitlines()
    assert rows[0] == "[GPU requires reset], [GPU requires reset], 0"
    assert "MiB" in rows[1]
    assert gpus.xid_of("reset") == 154


def test_a_throttled_gpu_says_so_and_has_a_lower_clock() -> None:
    hot, cool = full(seen(faulty(0, "throttle"), rank(0, 1)))
    assert "hw_thermal_slowdown" in hot.reasons
    assert cool.reasons == ()
    assert hot.sm_mhz is not None
    assert cool.sm_mhz is not None
    assert hot.sm_mhz < cool.sm_mhz / 2


def test_mig_devices_have_uuids_of_their_own() -> None:
    first, second = listed(answered("-L", seen(faulty(1, "mig"))))
    assert first.migs == ()
    assert [mig.profile for mig in second.migs] == ["3g.71gb", "3g.71gb"]
    assert len({mig.uuid for mig in second.migs}) == 2
    assert [len(faulty(1, "mig").uuids(number)) for number in range(2)] == [1, 3]
    assert [gpu.mig for gpu in full(seen(faulty(1, "mig")))] == [False, True]
    assert [mig.uuid for mig in full(seen(faulty(1, "mig")))[1].migs] == [mig.uuid for mig in second.migs]


@pytest.mark.parametrize(
    ("host", "number", "fault", "says"),
    [
        (lab_host("p100"), 0, "mig", "no MIG"),
        (lab_host(), 2, "ecc", "GPUs 0 to 1"),
        (lab_host(), 0, "flood", "no such fault"),
        (lab_host(), 0, "xid:0", "no such fault"),
        (lab_host(unified=True), 0, "lost", "cgroup v2"),
    ],
)
def test_a_fault_that_a_gpu_cannot_have(host: Any, number: int, fault: str, says: str) -> None:
    with pytest.raises(gpus.Refused, match=says):
        gpus.checked(host, number, fault)


def test_the_state_survives_its_file(tmp_path: Path) -> None:
    host = faulty(1, "ecc", "mig")
    states.save(host, str(tmp_path / "state" / "gpus.json"))
    assert states.load(str(tmp_path / "state" / "gpus.json")) == host


@pytest.mark.parametrize(
    ("visible", "minors"),
    [("", None), ("void", None), ("none", []), ("all", [0, 1]), ("1", [1]), ("1,0", [0, 1]), (lab_host().uuid(1), [1])],
)
def test_what_a_container_asks_for(visible: str, minors: list[int] | None) -> None:
    assert container.chosen(lab_host(), visible) == minors


def test_a_container_that_asks_for_a_gpu_that_is_not_there() -> None:
    with pytest.raises(container.Unknown, match="2"):
        container.chosen(lab_host(), "0,2")


def test_the_device_cgroup_of_a_container_in_a_lab_host() -> None:
    path = container.cgroup_of("6:memory:/docker/lab\n5:devices:/docker/lab/docker/node\n0::/\n")
    mounts = (
        "95 90 0:30 /docker/lab /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
        "96 90 0:31 /docker/lab /sys/fs/cgroup/devices rw,nosuid - cgroup cgroup rw,devices\n"
    )
    assert container.below(mounts, path) == "/sys/fs/cgroup/devices/docker/node"
    assert container.below(mounts, "/docker/laboratory") is None
    assert container.cgroup_of("0::/docker/lab\n") is None


def test_the_cdi_file_has_each_gpu_by_number_and_uuid() -> None:
    devices = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in toolkit.cdi(lab_host())["devices"]
    }
    assert devices["all"] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert "libcuda.so.550.54.15" in json.dumps(toolkit.cdi(lab_host()))
    assert devices["1"] == devices[lab_host().uuid(1)] == ["/dev/nvidia1"]


def test_what_the_toolkit_configures_in_the_engine() -> None:
    made = {kind: toolkit.daemon_json(lab_host(), kind) for kind in toolkit.KINDS}
    assert made["hook"] == made["none"] == {}
    assert made["runtime"]["default-runtime"] == "nvidia"
    assert set(made["base"]) == {"runtimes"}
    assert made["snap"]["data-root"].startswith("/var/snap/")
    assert made["cdi"] == {"features": {"cdi": True}}
    advertised = made["swarm"].pop("node-generic-resources")
    assert made["swarm"] == made["runtime"]
    assert advertised == [f"NVIDIA-GPU={lab_host().uuid(number)}" for number in (0, 1)]


def test_the_runtime_changes_only_a_bundle_that_is_created() -> None:
    assert runtime.bundle_of(["--root", "/run", "create", "--bundle", "/b", "id"]) == "/b"
    assert runtime.bundle_of(["--root", "/run", "start", "id"]) == ""


@pytest.mark.parametrize(("driver", "cuda"), [("550.54.15", "12.4"), ("470.103.01", "11.4"), ("390.1", "9.2")])
def test_the_cuda_version_of_a_driver(driver: str, cuda: str) -> None:
    assert models.cuda_of(driver) == cuda
    assert re.search(rf"CUDA Version: {cuda}", answered("", seen(lab_host(driver=driver))))


@pytest.mark.parametrize(
    ("argv", "launcher"),
    [
        (("sh", "-c", "python3 train.py"), True),
        (("/usr/bin/mpirun", "-np", "2"), True),
        (("python3", "-IS", "/opt/kit/bin/kit-rank", "sh"), True),
        (("python3", "-IS", "train.py"), False),
        (("/opt/venv/bin/python", "-m", "horovod"), False),
        (("python3",), False),
        (("sleep", "60"), False),
    ],
)
def test_what_only_starts_others_opens_no_gpu(argv: tuple[str, ...], launcher: bool) -> None:
    assert machine.launches(argv) is launcher


@pytest.mark.parametrize(
    ("model", "total", "cpus", "near"),
    [
        ("h200", 2, "0-1", ["0", "1"]),
        ("h200", 8, "0-7", ["0-3"] * 4 + ["4-7"] * 4),
        ("h200", 2, "0", ["0", "0"]),
        ("h200", 2, "0-2,8", ["0-1", "2,8"]),
        ("p100", 2, "0-1", ["0", "0"]),
    ],
)
def test_each_gpu_is_near_the_cores_of_its_socket(model: str, total: int, cpus: str, near: list[str]) -> None:
    of = seen(lab_host(model, total), minors=tuple(range(total)))
    assert list(topology(tables.topology(of, cpus)).cpus.values()) == near


def test_gpus_without_nvlink_share_a_switch_in_pairs() -> None:
    links = topology(tables.topology(seen(lab_host("p100", 8), minors=tuple(range(8))), "0-1")).links
    assert (links["GPU0", "GPU1"], links["GPU0", "GPU2"], links["GPU0", "GPU4"]) == ("PIX", "PHB", "SYS")


def test_two_faults_at_once_both_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "gpus.json")
    states.save(lab_host(), path)
    monkeypatch.setattr(gpus, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(gpus, "load", partial(states.load, path))
    monkeypatch.setattr(gpus, "save", partial(states.save, path=path))
    monkeypatch.setattr(gpus, "lost", lambda: 0)
    second = threading.Thread(target=gpus.run, args=(["fault", "1", "mig"],))
    inject = gpus.fault

    def begun(state: Any, number: int, kind: str) -> Any:
        """Let the other fault come between this one's reading and writing, if it can."""
        if kind == "throttle":
            second.start()
            second.join(0.2)
        return inject(state, number, kind)

    monkeypatch.setattr(gpus, "fault", begun)
    gpus.run(["fault", "0", "throttle"])
    second.join()
    assert states.load(path).faults == ((0, frozenset({"throttle"})), (1, frozenset({"mig"})))
