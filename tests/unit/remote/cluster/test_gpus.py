"""From what observe.sh prints about GPUs to facts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kit.model.answer import OddAnswer, decode
from kit.model.observed import Gpu, GpuEngine, GpuProcess
from kit.remote.cluster.forms import Info
from kit.remote.cluster.gpus import GpuList, gpu_engine, gpu_processes, look_for_users, node_gpus_of
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import host

A100 = "NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b, 0, 00000000:17:00.0, 535.104.05, Disabled"
SPLIT = "NVIDIA A100-SXM4-40GB, 40960, GPU-77aa, 1, 00000000:65:00.0, 535.104.05, Enabled"
LIST = [
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c3b)",
    "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-77aa)",
    "  MIG 3g.20gb     Device  0: (UUID: MIG-c7e5)",
    "  MIG 3g.20gb     Device  1: (UUID: MIG-GPU-77aa/2/0)",
]
HOOK = "/usr/bin/nvidia-container-runtime-hook"
BASE = ["program /usr/bin/dockerd", "started 1760000000", "runtime /usr/bin/nvidia-container-runtime"]


def engine_of(*lines: str, **info: Any) -> GpuEngine:
    form: Info = decode(json.dumps(info), Info)
    return gpu_engine(lines, form)


def test_a_row_has_index_bus_and_driver() -> None:
    gpus = GpuList([A100])
    assert gpus.devices() == (
        Gpu(name="NVIDIA A100-SXM4-40GB", memory_mib=40960, uuid="GPU-5c3b", index=0, pci="00000000:17:00.0"),
    )
    assert (gpus.driver(), gpus.fault()) == ("535.104.05", "")


@pytest.mark.parametrize(
    ("more", "expected"), [(", 8.0", "8.0"), (", 12.1", "12.1"), ("", ""), (", [N/A]", ""), (", x", "")]
)
def test_a_row_has_the_compute_capability_if_the_driver_reports_it(more: str, expected: str) -> None:
    (gpu,) = GpuList([A100 + more]).devices()
    assert gpu.capability == expected


def test_mig_devices_belong_to_their_gpu() -> None:
    gpus = GpuList([A100, f"{SPLIT}, 8.0", *LIST])
    assert [gpu.mig for gpu in gpus.devices()] == [None, ("MIG-c7e5", "MIG-GPU-77aa/2/0")]
    assert gpus.fault() == ""


def test_a_gpu_with_mig_and_no_device_of_it() -> None:
    assert [gpu.mig for gpu in GpuList([SPLIT, *LIST[:2]]).devices()] == [()]


def test_a_gpu_that_is_lost_beside_one_that_works() -> None:
    gpus = GpuList(["Unable to determine the device handle for GPU 0000:65:00.0: Unknown\x1b[31m Error", A100])
    assert len(gpus.devices()) == 1
    assert gpus.fault() == "Unable to determine the device handle for GPU 0000:65:00.0: Unknown [31m Error"


def test_what_nvidia_smi_does_not_know() -> None:
    gpus = GpuList(["NVIDIA A100-SXM4-40GB, [N/A], GPU-5c3b, [N/A], [N/A], [N/A], [N/A]"])
    assert gpus.devices() == (Gpu(name="NVIDIA A100-SXM4-40GB", memory_mib=0, uuid="GPU-5c3b"),)
    assert gpus.driver() == ""


def test_the_hook_that_dockerd_would_find() -> None:
    engine = engine_of(*BASE, f"hook {HOOK}", "hook_changed 1750000000", CgroupDriver="systemd")
    assert (engine.hook, engine.hook_newer, engine.toolkit_base_only, engine.snap) == (HOOK, False, False, False)
    assert engine.cgroup_driver == "systemd"


@pytest.mark.parametrize(("changed", "newer"), [(1760000002, False), (1760000003, True)])
def test_a_hook_that_is_newer_than_dockerds_start(changed: int, newer: bool) -> None:
    assert engine_of(*BASE, f"hook {HOOK}", f"hook_changed {changed}").hook_newer is newer


@pytest.mark.parametrize(("now", "newer"), [(1759990000, False), (1760000300, True), (1770000000, True)])
def test_a_hook_from_a_time_still_to_come_is_not_newer(now: int, *, newer: bool) -> None:
    """The VM set its clock back after somebody had installed the hook: a restart of the engine would not help."""
    assert engine_of(*BASE, f"hook {HOOK}", "hook_changed 1760000300", f"now {now}").hook_newer is newer


@pytest.mark.parametrize("lines", [["hook_changed 1760000009"], ["started ", "hook_changed x"]])
def test_an_unknown_time_makes_no_hook_newer(lines: list[str]) -> None:
    assert not engine_of(f"hook {HOOK}", *lines).hook_newer


def test_the_base_package_alone() -> None:
    runtimes = {"nvidia": {"path": "nvidia-container-runtime"}, "io.containerd.runc.v2": {}}
    engine = engine_of(*BASE, Runtimes=runtimes)
    assert engine.toolkit_base_only
    assert engine.runtimes == {"nvidia": "nvidia-container-runtime", "io.containerd.runc.v2": ""}


@pytest.mark.parametrize(
    ("lines", "info"),
    [
        (["program /snap/docker/2963/bin/dockerd"], {}),
        ([], {"DockerRootDir": "/var/snap/docker/common/var-lib-docker"}),
    ],
)
def test_the_docker_of_snap(lines: list[str], info: dict[str, Any]) -> None:
    assert engine_of(*lines, **info).snap


FILES = ["cdi /etc/cdi 0", "cdi /etc/cdi all", "cdi /run/cdi 1", "cdi_driver /etc/cdi 535.104.05"]


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        # CDI is off, or the engine does not know it.
        ({}, (False, ())),
        ({"CDISpecDirs": []}, (False, ())),
        ({"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, (True, ("0", "all", "1"))),
        ({"CDISpecDirs": ["/run/cdi"]}, (True, ("1",))),
        ({"CDISpecDirs": ["/opt/cdi"]}, (True, ())),
        # What the engine lists counts more than the files.
        (
            {
                "CDISpecDirs": ["/etc/cdi"],
                "DiscoveredDevices": [
                    {"Source": "cdi", "ID": "nvidia.com/gpu=all"},
                    {"Source": "cdi", "ID": "amd.com/gpu=0"},
                    {"Source": "cdi", "ID": "nvidia.com/gds=all"},
                    {"Source": "other", "ID": "nvidia.com/gpu=9"},
                ],
            },
            (True, ("all",)),
        ),
        ({"CDISpecDirs": ["/etc/cdi"], "DiscoveredDevices": [{"Source": "cdi", "ID": "intel.com/gpu=0"}]}, (True, ())),
    ],
)
def test_cdi_devices_of_nvidia(info: dict[str, Any], expected: tuple[bool, tuple[str, ...]]) -> None:
    engine = engine_of(*FILES, **info)
    assert (engine.cdi_enabled, engine.cdi) == expected
    assert engine.cdi_driver == ("535.104.05" if "/etc/cdi" in info.get("CDISpecDirs", ()) else "")


@pytest.mark.parametrize(
    ("info", "devices", "driver"),
    [
        ({"CDISpecDirs": ["/etc/cdi", "/var/run/cdi"]}, ("0", "all"), "580.65.06"),
        ({"CDISpecDirs": ["/var/run/cdi", "/etc/cdi"]}, ("0", "1", "all"), "535.104.05"),
        ({"CDISpecDirs": ["/etc/cdi"]}, ("0", "1", "all"), "535.104.05"),
        # As somebody wrote them into daemon.json.
        ({"CDISpecDirs": ["/etc/cdi/", "/var/run/cdi/"]}, ("0", "all"), "580.65.06"),
        (
            {
                "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
                "DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={name}"} for name in ("0", "1", "all")],
            },
            ("0", "all"),
            "580.65.06",
        ),
    ],
)
def test_an_older_cdi_file_in_a_folder_before(info: dict[str, Any], devices: tuple[str, ...], driver: str) -> None:
    """nvidia-cdi-refresh keeps the file in /var/run/cdi up to date, and the engine takes its devices."""
    old = [f"cdi /etc/cdi {name}" for name in ("0", "1", "all")] + ["cdi_driver /etc/cdi 535.104.05"]
    new = ["cdi /run/cdi all", "cdi /run/cdi 0", "cdi_driver /run/cdi 580.65.06", "cdi_driver /run/cdi 470.57.02"]
    engine = engine_of(*old, *new, **info)
    assert (engine.cdi, engine.cdi_driver) == (devices, driver)
    assert engine.cdi_folder == ("/run/cdi" if driver.startswith("580") else "/etc/cdi")


def test_text_that_a_terminal_would_act_on_is_odd() -> None:
    with pytest.raises(OddAnswer):
        engine_of("hook /usr/bin/\x1b]0;x")
    with pytest.raises(OddAnswer):
        engine_of(Runtimes={"nvidia": {"path": "\x1b[2J"}})


def test_processes() -> None:
    lines = ["GPU-5c3b 4711 1024 root lab python3", "GPU-5c3b 12 [N/A] ann - a b", "No running processes", "GPU-x 1"]
    assert gpu_processes(lines) == (
        GpuProcess(gpu="GPU-5c3b", pid=4711, user="root", command="python3", cluster="lab", memory_mib=1024),
        GpuProcess(gpu="GPU-5c3b", pid=12, user="ann", command="a b"),
    )


def test_one_command_finds_processes_and_the_nodes_gpus() -> None:
    class Printing:
        host = host(4)

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            assert argv[3:] == ["kit-gpu_processes", "lab"]
            return Completed(
                code=0,
                stdout=b"GPU-5c3b 4711 1 ann - python3\nhas GPU 0: A (UUID: GPU-5c3b)\nhas x\nsees GPU-5c3b\n",
                stderr=b"",
            )

        def close(self) -> None:
            pass

    (process,), node, (gpu,) = look_for_users(Printing(), "lab")
    assert (process.user, process.pid) == ("ann", 4711)
    assert node == ({"GPU-5c3b"}, "")
    assert (gpu.uuid, gpu.migs) == ("GPU-5c3b", ())


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], (None, "")),
        (["sees GPU-1", "sees GPU-2"], ({"GPU-1", "GPU-2"}, "")),
        (["says Failed to initialize NVML: Unknown Error"], (set(), "Failed to initialize NVML: Unknown Error")),
    ],
)
def test_the_gpus_of_a_node(lines: list[str], expected: tuple[set[str] | None, str]) -> None:
    assert node_gpus_of(lines) == expected
    with pytest.raises(OddAnswer):
        node_gpus_of(["says \x1b[2J"])


@pytest.mark.parametrize("size", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]"])
def test_a_size_that_nvidia_smi_does_not_know_is_none(size: str) -> None:
    row = f"NVIDIA GB10, {size}, GPU-5c3b, 0, [N/A], 580.65.06, [N/A]"
    (gpu,) = GpuList([row]).devices()
    assert (gpu.memory_mib, gpu.pci, gpu.mig) == (0, "", None)


@pytest.mark.parametrize(
    ("size", "more", "fault"),
    [
        ("[GPU requires reset]", "", "GPU 3: GPU requires reset"),
        ("[Unknown Error]", "", "GPU 3: Unknown Error"),
        ("[N/A]", "", ""),
        ("143771", "", ""),
        ("[GPU is lost]", "WARNING: infoROM is corrupted at gpu 0000:17:00.0", "GPU 3: GPU is lost"),
        ("[GPU is lost]", "Failed to initialize NVML: x", "Failed to initialize NVML: x"),
    ],
)
def test_a_gpu_that_failed_is_a_fault(size: str, more: str, fault: str) -> None:
    row = f"NVIDIA H200, {size}, GPU-5c3b, 3, 00000000:17:00.0, 580.65.06, Disabled, 9.0"
    assert GpuList([more, row] if more else [row]).fault() == fault
