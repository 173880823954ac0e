"""The checks of GPUs: what they say about the output of nvidia-smi and about files of the driver."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.model.doctor import Command, Examined, Ran
from kit.plan.doctor.checks import (
    gpu_acs,
    gpu_busy,
    gpu_clocks,
    gpu_count,
    gpu_driver_module,
    gpu_ecc,
    gpu_fabric,
    gpu_mode,
    gpu_next_kernel,
    gpu_numa,
    gpu_pcie,
    gpu_peermem,
    gpu_persistence,
    gpu_throttle,
    gpu_upgrades,
    gpu_versions,
    gpu_xid,
)
from tests.fakes.doctor import Machine, judged, rows, seen
from tests.unit.plan.doctor.clean import machine

CAPTURES = Path(__file__).parents[3] / "captures/nvidia-smi"
SMI, TOPO = ("nvidia-smi", "-q", "-x"), ("nvidia-smi", "topo", "-m")
LOG = ("dmesg", "--level=emerg,alert,crit,err,warn,notice")
MODINFO = ("modinfo", "-F", "version", "nvidia", "nvidia-current", "nvidia-current-open")
APT = ("apt-config", "dump", "APT::Periodic::Unattended-Upgrade", "Unattended-Upgrade::Package-Blacklist")
DPKG = ("dpkg-query", "-W", "-f=${db:Status-Want} ${Package}\\n", "*nvidia*")
PS = ("ps", "-eo", "pid=,user:32=,comm:20=,cgroup=")
DOCKER_PS = ("docker", "ps", "--no-trunc", "--filter", "label=kit.cluster", "--format", "{{.ID}}")
FABRIC_VERSION = ("nv-fabricmanager", "--version")
MANAGER = ("systemctl", "is-active", "nvidia-fabricmanager")
LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 02:01:03 UTC 2025\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder)\n"
NVLINK = "[1.0] NVRM: Xid (PCI:0018:01:00): {}, RLW_REMAP {} XC1 i0 Link 10 (0x00000004 0x00000000 0x00000000)\n"
NVRM = "[ 8310.120] NVRM: Xid (PCI:0000:3b:00): {}, pid='<unknown>', name=<unknown>, x\n"
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"
KERNEL = "6.1.0-27-cloud-amd64"
APT_ON = 'APT::Periodic::Unattended-Upgrade "1";\n'
PEERMEM = "/sys/module/nvidia_peermem"
NODE = "a" * 64
FAR = """\
	GPU0	GPU1	NIC0	CPU Affinity	NUMA Affinity
GPU0	 X 	NV18	{}	0-47	0
GPU1	NV18	 X 	{}	48-95	1
NIC0	{}	{}	 X

NIC Legend:

  NIC0: mlx5_0
"""


@cache
def capture(name: str = "h200x2-570", file: str = "state.xml") -> str:
    return (CAPTURES / name / file).read_text()


def gpus(number: int) -> Machine:
    """Return a sound VM with two H200."""
    return machine(number).but(
        files={
            "/proc/driver/nvidia/version": LOADED,
        },
        runs={
            SMI: capture(),
            TOPO: capture(file="topology.txt"),
            MODINFO: "570.124.06\n",
            APT: APT_ON,
            DPKG: "hold nvidia-driver-570\ninstall nvidia-settings\nunknown nvidia-driver-535\n",
            PS: f"      1 root                             systemd              0::/init.scope\n"
            f"  41210 root                             python3              0::/system.slice/docker-{NODE}.scope\n",
            DOCKER_PS: f"{NODE}\n",
            FABRIC_VERSION: "Fabric Manager version is : 570.124.06\n",
        },
        links={
            "/proc/driver/nvidia-nvswitch/devices/0000:c1:00.0": "",
            "/sys/class/infiniband/mlx5_0/device/driver": "x/mlx5_core",
            PEERMEM: "",
        },
    )


HOSTS = tuple(gpus(number) for number in (1, 2, 3))
CHECKED = (
    *(gpu_acs, gpu_busy, gpu_clocks, gpu_count, gpu_driver_module, gpu_ecc, gpu_fabric, gpu_mode, gpu_next_kernel),
    *(gpu_numa, gpu_pcie, gpu_peermem, gpu_persistence, gpu_throttle, gpu_upgrades, gpu_versions, gpu_xid),
)


def smi(old: str, new: str, count: int = -1) -> dict[str, Any]:
    assert old in capture()
    return {"runs": {SMI: capture().replace(old, new, count)}}


def run(argv: tuple[str, ...], out: str | Ran | None) -> dict[str, Any]:
    return {"runs": {argv: out}}


def boot(*modules: str) -> dict[str, Any]:
    # In the order of a shell.
    kernels = (KERNEL, "6.1.0-31-cloud-amd64", "6.1.0-9-cloud-amd64")
    paths = [*(f"/boot/vmlinuz-{kernel}" for kernel in kernels), *(f"/lib/modules/{module}" for module in modules)]
    return {"links": dict.fromkeys(paths, "")}


def log(*lines: str) -> dict[str, Any]:
    return run(LOG, "".join(lines))


def values_failed(word: str, *tags: str) -> dict[str, Any]:
    """Return a state with this word in place of the values of GPU 0."""
    xml = capture("h200x1-580")
    for tag in tags:
        assert f"<{tag}>" in xml
        xml = re.sub(f"<{tag}>[^<]*<", f"<{tag}>{word}<", xml)
    return run(SMI, xml)


RECOVERY = "[ 8310.120] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from {} to {}\n"
FAULTS = """\
[  190.718124] NVRM: GPU at PCI:0000:00:06: GPU-00000000-0000-0000-0000-000000000001
[  190.718136] NVRM: Xid (PCI:0000:00:06): 43, pid=4426, name=python3, channel 0x0000000a
[  245.753538] NVRM: Xid (PCI:0000:00:06): 31, pid=5068, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: \
ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE
"""
NARROW = "<current_link_width>16x<", "<current_link_width>4x<"
CLOCKS = "<applications_clocks><graphics_clock>{} MHz</graphics_clock></applications_clocks><max_clocks>"
FM = "<fabric>\n\t\t\t<state>Completed<"
MIG = "<current_mig>Disabled</current_mig>\n\t\t\t<pending_mig>Disabled"
CASES: list[tuple[Any, dict[str, Any], list[str]]] = [
    (gpu_xid, log(NVRM.format(79)), ["Xid 79 on 0000:3b:00 (the GPU fell off the bus)"]),
    (gpu_xid, log(NVRM.format(74), NVRM.format(74)), ["Xid 74 on 0000:3b:00 (NVLink failed), 2 times"]),
    (
        gpu_xid,
        log("NVRM: Xid (0000:03:00): 62, Channel 00000001\n"),
        ["Xid 62 on 0000:03:00 (the GPU's own firmware stopped)"],
    ),
    (
        gpu_xid,
        log(
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No\n",
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 31, pid=7194, name=python3, Ch 00000008\n",
        ),
        [
            "Xid 94 on 0000:01:00 GPU-I:05 (memory error, one program ended)",
            "Xid 31 on 0000:01:00 GPU-I:05 GPU-CI:00 (a program used a wrong address)",
        ],
    ),
    (gpu_xid, log(NVRM.format(45), NVRM.format(63)), []),
    (gpu_xid, run(LOG, Ran(code=1, out=NVRM.format(79))), []),
    (
        gpu_xid,
        log("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 30\n"),
        ["SXid 12028 on 0000:c1:00.0 (Fatal)"],
    ),
    (gpu_xid, log("a program printed NVRM: Xid (PCI:x\x1b): 79\n"), []),
    (
        gpu_ecc,
        smi("<dram_uncorrectable>0<", "<dram_uncorrectable>7<", 1),
        ["GPU 0: 7 memory errors that ECC could not correct"],
    ),
    (
        gpu_ecc,
        smi("<remapped_row_pending>No", "<remapped_row_pending>Yes"),
        ["GPU [0-1]: memory rows or pages wait for a reset"],
    ),
    (
        gpu_ecc,
        smi("<remapped_row_failure>No", "<remapped_row_failure>Yes", 1),
        ["GPU 0: a memory row could not be replaced"],
    ),
    *(
        (gpu_ecc, values_failed("Yes", tag), [f"GPU 0: {text}"])
        for tag, text in {
            "channel_repair_pending": "a repair waits for a reset",
            "tpc_repair_pending": "a repair waits for a reset",
            "unrepairable_memory": "its memory cannot be repaired",
            "sram_threshold_exceeded": "its SRAM has more errors than NVIDIA allows",
        }.items()
    ),
    *(
        (gpu_ecc, values_failed(action, "gpu_recovery_action"), [f"GPU 0: the driver asks for: {action}"])
        for action in ("Reset", "Reboot", "Drain and Reset")
    ),
    *((gpu_ecc, values_failed(action, "gpu_recovery_action"), []) for action in ("None", "N/A", "Unknown Error")),
    *(
        (gpu_ecc, values_failed(word, "total", "sm_clock", "gpu_temp"), [f'GPU 0: nvidia-smi reports "{word}"'])
        for word in ("GPU requires reset", "GPU is lost", "Unknown Error", "ERR!")
    ),
    (
        gpu_ecc,
        values_failed("GPU requires reset", "gpu_temp", "remapped_row_pending"),
        ['GPU 0: nvidia-smi reports "GPU requires reset"'],
    ),
    # Sound GPUs of some models have these for what they lack.
    (gpu_ecc, values_failed("Unknown Error", "sm_clock", "gpu_util", "fan_speed", "gpu_temp"), []),
    (gpu_ecc, values_failed("ERR!", "instant_power_draw", "fan_speed", "total"), []),
    (gpu_ecc, values_failed("N/A", "total", "sm_clock", "gpu_temp", "gpu_util"), []),
    (gpu_ecc, run(SMI, capture()[:3000]), []),
    (
        gpu_ecc,
        run(SMI, Ran(code=14, out=capture().replace("<dram_uncorrectable>0<", "<dram_uncorrectable>7<", 1) + INFOROM)),
        ["GPU 0: 7 memory errors that ECC could not correct"],
    ),
    (gpu_ecc, run(SMI, Ran(code=None, out=capture().replace("<dram_uncorrectable>0<", "<dram_uncorrectable>7<"))), []),
    (gpu_driver_module, run(MODINFO, "575.51.03\n"), ["570.124.06 is loaded, 575.51.03 is installed"]),
    (gpu_driver_module, {"files": {"/proc/driver/nvidia/version": OPEN}}, []),
    (gpu_driver_module, run(MODINFO, Ran(code=1, out="", err="not found")), []),
    # Debian has only nvidia-current.
    (
        gpu_driver_module,
        run(MODINFO, Ran(code=1, out="550.163.01\n", err="modinfo: ERROR: Module nvidia not found.")),
        ["570.124.06 is loaded, 550.163.01 is installed"],
    ),
    (gpu_driver_module, run(MODINFO, Ran(code=1, out="550.163.01\n570.124.06\n")), []),
    (
        gpu_driver_module,
        {
            "files": {"/proc/driver/nvidia/version": None},
            **run(SMI, Ran(code=18, out=capture("failures", "driver-mismatch.txt"))),
        },
        ["the loaded driver and its libraries have different versions"],
    ),
    (gpu_upgrades, run(DPKG, "install nvidia-driver-570\n"), ["unattended-upgrades may replace nvidia-driver-570"]),
    (
        gpu_upgrades,
        run(DPKG, "install libnvidia-compute-570\ninstall nvidia-dkms-570\n"),
        ["unattended-upgrades may replace libnvidia-compute-570 and 1 more"],
    ),
    (
        gpu_upgrades,
        {"runs": {DPKG: "install nvidia-driver-570\n", APT: 'APT::Periodic::Unattended-Upgrade "0";\n'}},
        [],
    ),
    (
        gpu_upgrades,
        {
            "runs": {
                DPKG: "install nvidia-driver-570\n",
                APT: 'APT::Periodic::Unattended-Upgrade "1";\nUnattended-Upgrade::Package-Blacklist:: "nvidia-";\n',
            }
        },
        [],
    ),
    # One for other packages spares no driver, nor does another setting that names it.
    *(
        (
            gpu_upgrades,
            {
                "runs": {
                    DPKG: "install nvidia-driver-570\n",
                    APT: f'APT::Periodic::Unattended-Upgrade "1";\nUnattended-Upgrade::{line}\n',
                }
            },
            ["unattended-upgrades may replace nvidia-driver-570"],
        )
        for line in ('Package-Blacklist:: "docker-";', 'Package-Whitelist:: "nvidia-";')
    ),
    (gpu_upgrades, {"runs": {DPKG: "install nvidia-driver-570\n", APT: Ran(code=1, out=APT_ON)}}, []),
    (gpu_upgrades, {"runs": {DPKG: "install nvidia-driver-570\n", APT: "\n"}}, []),
    (
        gpu_next_kernel,
        boot(f"{KERNEL}/updates/dkms/nvidia-current.ko"),
        ["the newest kernel 6.1.0-31-cloud-amd64 has no nvidia module"],
    ),
    (
        gpu_next_kernel,
        boot(f"{KERNEL}/updates/dkms/nvidia.ko", "6.1.0-31-cloud-amd64/kernel/nvidia-570/nvidia.ko.zst"),
        [],
    ),
    (gpu_next_kernel, boot(f"{KERNEL}/updates/dkms/nvidia-drm.ko"), []),
    (gpu_next_kernel, boot("6.1.0-9-cloud-amd64/updates/dkms/nvidia.ko"), []),
    (
        gpu_persistence,
        smi("<persistence_mode>Enabled", "<persistence_mode>Disabled"),
        ["GPU [0-1]: persistence mode is off"],
    ),
    (gpu_fabric, smi(FM, FM.replace("Completed", "In Progress"), 1), ["GPU 0: the fabric's state is In Progress"]),
    (
        gpu_fabric,
        {
            "runs": {
                SMI: capture().replace(FM, FM.replace("Completed", "In Progress")),
                FABRIC_VERSION: "Fabric Manager version is : 565.1.2",
            }
        },
        ["GPU [0-1]: the fabric's state is In Progress; the fabric manager has version 565.1.2, the driver 570.124.06"],
    ),
    *(
        (
            gpu_fabric,
            smi("<status>Success", f"<status>{status}", 1),
            [f"GPU 0: the GPU could not join the fabric: {status}"],
        )
        for status in ("Insufficient Resources", "Unknown Error", "In use by another client")
    ),
    (gpu_fabric, smi("<status>Success", "<status>N/A"), []),
    (gpu_fabric, smi("<status>Success</status>", ""), []),
    (gpu_fabric, smi(FM, FM.replace("Completed", "N/A")), []),
    (
        gpu_fabric,
        run(FABRIC_VERSION, "Fabric Manager version is : 565.1.2"),
        ["the fabric manager has version 565.1.2, the driver 570.124.06"],
    ),
    (gpu_fabric, run(FABRIC_VERSION, Ran(code=1, out="Fabric Manager version is : 565.1.2")), []),
    *(
        (
            gpu_fabric,
            run(MANAGER, Ran(code=3, out=f"{state}\n")),
            ["the VM has NVSwitches, and nvidia-fabricmanager does not run"],
        )
        for state in ("inactive", "failed")
    ),
    *((gpu_fabric, run(MANAGER, Ran(code=code, out=f"{state}\n")), []) for code, state in ((0, "active"), (4, ""))),
    # Without NVSwitches, a VM needs no manager.
    (
        gpu_fabric,
        {
            "links": {"/proc/driver/nvidia-nvswitch/devices/0000:c1:00.0": None},
            **run(MANAGER, Ran(code=3, out="inactive\n")),
        },
        [],
    ),
    (gpu_pcie, smi(*NARROW, 1), ["GPU 0: 4 of 16 PCIe lanes"]),
    (gpu_pcie, smi("<current_link_gen>5<", "<current_link_gen>1<", 1), ["GPU 0: PCIe generation 1 of 5 under load"]),
    (
        gpu_throttle,
        smi("hw_thermal_slowdown>Not Active", "hw_thermal_slowdown>Active"),
        ["GPU [0-1]: the clock is held down by heat"],
    ),
    (
        gpu_throttle,
        smi("power_brake_slowdown>Not Active", "power_brake_slowdown>Active", 1),
        ["GPU 0: the clock is held down by the machine's power supply"],
    ),
    (gpu_busy, run(DOCKER_PS, ""), ["GPU 0: python3 of root, process 41210"]),
    (gpu_busy, run(DOCKER_PS, None), []),
    (
        gpu_busy,
        run(PS, "  41210 alice                            my \x1b prog             0::/user.slice\n"),
        ["GPU 0: my \\x1b prog of alice, process 41210"],
    ),
    (gpu_busy, run(PS, None), []),
    (
        gpu_busy,
        run(PS, Ran(code=1, out="  41210 alice                            prog                 0::/user.slice\n")),
        [],
    ),
    # An engine that does not answer knows no container.
    (gpu_busy, run(DOCKER_PS, Ran(code=1, out="")), []),
    # A desktop.
    (
        gpu_busy,
        {
            "runs": {
                PS: "  41210 root                             Xorg                 0::/user.slice\n",
                SMI: capture().replace("<type>C</type>", "<type>G</type>"),
            }
        },
        [],
    ),
    (
        gpu_mode,
        smi("<compute_mode>Default", "<compute_mode>Prohibited"),
        ["GPU [0-1]: no program may compute (mode Prohibited)"],
    ),
    (
        gpu_mode,
        smi("<compute_mode>Default", "<compute_mode>Exclusive_Process", 1),
        ["GPU 0: only one process may compute (mode Exclusive_Process)"],
    ),
    (
        gpu_mode,
        smi("<current_mig>Disabled", "<current_mig>Enabled", 1),
        [
            "GPU 0: MIG will be off after a reset",
            "GPU 0: MIG is on without a MIG device, so no program can compute",
            "GPU 0: MIG is on, usual off",
        ],
    ),
    (
        gpu_mode,
        smi(MIG, MIG.replace("Disabled", "Enabled")),
        ["GPU [0-1]: MIG is on without a MIG device, so no program can compute", "GPU [0-1]: MIG is on, usual off"],
    ),
    (gpu_mode, smi("<pending_mig>Disabled", "<pending_mig>Enabled", 1), ["GPU 0: MIG will be on after a reset"]),
    # A GPU that has no MIG.
    (gpu_mode, smi("<current_mig>Disabled", "<current_mig>N/A", 1), []),
    (gpu_mode, smi("<pending_mig>Disabled", "<pending_mig>N/A", 1), []),
    (gpu_peermem, {"links": {PEERMEM: None}}, ["the module nvidia_peermem is not loaded"]),
    (gpu_peermem, {"links": {PEERMEM: None}, "files": {"/proc/driver/nvidia/version": OPEN}}, []),
    (gpu_peermem, {"links": {PEERMEM: None}, "files": {"/proc/driver/nvidia/version": None}}, []),
    (gpu_peermem, {"links": {PEERMEM: None, "/sys/class/infiniband/mlx5_0/device/driver": "drivers/efa"}}, []),
    (gpu_peermem, {"links": {PEERMEM: None}, "runs": {SMI: None}}, []),
    (
        gpu_acs,
        run(("lspci", "-vvv", "-d", "::0604"), "00:01.0 PCI\n\t\tACSCtl:\tSrcValid+ TransBlk-\n"),
        ["ACS is on in 1 PCIe bridge"],
    ),
    (gpu_acs, run(("lspci", "-vvv", "-d", "::0604"), "00:01.0 PCI\n\t\tACSCtl:\tSrcValid- TransBlk-\n"), []),
    (
        gpu_acs,
        {
            **run(("lspci", "-vvv", "-d", "::0604"), "\t\tACSCtl:\tSrcValid+\n"),
            "files": {"/proc/cpuinfo": "flags\t\t: fpu hypervisor x\n"},
        },
        [],
    ),
    (
        gpu_versions,
        smi("<driver_version>570.124.06", "<driver_version>550.54.15"),
        ["driver 550.54.15, usual 570.124.06"],
    ),
    (
        gpu_count,
        smi("<product_name>NVIDIA H200", "<product_name>NVIDIA H100", 1),
        ["1 × NVIDIA H100 and 1 × NVIDIA H200, usual 2 × NVIDIA H200"],
    ),
    (gpu_count, run(SMI, capture("t4-450")), ["1 × Tesla T4, usual 2 × NVIDIA H200"]),
    (
        gpu_numa,
        run(TOPO, FAR.format("SYS", "SYS", "SYS", "SYS")),
        ["GPU[0-1]: each RDMA adapter is on another NUMA node"],
    ),
    (gpu_numa, run(TOPO, FAR.format("PIX", "SYS", "PIX", "SYS")), ["GPU1: each RDMA adapter is on another NUMA node"]),
    (gpu_numa, run(TOPO, FAR.format("PHB", "NODE", "PHB", "NODE")), []),
    (gpu_numa, run(TOPO, Ran(code=1, out=FAR.format("SYS", "SYS", "SYS", "SYS"))), []),
    (gpu_clocks, smi("<max_clocks>", CLOCKS.format(1095), 1), ["GPU 0: the application clock is 1095 of 1980 MHz"]),
    (gpu_clocks, smi("<max_clocks>", CLOCKS.format(1980)), []),
    (gpu_clocks, smi("<max_clocks>", CLOCKS.format("N/A")), []),
]


@pytest.mark.parametrize(("module", "change", "expected"), CASES)
def test_one_host_is_named(module: Any, change: dict[str, Any], expected: list[str]) -> None:
    sights = judged(module.CHECK, HOSTS[0], HOSTS[1].but(**change), HOSTS[2])
    assert rows(sights) == [("gpu2", text) for text in expected]


@pytest.mark.parametrize("module", CHECKED)
def test_sound_gpus_have_no_finding(module: Any) -> None:
    assert list(judged(module.CHECK, *HOSTS)) == []


@pytest.mark.parametrize("module", CHECKED)
@pytest.mark.parametrize("failure", sorted(path.name for path in (CAPTURES / "failures").iterdir()))
def test_a_failure_of_nvidia_smi_is_no_finding_of_its_values(module: Any, failure: str) -> None:
    broken = Ran(code=9, out=capture("failures", failure))
    host = HOSTS[1].but(runs={SMI: broken, TOPO: broken})
    expected = 1 if module is gpu_driver_module and failure == "driver-mismatch.txt" else 0
    assert len(judged(module.CHECK, HOSTS[0], host, HOSTS[2])) == expected


def test_an_error_of_a_program_is_only_worth_a_look() -> None:
    sights = judged(gpu_xid.CHECK, HOSTS[0].but(**log(NVRM.format(31), NVRM.format(48))))
    assert [sight.severity for sight in sights] == ["watch", "breaks"]
    # Only the broken one needs what the check advises: to reset the GPU.
    assert ["needs no reset" in sight.fix for sight in sights] == [True, False]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (NVRM.format(137), [("watch", True)]),
        *(
            (NVRM.format(number), [("watch", True)])
            for number in (
                *(8, 11, 14, 25, 32, 37, 38, 39, 40, 41, 44, 60, 66, 67, *range(68, 73), 75, 76, 77, 80),
                *(*range(82, 87), 88, 89, 92, 93, *range(96, 109), 121, *range(126, 136), 139, 141, 157, 160, 161),
            )
        ),
        *(
            (NVRM.format(number), [("breaks", False)])
            for number in (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 146, 149, 150, 155, 156, 158)
        ),
        # The memory's, so a reset is due some time.
        (NVRM.format(94), [("watch", False)]),
        *((NVLINK.format(number, "Nonfatal"), [("watch", False)]) for number in (144, 145, 147, 148)),
        *((NVLINK.format(number, "Nonfatal"), [("breaks", False)]) for number in (146, 149, 150)),
        *((NVLINK.format(number, "Fatal"), [("breaks", False)]) for number in range(144, 151)),
        (RECOVERY.format("0x0 (None)", "0x1 (GPU Reset Required)"), [("breaks", False)]),
        (RECOVERY.format("0x1 (GPU Reset Required)", "0x0 (None)"), []),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 30\n", [("breaks", False)]),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, Link 30\n", [("watch", False)]),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Data {0x00000001, 0x00000000}\n", []),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Severity 1 Engine instance 30\n", []),
    ],
)
def test_how_bad_a_line_of_the_log_is(line: str, expected: list[tuple[str, bool]]) -> None:
    """As NVIDIA's catalog says. A line that only adds numbers to another one says nothing new."""
    sights = judged(gpu_xid.CHECK, HOSTS[0].but(**log(line)))
    assert [(sight.severity, "needs no reset" in sight.fix) for sight in sights] == expected


def test_a_reset_leaves_the_log_so_the_fix_clears_it() -> None:
    """Otherwise kit doctor --cordon would cordon the repaired host again."""
    assert "clear the log, `sudo dmesg -C`" in gpu_xid.CHECK.fix


def test_many_faults_of_programs_hide_no_broken_gpu() -> None:
    lines = [NVRM.format(31).replace("3b", f"{bus:02x}") for bus in range(16)]
    sights = judged(gpu_xid.CHECK, HOSTS[0].but(**log(*lines, NVRM.format(79))))
    assert [sight.severity for sight in sights] == ["watch"] * 7 + ["breaks"]


def test_the_end_of_the_log_counts() -> None:
    """The oldest lines of a server that has run for months fill the answer."""
    (read,) = gpu_xid.CHECK.reads
    assert isinstance(read, Command)
    assert read.tail


def test_the_log_of_a_real_gpu_after_two_faults_of_programs() -> None:
    """An H200 with driver 580.159.04: a failed assertion in a kernel (43), then a write to a wrong address (31)."""
    sights = judged(gpu_xid.CHECK, HOSTS[0].but(**log(*FAULTS.splitlines(keepends=True))))
    assert [(sight.seen, sight.severity) for sight in sights] == [
        ("Xid 31 on 0000:00:06 (a program used a wrong address)", "watch")
    ]


def test_lanes_that_all_gpus_lack_are_only_worth_a_look() -> None:
    """Some clouds give each GPU of a type half of its lanes."""
    hosts = [host.but(**smi(*NARROW)) for host in HOSTS]
    assert {sight.severity for sight in judged(gpu_pcie.CHECK, *hosts)} == {"watch"}
    assert [sight.severity for sight in judged(gpu_pcie.CHECK, hosts[0], *HOSTS[1:])] == [None]


def test_of_two_hosts_the_worse_gpus_are_the_heads() -> None:
    narrow = HOSTS[0].but(**smi(*NARROW))
    assert [(sight.hosts, sight.severity) for sight in judged(gpu_pcie.CHECK, narrow, HOSTS[1])] == [(("gpu1",), None)]
    one_gpu = capture()[: capture().index('<gpu id="00000000:3B')] + "</nvidia_smi_log>"
    fewer = HOSTS[0].but(runs={SMI: one_gpu})
    assert rows(judged(gpu_count.CHECK, fewer, HOSTS[1])) == [("gpu1", "1 × NVIDIA H200, usual 2 × NVIDIA H200")]
    assert [sight.hosts for sight in judged(gpu_count.CHECK, fewer, HOSTS[1], fewer)] == [("gpu2",)]


def test_gpus_with_mig_devices_can_compute() -> None:
    divided = HOSTS[0].but(runs={SMI: capture("a100-mig-470")})
    assert list(judged(gpu_mode.CHECK, divided, divided)) == []
    # Where most have it, a GPU without is the exception.
    assert "MIG is off, usual on" in rows(judged(gpu_mode.CHECK, divided, divided, HOSTS[2]))[0][1]


@pytest.mark.parametrize(("second", "severity"), [("SYS", None), ("PIX", "watch")])
def test_gpus_of_which_some_are_near_an_adapter_are_only_worth_a_look(second: str, severity: str | None) -> None:
    host = HOSTS[0].but(**run(TOPO, FAR.format("SYS", second, "SYS", second)))
    assert [sight.severity for sight in judged(gpu_numa.CHECK, host)] == [severity]


def test_bridges_of_a_host_with_one_gpu_may_have_acs() -> None:
    out = "00:01.0 PCI\n\t\tACSCtl:\tSrcValid+ TransBlk-\n"
    acs = ("lspci", "-vvv", "-d", "::0604")
    both = HOSTS[0].but(runs={acs: out * 2})
    assert rows(judged(gpu_acs.CHECK, both)) == [("gpu1", "ACS is on in 2 PCIe bridges")]
    one_gpu = capture()[: capture().index('<gpu id="00000000:3B')] + "</nvidia_smi_log>"
    for runs in ({SMI: one_gpu}, {SMI: None}, {acs: Ran(code=1, out=out)}):
        assert list(judged(gpu_acs.CHECK, both.but(runs=runs))) == []


def test_a_gpu_without_work_may_lower_its_link() -> None:
    idle = capture().replace("<current_link_gen>5<", "<current_link_gen>1<")
    # Nothing holds its clock down, and no program is on it.
    unused = re.sub(r"(?s)<process_info>.*?</process_info>", "", idle)
    assert list(judged(gpu_pcie.CHECK, HOSTS[0].but(runs={SMI: unused}))) == []
    idle = idle.replace("gpu_idle>Not Active", "gpu_idle>Active")
    assert list(judged(gpu_pcie.CHECK, HOSTS[0].but(runs={SMI: idle}))) == []


def test_slots_in_the_hosts_file_say_how_many_gpus_are_meant() -> None:
    one_gpu = capture()[: capture().index('<gpu id="00000000:3B')] + "</nvidia_smi_log>"
    machines = [HOSTS[0], HOSTS[1].but(runs={SMI: one_gpu}), HOSTS[2]]
    assert rows(judged(gpu_count.CHECK, *machines)) == [("gpu2", "1 × NVIDIA H200, usual 2 × NVIDIA H200")]
    hosts = tuple(
        seen(f"gpu{n}", n, one, gpu_count.CHECK.reads, slots=1 if n == 2 else None) for n, one in enumerate(machines, 1)
    )
    assert list(gpu_count.CHECK.judge(Examined(spec=spec_from({"name": "lab"}), hosts=hosts))) == []


@pytest.mark.parametrize(
    ("module", "change"),
    [
        (gpu_peermem, {"links": {PEERMEM: None}}),
        (gpu_numa, run(TOPO, FAR.format("SYS", "SYS", "SYS", "SYS"))),
    ],
)
def test_where_adapters_are_does_not_matter_without_rdma(module: Any, change: dict[str, Any]) -> None:
    host = HOSTS[0].but(**change)
    assert len(judged(module.CHECK, host)) == 1
    assert list(judged(module.CHECK, host, spec={"rdma": "off"})) == []


@pytest.mark.parametrize(
    ("flavour", "severity"),
    [("cuda-pytorch", "breaks"), ("ssh-layer", "slows"), ("cpu", None), ("pytorch", None), ("auto", None)],
)
def test_a_host_without_gpus_among_others(flavour: str, severity: str | None) -> None:
    def sights(*machines: Machine, slots: int | None = None, **spec: Any) -> list[tuple[Any, ...]]:
        hosts = [seen(f"gpu{n}", n, one, gpu_count.CHECK.reads) for n, one in enumerate(machines, 1)]
        hosts[0] = seen("gpu1", 1, machines[0], gpu_count.CHECK.reads, slots=slots)
        settings = spec_from(
            {"name": "lab", "image": {"flavour": flavour, "base": "b" if flavour == "ssh-layer" else None}, **spec}
        )
        examined = Examined(spec=settings, hosts=tuple(hosts), head="gpu1")
        return [(one.hosts, one.severity, one.seen) for one in gpu_count.CHECK.judge(examined)]

    expected = [(("gpu1",), severity, "no GPU, usual 2 × NVIDIA H200")] if severity else []
    assert sights(machine(1), HOSTS[1], HOSTS[2]) == sights(machine(1), HOSTS[1]) == expected
    assert sights(machine(1), HOSTS[1], HOSTS[2], slots=4) == []
    assert sights(machine(1), HOSTS[1], HOSTS[2], head_runs_ranks=False) == []
    # Most hosts have none, all have none, and one has an nvidia-smi that fails: gpu-lost names that.
    assert sights(machine(1), machine(2), HOSTS[2]) == sights(machine(1), machine(2)) == []
    fails = Ran(code=9, out=capture("failures", "no-driver.txt"))
    assert sights(machine(1).but(runs={SMI: fails}), HOSTS[1], HOSTS[2]) == []


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.iterdir() if (path / "state.xml").exists()))
def test_each_capture_can_be_judged(name: str) -> None:
    host = HOSTS[0].but(runs={SMI: capture(name), TOPO: capture(name, "topology.txt")})
    ids = {module.CHECK.id for module in CHECKED if judged(module.CHECK, host, host)}
    expected = {
        "a100-mig-470": {"gpu-ecc"},
        "t4-450": {"gpu-pcie", "gpu-throttle"},
    }
    assert ids - {"gpu-busy"} >= expected.get(name, set())
