"""Plans of kit setup: which packages come from where, what a host keeps, and whole plans as golden files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.cli.text.plan import setup_plan as text_of
from kit.config.validate import spec_from
from kit.model.plan import Plan
from kit.model.secret import Secret
from kit.model.setup.areas import AREAS, Area
from kit.model.setup.facts import GpuClocks, Nic, SavedFile, SavedValue, SetupFacts, Source, SystemFile
from kit.model.setup.paths import (
    DAEMON_JSON,
    DOCKER_PROXY,
    FILES,
    MTU_DISPATCHER,
    MTU_IFUPDOWN,
    MTU_NETPLAN,
    NON_FREE_SOURCES,
    UPGRADES,
)
from kit.model.setup.result import Draft
from kit.model.setup.steps import ConfigureEngine, InstallPackages, Reboot, WriteSystemFile
from kit.model.values import replace
from kit.plan.setup import daemon
from kit.plan.setup.setup import setup_plan
from kit.plan.setup.undo import undo_plan
from tests.fakes.facts import host, interfaces
from tests.fakes.golden import check_golden

SIGNED = (("signed-by", "/usr/share/keyrings/debian-archive-keyring.pgp"),)


def source(uri: str, suite: str, component: str = "main", **more: Any) -> Source:
    values: dict[str, Any] = {"file": "/etc/apt/sources.list.d/debian.sources", "origin": "Debian", "options": SIGNED}
    return Source(uri=uri, suite=suite, component=component, **{**values, **more})


SOURCES = (source("http://deb.example/debian", "trixie"), source("http://deb.example/debian", "trixie-updates"))
DEBIAN: dict[str, Any] = {
    "os": "debian",
    "version": "13",
    "codename": "trixie",
    "name": "Debian GNU/Linux 13 (trixie)",
    "sources": SOURCES,
}
BOOKWORM: dict[str, Any] = {
    **DEBIAN,
    "version": "12",
    "codename": "bookworm",
    "name": "Debian GNU/Linux 12 (bookworm)",
    "sources": (source("http://deb.example/debian", "bookworm"),),
}
UBUNTU: dict[str, Any] = {
    "os": "ubuntu",
    "version": "24.04",
    "codename": "noble",
    "name": "Ubuntu 24.04.3 LTS",
    "kernel": "6.8.0-85-generic",
}
KERNEL = {"net.core.rmem_max": "212992", "net.ipv4.tcp_rmem": "4096 131072 6291456", "net.ipv4.tcp_mtu_probing": "0"}


def facts(number: int = 1, **more: Any) -> SetupFacts:
    """gpuN as a bare VM of Debian 13, with systemd and one network card."""
    values: dict[str, Any] = {
        "host": host(number),
        **DEBIAN,
        "arch": "amd64",
        "kernel": "6.12.48+deb13-cloud-amd64",
        "boot_id": f"b007-{number}",
        "systemd": True,
        "apt": True,
        "grub": True,
        "kernel_settings": KERNEL,
        "nics": (Nic(name="eth0", mtu=1500, physical=True, unit="/run/systemd/network/10-netplan-ens5.network"),),
        "interfaces": interfaces(lo="127.0.0.1/8", eth0=f"10.0.0.{number}/24"),
        "default_interface": "eth0",
        "network_manager": "netplan",
        "pages": 0,
    }
    return SetupFacts(**{**values, **more})


def draft(*observed: SetupFacts, areas: tuple[Area, ...] = AREAS, reboot: bool = False, **spec: Any) -> Draft:
    result, problems = setup_plan(
        spec_from({"name": "lab", **spec}), observed, areas, reboot=reboot, own_boot_id="mine"
    )
    assert problems == []
    return result


def problem(one: SetupFacts, *areas: Area, **spec: Any) -> str:
    _, problems = setup_plan(spec_from({"name": "lab", **spec}), [one], areas or AREAS)
    (only,) = problems
    assert only.hint
    return str(only)


def packages(plan: Plan) -> list[tuple[str, ...]]:
    return [step.packages for _, step in plan.steps() if isinstance(step, InstallPackages)]


@pytest.mark.parametrize(
    ("name", "one", "spec"),
    [
        ("debian-13", facts(), {}),
        ("debian-12", facts(**BOOKWORM), {}),
        ("debian-13-gpu", facts(gpus_on_bus=8), {}),
        ("ubuntu-24-gpu", facts(**UBUNTU, gpus_on_bus=1), {"setup": {"proxy": "http://proxy:3128"}}),
        ("mtu-hugepages", facts(engine="26.1.5", compose="2.26.1"), {"setup": {"mtu": 9000, "hugepages": 16}}),
    ],
)
def test_whole_plans(name: str, one: SetupFacts, spec: dict[str, Any]) -> None:
    check_golden(f"setup/{name}.txt", text_of(draft(one, **spec).plan, verbose=True) + "\n")


AS_FAST = GpuClocks(index=0, persistence=True, memory=2619, graphics=1980, most_memory=2619, most_graphics=1980)
PYTORCH: dict[str, Any] = {"image": {"frameworks": ["pytorch"]}}


@pytest.mark.parametrize(
    ("one", "spec", "text", "hint"),
    [
        (
            facts(gpus_on_bus=8),
            PYTORCH,
            "gets the NVIDIA driver 550, ",
            "from NVIDIA's own repository, then reboot; or ",
        ),
        (facts(**BOOKWORM, gpus_on_bus=1), PYTORCH, "gets the NVIDIA driver 535, ", "cuda-tensorflow (525.60.13)"),
        (
            facts(**UBUNTU, gpus_on_bus=1),
            {**PYTORCH, "setup": {"driver": "550-server"}},
            "gets the NVIDIA driver 550, ",
            "write setup.driver: 580-server in kit.yaml",
        ),
        (
            facts(**UBUNTU, gpus_on_bus=1, driver="580.54.03", clocks=(AS_FAST,)),
            PYTORCH,
            "has the NVIDIA driver 580.54.03, ",
            "sudo apt-get install nvidia-driver-580-server",
        ),
    ],
)
def test_a_driver_that_is_too_old_for_the_image(one: SetupFacts, spec: dict[str, Any], text: str, hint: str) -> None:
    (remark,) = draft(one, areas=("driver",), **spec).remarks
    needs = "CUDA 13.0 of the image (cuda-pytorch) needs 580.65.06 or newer"
    assert remark.text == f"{text}and {needs}: kit deploy refuses that"
    assert hint in str(remark.hint)
    assert "cuda-pytorch (" not in str(remark.hint)


@pytest.mark.parametrize(
    ("one", "spec"),
    [
        (facts(gpus_on_bus=8), {}),
        (facts(), PYTORCH),
        (facts(**UBUNTU, gpus_on_bus=8), PYTORCH),
        (facts(gpus_on_bus=8), {"image": {"flavour": "pytorch"}}),
        (facts(gpus_on_bus=8), {"image": {"flavour": "ssh-layer", "base": "nvcr.io/nvidia/pytorch:25.01-py3"}}),
        (facts(gpus_on_bus=8, version=""), PYTORCH),
        (facts(gpus_on_bus=1, driver="580.65.06", clocks=(AS_FAST,)), PYTORCH),
        (facts(gpus_on_bus=1, driver="odd-1", clocks=(AS_FAST,)), PYTORCH),
        # It is installed, from NVIDIA's repository perhaps, and waits for a reboot.
        (facts(gpus_on_bus=1, packages={"nvidia-kernel-dkms": "580.65.06-1"}, module_kernels=("6.12",)), PYTORCH),
    ],
)
def test_a_driver_that_fits_the_image_or_that_nobody_knows(one: SetupFacts, spec: dict[str, Any]) -> None:
    assert draft(one, areas=("driver",), **spec).remarks == ()


def test_hosts_with_the_same_steps_are_one_paragraph() -> None:
    text = text_of(draft(facts(1), facts(2), facts(3), areas=("docker",)).plan)
    assert "gpu[1-3]  (3 hosts)" in text


@pytest.mark.parametrize(
    ("more", "spec", "wanted"),
    [
        (DEBIAN, {}, "docker.io docker-cli docker-compose ca-certificates iptables"),
        ({**DEBIAN, "version": ""}, {}, "docker.io docker-cli docker-compose ca-certificates iptables"),
        (UBUNTU, {}, "docker.io docker-compose-v2 ca-certificates iptables"),
        ({**UBUNTU, "version": "22.04"}, {}, "docker.io docker-compose-v2 ca-certificates iptables"),
        ({**UBUNTU, "version": "20.04"}, {}, "docker-ce docker-ce-cli containerd.io docker-compose-plugin"),
        (BOOKWORM, {}, "docker-ce docker-ce-cli containerd.io docker-compose-plugin"),
        (UBUNTU, {"docker": "docker.com"}, "docker-ce docker-ce-cli containerd.io docker-compose-plugin"),
        ({"engine": "26.1.5", "packages": {"docker.io": "26", "docker-cli": "26"}}, {}, "docker-compose"),
        ({**BOOKWORM, "engine": "20.10.24", "packages": {"docker.io": "20"}}, {}, "docker-compose-plugin"),
        ({**UBUNTU, "engine": "27.0", "packages": {"docker-ce": "27"}}, {}, "docker-compose-plugin"),
        ({**UBUNTU, "packages": {"moby-engine": "25"}}, {}, "moby-compose"),
    ],
)
def test_packages_of_docker(more: dict[str, Any], spec: dict[str, Any], wanted: str) -> None:
    assert " ".join(packages(draft(facts(**more), areas=("docker",), setup=spec).plan)[-1]) == wanted


def test_a_host_without_ip_gets_it() -> None:
    without = draft(facts(interfaces=()), areas=("docker",)).plan
    assert packages(without)[0] == ("iproute2",)
    with_engine = facts(interfaces=(), engine="26.1.5", compose="2.26.1")
    assert packages(draft(with_engine, areas=("docker",)).plan) == [("iproute2",)]
    assert ("iproute2",) not in packages(draft(facts(), areas=("docker",)).plan)


def test_pages_that_fit_are_reserved_whatever_they_leave() -> None:
    for one in (facts(memory_kib=4 * 2**20), facts(memory_kib=0)):
        plan = draft(one, areas=("hugepages",), setup={"hugepages": 2}).plan
        assert [step.kind for _, step in plan.steps()] == ["ReservePages", "WriteSystemFile", "UpdateBootLoader"]
    assert draft(facts(memory_kib=2**21, pages=2), areas=("hugepages",), setup={"hugepages": 2}).plan.empty


def test_files_that_win_over_kits_kernel_settings_are_named() -> None:
    later = {
        "net.core.rmem_max": ("/etc/sysctl.d/99-sysctl.conf", "16777216"),
        "net.ipv4.tcp_rmem": ("/etc/sysctl.d/99-sysctl.conf", "4096 131072 134217728"),
        "net.ipv4.tcp_mtu_probing": ("/etc/sysctl.d/99-x.conf", "1"),
    }
    (remark,) = draft(facts(later_settings=later), areas=("sysctl",)).remarks
    assert remark.text == (
        "/etc/sysctl.d/99-sysctl.conf wins over kit's /etc/sysctl.d/90-kit.conf at the next boot: "
        "net.core.rmem_max = 16777216"
    )


@pytest.mark.parametrize(("count", "reason"), [(1, "1 page of 1 GiB"), (2, "2 pages of 1 GiB")])
def test_pages_that_wait_for_a_boot_are_counted(count: int, reason: str) -> None:
    one = draft(facts(pages=0), areas=("hugepages",), setup={"hugepages": count})
    assert one.waiting == {"gpu1": (f"{reason}, if the kernel has no room for them now",)}


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (facts(docker="/snap/bin/docker"), "its Docker is a snap"),
        (facts(docker="/snap/docker/2963/bin/docker", engine="24.0.5", compose="2.20"), "its Docker is a snap"),
        (facts(packages={"podman-docker": "4.3"}), "its docker is Podman"),
        (facts(podman=True, os="rocky", apt=False, engine="5.2.2", compose="2.30"), "its docker is Podman"),
        (facts(os="fedora", name="Fedora Linux 42", apt=False), "and this is Fedora Linux 42"),
        (facts(gpus_on_bus=1, os="rocky", name="Rocky Linux 9.4", apt=False), "and this is Rocky Linux 9.4"),
        (facts(pages=None), "no huge pages of 1 GiB"),
        (facts(memory_kib=3 * 2**20), "it has 3.0 GiB of memory, and setup.hugepages: 2 takes 2 GiB of it"),
        (facts(memory_kib=2**20, pages=1), "takes 2 GiB of it, so it would not boot"),
    ],
)
def test_hosts_that_kit_refuses(one: SetupFacts, message: str) -> None:
    spec = {"setup": {"hugepages": 2}} if "pages" in message or one.memory_kib else {}
    area: Area = "hugepages" if spec else "driver" if one.gpus_on_bus else "docker"
    assert message in problem(one, area, **spec)


def test_an_engine_that_works_on_an_unknown_system_is_kept() -> None:
    fedora = facts(os="fedora", apt=False, engine="28.0", compose="2.30")
    assert draft(fedora, areas=("docker",)).plan.empty


def test_a_toolkit_on_an_unknown_system_is_kept() -> None:
    """kit knows its packages on Debian and Ubuntu only, and asked to install it again."""
    rocky = facts(os="rocky", name="Rocky Linux 9.4", apt=False, engine="28.0", compose="2.30", gpus_on_bus=1)
    assert "and this is Rocky Linux 9.4" in problem(rocky, "toolkit")
    step, _ = [step for _, step in draft(replace(rocky, toolkit=True), areas=("toolkit",)).plan.steps()]
    assert isinstance(step, ConfigureEngine)


def test_an_old_engine_reads_its_proxy_from_a_unit() -> None:
    proxy = {"proxy": "http://ann:secret@proxy:3128"}
    old = draft(facts(engine="20.10.24+dfsg1", compose="2.26.1"), areas=("docker",), setup=proxy).plan
    text = text_of(old, verbose=True)
    assert "/etc/systemd/system/docker.service.d/90-kit-proxy.conf (secret)" in text
    assert "restart  the engine" in text
    new = draft(facts(engine="26.1.5", compose="2.26.1"), areas=("docker",), setup=proxy).plan
    assert any(isinstance(step, ConfigureEngine) for _, step in new.steps())
    assert "secret@" not in text + text_of(new, verbose=True)
    # It does not know the setting in daemon.json.
    gpus = facts(engine="20.10.24+dfsg1", compose="2.26.1", gpus_on_bus=1, toolkit=True)
    steps = [step for _, step in draft(gpus, areas=("docker", "toolkit"), setup=proxy).plan.steps()]
    (runtime,) = [step.content for step in steps if isinstance(step, ConfigureEngine)]
    assert isinstance(runtime, bytes)
    assert list(json.loads(runtime)) == ["runtimes"]


def test_systemd_does_not_replace_a_percent_sign_in_a_proxy() -> None:
    proxy = {"proxy": "http://ann:s3cr%40et@proxy:3128"}
    old = draft(facts(engine="20.10.24", compose="2.26.1"), areas=("docker",), setup=proxy).plan
    (unit,) = [step.content for _, step in old.steps() if isinstance(step, WriteSystemFile)]
    assert isinstance(unit, Secret)
    assert b'HTTP_PROXY=http://ann:s3cr%%40et@proxy:3128"' in unit.reveal()
    new = draft(facts(engine="26.1.5", compose="2.26.1"), areas=("docker",), setup=proxy).plan
    (settings,) = [step.content for _, step in new.steps() if isinstance(step, ConfigureEngine)]
    assert isinstance(settings, Secret)
    assert b'"http-proxy": "http://ann:s3cr%40et@proxy:3128"' in settings.reveal()


def test_the_drivers_packages_fit_the_kernel() -> None:
    hwe = draft(facts(**{**UBUNTU, "kernel": "6.14.0-33-generic"}, gpus_on_bus=1), areas=("driver",)).plan
    assert packages(hwe)[0][-2:] == (
        "linux-modules-nvidia-580-server-6.14.0-33-generic",
        "linux-modules-nvidia-580-server-generic-hwe-24.04",
    )
    aws = draft(
        facts(**{**UBUNTU, "kernel": "6.14.0-1015-aws"}, gpus_on_bus=1), areas=("driver",), setup={"driver": "570"}
    )
    assert packages(aws.plan)[0][-1] == "linux-modules-nvidia-570-aws"


@pytest.mark.parametrize(
    ("kernel", "flavor"),
    [
        ("6.8.0-1050-nvidia-64k", "nvidia-64k"),
        ("6.8.0-1020-azure-fde", "azure-fde"),
        ("6.8.0-85-generic-64k", "generic-64k"),
        ("6.14.0-33-lowlatency", "lowlatency-hwe-24.04"),
    ],
)
def test_the_flavor_of_a_kernel_may_have_several_words(kernel: str, flavor: str) -> None:
    plan = draft(facts(**{**UBUNTU, "kernel": kernel}, gpus_on_bus=1), areas=("driver",)).plan
    assert packages(plan)[0][-1] == f"linux-modules-nvidia-580-server-{flavor}"


@pytest.mark.parametrize("branch", ["580-server", "580-server-open", "580-open"])
def test_programs_of_the_driver_are_the_same_for_open_modules(branch: str) -> None:
    plan = draft(facts(**UBUNTU, gpus_on_bus=1), areas=("driver",), setup={"driver": branch}).plan
    assert packages(plan)[0][:3] == (
        f"nvidia-headless-no-dkms-{branch}",
        f"nvidia-utils-{branch.removesuffix('-open')}",
        f"linux-modules-nvidia-{branch}-6.8.0-85-generic",
    )


def hold_of(**more: Any) -> str:
    """Return the file that keeps unattended upgrades away."""
    plan = draft(facts(gpus_on_bus=1, **more), areas=("driver",)).plan
    (content,) = [s.content for _, s in plan.steps() if isinstance(s, WriteSystemFile) and s.path == UPGRADES]
    assert isinstance(content, bytes)
    return content.decode()


def test_the_kernel_is_held_where_its_module_is_a_package() -> None:
    installed = {"nvidia-kernel-common-580-server": "1", "linux-modules-nvidia-580-server-6.8.0-85-generic": "1"}
    for more in ({}, {"packages": installed}):
        text = hold_of(**UBUNTU, **more)
        assert all(f'"{name}";' in text for name in ("linux-image-", "linux-modules-", "linux-headers-"))
        assert '"linux-generic";' in text
    assert '"linux-nvidia-64k";' in hold_of(**{**UBUNTU, "kernel": "6.8.0-1050-nvidia-64k"})
    # dkms builds a module for the next kernel.
    assert "linux-image" not in hold_of(**UBUNTU, packages={"nvidia-dkms-580": "1", "nvidia-kernel-common-580": "1"})
    assert "linux-image" not in hold_of()


def test_a_kernel_without_a_module_gets_it_instead_of_a_reboot() -> None:
    installed = {
        "nvidia-kernel-common-580-server-open": "1",
        "linux-modules-nvidia-580-server-open-6.8.0-84-generic": "1",
        "linux-modules-nvidia-580-server-open-generic": "1",
    }
    one = draft(facts(**UBUNTU, gpus_on_bus=1, packages=installed), areas=("driver",))
    assert packages(one.plan) == [("linux-modules-nvidia-580-server-open-6.8.0-85-generic",)]
    assert [step.kind for _, step in one.plan.steps()][:2] == ["InstallPackages", "LoadDriver"]
    # The module is there, and does not load: only a reboot can help.
    installed["linux-modules-nvidia-580-server-open-6.8.0-85-generic"] = "1"
    two = draft(facts(**UBUNTU, gpus_on_bus=1, packages=installed), areas=("driver",))
    assert packages(two.plan) == []
    assert two.waiting == {"gpu1": ("the driver: its module is not loaded",)}
    # dkms builds modules, so apt has none for it.
    dkms = facts(**UBUNTU, gpus_on_bus=1, packages={"nvidia-dkms-580": "1", "nvidia-kernel-common-580": "1"})
    assert packages(draft(dkms, areas=("driver",)).plan) == []


@pytest.mark.parametrize(
    ("kernel", "kind"), [("6.12.48+deb13-cloud-amd64", "cloud-"), ("6.12.48+deb13-amd64", ""), ("6.12-rt-amd64", "rt-")]
)
def test_debians_newest_kernel_comes_with_its_headers(kernel: str, kind: str) -> None:
    plan = draft(facts(gpus_on_bus=1, kernel=kernel), areas=("driver",)).plan
    assert packages(plan)[0][:2] == (f"linux-image-{kind}amd64", f"linux-headers-{kind}amd64")


@pytest.mark.parametrize(
    ("ids", "module"),
    [((0x2330,), "nvidia-kernel-dkms"), ((0x2342,), "nvidia-open-kernel-dkms"), ((), "nvidia-kernel-dkms")],
    ids=["H100", "GH200", "unknown"],
)
def test_debians_module_fits_the_gpu(ids: tuple[int, ...], module: str) -> None:
    plan = draft(facts(gpus_on_bus=1, gpu_ids=ids), areas=("driver",)).plan
    assert packages(plan)[0][2] == module


def test_a_gpu_that_debians_driver_does_not_know_gets_no_driver() -> None:
    blackwell: dict[str, Any] = {"gpus_on_bus": 8, "gpu_ids": (0x2901,)}
    assert "need NVIDIA's driver 570 or newer, and Debian GNU/Linux 13 (trixie) has 550" in problem(
        facts(**blackwell), "driver"
    )
    bullseye: dict[str, Any] = {**BOOKWORM, "version": "11", "codename": "bullseye", "name": "Debian 11"}
    bullseye["sources"] = (source("http://deb.example/debian", "bullseye"),)
    for device in (0x2330, 0x2342, 0x27B8):
        newer = facts(**bullseye, gpus_on_bus=2, gpu_ids=(0x20B2, device))
        assert "need NVIDIA's driver 525 or newer, and Debian 11 has 470" in problem(newer, "driver")
    # An A100 and an A10.
    assert packages(draft(facts(**bullseye, gpus_on_bus=2, gpu_ids=(0x20B2, 0x2236)), areas=("driver",)).plan)
    # Testing has no version, and its driver changes.
    testing = {"version": "", "codename": "forky", "sources": (source("http://deb.example/debian", "forky"),)}
    plan = draft(facts(**{**testing, **blackwell}), areas=("driver",)).plan
    assert packages(plan)[0][2] == "nvidia-open-kernel-dkms"


@pytest.mark.parametrize(
    "name",
    [
        "nvidia-kernel-dkms",
        "nvidia-open-kernel-dkms",
        "nvidia-tesla-535-kernel-dkms",
        "nvidia-tesla-470-driver",
        "nvidia-legacy-390xx-kernel-dkms",
        "nvidia-kernel-open-dkms",
        "nvidia-dkms-580",
    ],
)
def test_a_driver_that_does_not_work_gets_no_second_one_beside_it(name: str) -> None:
    """apt installs both, because they do not conflict."""
    there = {name: "1", "nvidia-smi": "1", "linux-headers-cloud-amd64": "1"}
    one = draft(facts(gpus_on_bus=1, smi=True, packages=there), areas=("driver",))
    assert packages(one.plan) == []
    assert one.waiting == {"gpu1": ("the driver: its module is not loaded",)}


def test_what_stays_of_a_removed_driver_is_none() -> None:
    rest = {"nvidia-kernel-common": "1", "nvidia-kernel-support": "1", "nvidia-tesla-535-kernel-support": "1"}
    assert packages(draft(facts(gpus_on_bus=1, packages=rest), areas=("driver",)).plan)
    ubuntus = {"nvidia-kernel-common-580-server": "1", "nvidia-kernel-source-580-server": "1"}
    assert packages(draft(facts(**UBUNTU, gpus_on_bus=1, packages=ubuntus), areas=("driver",)).plan)


def test_a_module_that_dkms_could_not_build_without_headers_gets_them() -> None:
    """Debian's packages depend on no headers. Without them, dkms builds nothing, and a reboot does not help."""
    dkms = {"nvidia-kernel-dkms": "1", "nvidia-smi": "1"}
    plan = draft(facts(gpus_on_bus=1, packages=dkms), areas=("driver",)).plan
    assert packages(plan) == [("linux-image-cloud-amd64", "linux-headers-cloud-amd64")]
    has = facts(gpus_on_bus=1, packages={**dkms, "linux-headers-cloud-amd64": "1"})
    assert packages(draft(has, areas=("driver",)).plan) == []


def test_a_module_for_another_kernel_waits_for_a_reboot_and_says_so() -> None:
    dkms = {"nvidia-kernel-dkms": "1", "linux-headers-cloud-amd64": "1"}
    kernels: dict[str, Any] = {"packages": dkms, "driver_fault": "NVIDIA-SMI has failed"}
    one = draft(facts(gpus_on_bus=1, module_kernels=("6.12.90+deb13-cloud-amd64",), **kernels), areas=("driver",))
    (reason,) = one.waiting["gpu1"]
    assert reason == (
        "the driver: its module is for the kernel 6.12.90+deb13-cloud-amd64, and 6.12.48+deb13-cloud-amd64 runs"
    )
    fits = facts(gpus_on_bus=1, module_kernels=("6.12.48+deb13-cloud-amd64",), **kernels)
    assert draft(fits, areas=("driver",)).waiting == {"gpu1": ("the driver: NVIDIA-SMI has failed",)}
    # dkms removes the module of the running kernel when it builds a newer version, and the old one stays loaded.
    loaded = facts(gpus_on_bus=1, driver="550.54.15", module_kernels=("6.12.90+deb13-cloud-amd64",), **kernels)
    assert draft(loaded, areas=("driver",)).waiting == {"gpu1": ("the driver: NVIDIA-SMI has failed",)}


def test_a_key_of_dkms_that_secure_boot_may_not_know_is_named() -> None:
    (remark,) = draft(facts(gpus_on_bus=1, secure_boot=True), areas=("driver",)).remarks
    assert "mokutil --import /var/lib/dkms/mok.pub" in (remark.hint or "")
    # Ubuntu signs the modules of its packages with a key that firmware knows. A driver that works needs nothing.
    assert draft(facts(**UBUNTU, gpus_on_bus=1, secure_boot=True), areas=("driver",)).remarks == ()
    works = facts(gpus_on_bus=1, secure_boot=True, driver="550.163.01", smi=True, clocks=(SLOW,))
    assert draft(works, areas=("driver",)).remarks == ()


def sources_of(**more: Any) -> str:
    """Return the file of sources that kit would write for the driver, "" for none."""
    plan = draft(facts(gpus_on_bus=1, **more), areas=("driver",)).plan
    written = [s.content for _, s in plan.steps() if isinstance(s, WriteSystemFile) and s.path == NON_FREE_SOURCES]
    (content,) = written or [b""]
    return (content if isinstance(content, bytes) else content.reveal()).decode()


@pytest.mark.parametrize(
    ("release", "there", "missing"),
    [
        (DEBIAN, (), "contrib non-free non-free-firmware"),
        (DEBIAN, ("non-free-firmware",), "contrib non-free"),
        (DEBIAN, ("non-free", "non-free-firmware"), "contrib"),
        (DEBIAN, ("contrib", "non-free", "non-free-firmware"), ""),
        ({**BOOKWORM, "version": "11", "codename": "bullseye"}, (), "contrib non-free"),
        ({**DEBIAN, "version": "", "codename": "forky"}, ("contrib",), "non-free non-free-firmware"),
    ],
)
def test_the_driver_needs_components_of_debian(release: dict[str, Any], there: tuple[str, ...], missing: str) -> None:
    suite = release["codename"] if release["version"] else "testing"
    sources = tuple(source("http://deb.example/debian", suite, component) for component in ("main", *there))
    text = sources_of(**{**release, "sources": sources})
    assert [line for line in text.splitlines() if line.startswith("Components")] == (
        [f"Components: {missing}"] if missing else []
    )


def test_sources_of_the_driver_have_the_options_of_debians_own() -> None:
    """apt reads no source at all if two files name one place with different options."""
    old = source("http://a/debian", "trixie", origin="", options=())
    new = source("http://b/debian", "trixie", options=(("signed-by", "/k.pgp"), ("check-valid-until", "no")))
    assert sources_of(sources=(old, new)) == (
        "Types: deb\nURIs: http://a/debian\nSuites: trixie\nComponents: contrib non-free non-free-firmware\n\n"
        "Types: deb\nURIs: http://b/debian\nSuites: trixie\nComponents: contrib non-free non-free-firmware\n"
        "Signed-By: /k.pgp\nCheck-Valid-Until: no\n"
    )


@pytest.mark.parametrize(
    "other",
    [
        source("https://pkgs.tailscale.com/stable/debian", "trixie", origin="Tailscale"),
        source("https://pkgs.tailscale.com/stable/debian", "trixie", origin="", options=(("signed-by", "/t.gpg"),)),
        source("https://packages.cloud.google.com/apt", "cloud-sdk-trixie", origin="", options=()),
        source("https://apt.releases.hashicorp.com", "trixie", origin="", options=()),
        source("http://deb.example/debian", "trixie-backports"),
        source("http://deb.example/debian", "sid"),
    ],
    ids=["origin", "key", "suite", "path", "backports", "release"],
)
def test_other_repositories_are_no_place_of_the_driver(other: Source) -> None:
    assert sources_of(sources=(*SOURCES, other)) == sources_of(sources=SOURCES)
    assert "names no source of Debian" in problem(facts(gpus_on_bus=1, sources=(other,)), "driver")


def test_sources_that_kit_cannot_repeat_are_named() -> None:
    """The fresh list of a host without sources, and a key inside a file, must not become a broken file."""
    assert "names no source of Debian" in problem(facts(gpus_on_bus=1, sources=()), "driver")
    broken = facts(gpus_on_bus=1, sources=(), files={NON_FREE_SOURCES: SystemFile(content=b"x", mode="644")})
    _, problems = setup_plan(spec_from({"name": "lab"}), [broken], ("driver",))
    assert "kit setup --undo --only driver" in (problems[0].hint or "")
    inline = source("http://deb.example/debian", "trixie", options=(("signed-by", "inline"),))
    assert "has the key of Debian in itself" in problem(facts(gpus_on_bus=1, sources=(inline,)), "driver")


def test_sources_of_the_driver_are_written_once() -> None:
    text = sources_of(sources=SOURCES)
    own = source("http://deb.example/debian", "trixie", "contrib", file=NON_FREE_SOURCES)
    file = {NON_FREE_SOURCES: SystemFile(content=text.encode(), mode="644")}
    assert sources_of(sources=(*SOURCES, own), files=file) == ""


def test_sources_with_a_login_are_for_root_only() -> None:
    """A mirror's password may be in a file that only root can read. An earlier kit copied it to one for everybody."""
    private = (source("https://ann:secret@m.example/debian", "trixie"),)

    def modes(sources: tuple[Source, ...], mode: str = "", **more: Any) -> list[str]:
        content = sources_of(sources=sources).encode()
        files = {NON_FREE_SOURCES: SystemFile(content=content, mode=mode)} if mode else {}
        one = facts(gpus_on_bus=1, sources=sources, files=files, **more)
        steps = [step for _, step in draft(one, areas=("driver",)).plan.steps() if isinstance(step, WriteSystemFile)]
        written = [step for step in steps if step.path == NON_FREE_SOURCES]
        assert all(isinstance(step.content, Secret) is (sources == private) for step in written)
        return [step.mode for step in written]

    works: dict[str, Any] = {"driver": "550.163.01", "smi": True, "clocks": (SLOW,)}
    assert modes(SOURCES) == ["644"]
    assert modes(SOURCES, "644") == modes(SOURCES, "644", **works) == []
    assert modes(private) == ["600"]
    assert modes(private, "644") == modes(private, "644", **works) == ["600"]
    assert modes(private, "600") == modes(private, "600", **works) == modes(private, **works) == []


@pytest.mark.parametrize(
    ("uri", "suite", "area", "more"),
    [
        ("https://download.docker.com/linux/debian/", "bookworm", "docker", BOOKWORM),
        ("https://nvidia.github.io/libnvidia-container/stable/deb/amd64/", "/", "toolkit", {"engine": "26"}),
    ],
)
def test_a_repository_that_the_host_has_is_used_with_its_own_key(
    uri: str, suite: str, area: Area, more: dict[str, Any]
) -> None:
    def kinds(*sources: Source) -> list[str]:
        one = facts(gpus_on_bus=1, **{**more, "sources": sources})
        return [step.kind for _, step in draft(one, areas=(area,)).plan.steps()]

    own = source(uri, suite, "stable", file="/etc/apt/sources.list.d/docker.list", options=(("signed-by", "/d.asc"),))
    assert "FetchKey" in kinds()
    assert "FetchKey" in kinds(source(uri, "trixie", "stable"))
    assert not {"FetchKey", "WriteSystemFile"} & set(kinds(own))
    # kit's own file, whose key is gone.
    ours = "/etc/apt/sources.list.d/" + ("kit-docker" if area == "docker" else "kit-nvidia") + ".sources"
    assert "FetchKey" in kinds(source(uri, suite, "stable", file=ours))


def test_a_host_without_a_gpu_gets_nothing_of_nvidia() -> None:
    assert draft(facts(engine="26", compose="2"), areas=("driver", "toolkit", "clocks")).plan.empty


def test_the_toolkit_needs_an_engine() -> None:
    assert "needs an engine" in problem(facts(gpus_on_bus=1), "toolkit")


SERVER = dict.fromkeys(("nvidia-kernel-common-580-server", "linux-modules-nvidia-580-server-6.8.0-85-generic"), "1")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"smi": True, "driver_fault": "NVIDIA-SMI has failed"}, "is of no package that kit knows"),
        ({"driver": "550.54.15"}, "there is no nvidia-smi"),
        (
            {"driver": "550.54.15", "smi": True, "smi_late": True, "driver_fault": "late"},
            "550.54.15 is loaded, and late",
        ),
        ({"driver": "580.1", "smi": True, "smi_late": True, "packages": SERVER}, "580.1 is loaded"),
        (
            {"packages": SERVER, "gpu_ids": (0x2330, 0x2901)},
            "need NVIDIA's open modules, and the driver 580-server has",
        ),
    ],
    ids=["run file", "module", "late", "late package", "closed modules"],
)
def test_a_driver_that_kit_must_not_replace_is_refused(more: dict[str, Any], message: str) -> None:
    assert message in problem(facts(**UBUNTU, gpus_on_bus=2, **more), "driver")


def test_a_driver_of_another_branch_that_does_not_work_is_named() -> None:
    one = facts(**UBUNTU, gpus_on_bus=1, packages=SERVER)
    assert "kit.yaml wants the driver 570, and 580-server is installed" in problem(
        one, "driver", setup={"driver": "570"}
    )
    blackwell = facts(**UBUNTU, gpus_on_bus=1, packages=SERVER, gpu_ids=(0x2901,))
    _, (error,) = setup_plan(spec_from({"name": "lab", "setup": {"driver": "580-server"}}), [blackwell], ("driver",))
    assert (error.hint or "").startswith("write setup.driver: 580-server-open; remove it: kit ssh gpu1 -- sudo apt-get")
    works = facts(**UBUNTU, gpus_on_bus=1, packages=SERVER, driver="580.65.06", smi=True, clocks=(SLOW,))
    assert packages(draft(works, areas=("driver",), setup={"driver": "570"}).plan) == []


@pytest.mark.parametrize(
    ("ids", "branch"),
    [((0x20B0,), "580-server"), ((0x2901,), "580-server-open"), ((0x2342,), "580-server-open"), ((), "580-server")],
    ids=["A100", "B200", "GH200", "unknown"],
)
def test_a_host_without_a_driver_gets_the_modules_for_its_gpu(ids: tuple[int, ...], branch: str) -> None:
    """Also beside programs that a package brought without a driver."""
    one = facts(**UBUNTU, gpus_on_bus=1, gpu_ids=ids, smi=True, packages={"nvidia-utils-580-server": "1"})
    assert packages(draft(one, areas=("driver",)).plan)[0][0] == f"nvidia-headless-no-dkms-{branch}"


def test_nvswitches_without_a_fabric_manager_are_named() -> None:
    (remark,) = draft(facts(**UBUNTU, gpus_on_bus=8, switches=4), areas=("driver",)).remarks
    assert "no fabric manager" in remark.text
    assert "apt-get install nvidia-fabricmanager-580," in (remark.hint or "")
    assert draft(facts(**UBUNTU, gpus_on_bus=8, switches=4, fabric_manager=True), areas=("driver",)).remarks == ()


SLOW = GpuClocks(index=0, persistence=False, memory=2619, graphics=345, most_memory=2619, most_graphics=1980)


def test_clocks_are_set_beside_containers_if_systemd_needs_no_reload() -> None:
    busy: dict[str, Any] = {"clocks": (SLOW,), "running": 3, "live_restore": True}
    assert [s.kind for _, s in draft(facts(**busy), areas=("clocks",)).plan.steps()] == ["WriteSystemFile", "StartUnit"]
    known = SavedValue(kind="unit", key="kit-gpu-clocks.service", value="", area="clocks")
    assert "3 containers run, and systemd must reload" in problem(facts(**busy, saved_values=(known,)), "clocks")


def test_systemd_reads_the_engines_unit_again_only_while_no_container_runs() -> None:
    """Live-restore keeps containers through a restart of the engine, but not their GPUs through a reload."""
    busy: dict[str, Any] = {"compose": "2.26.1", "running": 3, "live_restore": True}
    proxy = {"proxy": "http://proxy:3128"}
    reason = "3 containers run, and systemd must reload to read the engine's unit again"
    assert reason in problem(facts(**busy, engine="20.10.24"), "docker", setup=proxy)
    new = facts(**busy, engine="26.1.5")
    first = next(step for _, step in draft(new, areas=("docker",), setup=proxy).plan.steps())
    assert first.kind == "ConfigureEngine"
    # What a killed kit wrote or restored makes the unit stale, too.
    killed = replace(new, stale_engine=True, unfinished=("engine",))
    assert reason in problem(killed, "docker")
    assert reason in problem(replace(killed, gpus_on_bus=1, toolkit=True), "toolkit")
    assert draft(replace(killed, unfinished=()), areas=("docker",)).plan.empty
    assert not draft(replace(killed, running=0), areas=("docker",)).plan.empty


def test_a_toolkit_that_finishes_a_killed_change_ends_no_containers() -> None:
    settings = SystemFile(mode="644", content=b'{"runtimes": {"nvidia": {}}}')
    killed = facts(engine="26.1.5", compose="2.26.1", gpus_on_bus=1, toolkit=True, pending=True)
    assert not draft(replace(killed, files={DAEMON_JSON: settings}), areas=("toolkit",)).plan.empty
    busy = replace(killed, files={DAEMON_JSON: settings}, running=1)
    assert "1 container runs, and kit setup would restart the engine" in problem(busy, "toolkit")


@pytest.mark.parametrize(
    ("path", "more", "reason"),
    [
        (DOCKER_PROXY, {"live_restore": True}, "3 containers run, and systemd must reload"),
        (DAEMON_JSON, {"live_restore": True, "stale_engine": True}, "3 containers run, and systemd must reload"),
        (DAEMON_JSON, {}, "3 containers run, and kit setup would restart the engine"),
        (DAEMON_JSON, {"live_restore": True}, ""),
        (DOCKER_PROXY, {"running": 0}, ""),
    ],
)
def test_an_undo_waits_for_containers_that_it_would_harm(path: str, more: dict[str, Any], reason: str) -> None:
    saved = SavedFile(path=path, areas=("docker",), existed=False, state="same")
    one = facts(**{"engine": "20.10.24", "compose": "2.26.1", "running": 3, "saved_files": (saved,), **more})
    _, problems = undo_plan(spec_from({"name": "lab"}), [one], AREAS)
    assert [str(problem).partition(": ")[2].startswith(reason) for problem in problems] == [True] * bool(reason)
    assert all(problem.hint and problem.hint.endswith("; then: kit setup --undo") for problem in problems)


def test_a_merge_keeps_the_runtimes_of_others() -> None:
    file = SystemFile(content=b'{"runtimes": {"crun": {"path": "/usr/bin/crun"}}}', mode="644")
    one = facts(
        engine="26", compose="2", gpus_on_bus=1, packages={"nvidia-container-toolkit": "1"}, files={DAEMON_JSON: file}
    )
    (step,) = [s for _, s in draft(one, areas=("toolkit",)).plan.steps() if isinstance(s, ConfigureEngine)]
    assert isinstance(step.content, bytes)
    assert b"crun" in step.content
    assert b"nvidia-container-runtime" in step.content


@pytest.mark.parametrize(
    ("there", "keys"),
    [
        (b"{}", ("runtimes.nvidia", "default-runtime")),
        (b'{"runtimes": {"nvidia": {}}, "default-runtime": "runc"}', ("default-runtime",)),
        (b'{"runtimes": {"nvidia": {}}, "default-runtime": "nvidia"}', ()),
        (b'{"runtimes": {"nvidia": {}}, "default-runtime": "crun"}', ()),
    ],
)
def test_swarm_needs_the_runtime_as_the_default(there: bytes, keys: tuple[str, ...]) -> None:
    file = {DAEMON_JSON: SystemFile(content=there, mode="644")}
    toolkit = {"nvidia-container-toolkit": "1"}
    one = facts(engine="26", compose="2", gpus_on_bus=1, packages=toolkit, files=file)
    steps = [step for _, step in draft(one, areas=("toolkit",), orchestrator="swarm").plan.steps()]
    assert [step.keys for step in steps if isinstance(step, ConfigureEngine)] == ([keys] if keys else [])
    # Compose requests the runtime by name.
    other = [step for _, step in draft(one, areas=("toolkit",)).plan.steps() if isinstance(step, ConfigureEngine)]
    assert [step.keys for step in other] == ([("runtimes.nvidia",)] if there == b"{}" else [])


def test_missing_names_what_differs() -> None:
    wanted = {"runtimes": {"nvidia": {"path": "x"}}, "debug": True}
    assert daemon.missing({}, wanted) == ("runtimes", "debug")
    assert daemon.missing({"runtimes": {"crun": {}}, "debug": True}, wanted) == ("runtimes.nvidia",)
    assert daemon.missing(daemon.merged({"a": 1}, wanted), wanted) == ()


def test_hosts_reboot_one_after_the_other_and_never_this_machine() -> None:
    waiting: dict[str, Any] = {
        "gpus_on_bus": 1,
        "packages": {"nvidia-kernel-dkms": "550", "linux-headers-cloud-amd64": "6.12"},
        "engine": "26",
        "compose": "2",
    }
    upgrades = draft(facts(**waiting), areas=("driver",)).plan
    (written,) = [step for _, step in upgrades.steps()]
    done = {written.path: SystemFile(content=written.content, mode="644")}  # type: ignore[attr-defined]
    hosts = [facts(number, **waiting, files=done) for number in (1, 2)] + [
        facts(3, **{**waiting, "boot_id": "mine"}, files=done)
    ]
    assert draft(*hosts, areas=("driver",)).plan.empty
    result = draft(*hosts, areas=("driver",), reboot=True)
    assert [(part.name, [plan.host for plan in part.hosts], part.needs) for part in result.plan.rounds] == [
        ("reboot gpu1", ["gpu1"], "all"),
        ("reboot gpu2", ["gpu2"], "all"),
    ]
    assert all(isinstance(step, Reboot) for _, step in result.plan.steps())
    assert [(remark.host, "never reboots" in remark.text) for remark in result.remarks] == [("gpu3", True)]
    hosts[1] = facts(2, **waiting, files=done, running=3, live_restore=True)
    _, problems = setup_plan(spec_from({"name": "lab"}), hosts, ("driver",), reboot=True, own_boot_id="mine")
    assert [str(one) for one in problems] == [
        "gpu2: 3 containers run, and kit setup would reboot the host, which ends them"
    ]


NETPLAN = "/run/systemd/network/10-netplan-id0.network"


@pytest.mark.parametrize(
    ("manager", "nic", "more", "reason"),
    [
        ("netplan", {"physical": False, "unit": NETPLAN}, (), "is a bond, a bridge or a VLAN"),
        ("netplan", {"physical": True}, (), "does not know which entry of netplan"),
        ("netplan", {"physical": True, "unit": NETPLAN}, ("eth1",), "one entry configures eth0 and eth1"),
        ("networkd", {"physical": True, "unit": "/etc/systemd/network/x.network"}, ("eth1",), "one entry configures"),
        ("networkd", {"physical": True}, (), "knows no network manager"),
        ("", {"physical": True}, (), "knows no network manager"),
    ],
)
def test_an_mtu_that_kit_cannot_keep_gets_no_file(
    manager: str, nic: dict[str, Any], more: tuple[str, ...], reason: str
) -> None:
    nics = tuple(Nic(name=name, mtu=1500, **nic) for name in ("eth0", *more))
    result = draft(facts(nics=nics, network_manager=manager), areas=("mtu",), setup={"mtu": 9000})
    assert [step.kind for _, step in result.plan.steps()] == ["ChangeMtu"]
    (remark,) = result.remarks
    assert reason in remark.text
    assert "a reboot forgets the MTU of eth0" in remark.text


@pytest.mark.parametrize(
    ("manager", "unit", "path"),
    [
        ("netplan", "/etc/systemd/network/b.network", "/etc/systemd/network/b.network.d/90-kit-mtu.conf"),
        ("networkd", "/etc/systemd/network/b.network", "/etc/systemd/network/b.network.d/90-kit-mtu.conf"),
        ("ifupdown", "", MTU_IFUPDOWN),
        ("NetworkManager", "", MTU_DISPATCHER),
    ],
)
def test_the_mtu_of_a_bond_is_kept_where_its_name_or_unit_is_enough(manager: str, unit: str, path: str) -> None:
    nics = (Nic(name="eth0", mtu=1500, physical=False, unit=unit), Nic(name="eth1", mtu=1500, physical=True))
    result = draft(facts(nics=nics, network_manager=manager), areas=("mtu",), setup={"mtu": 9000})
    assert [s.path for _, s in result.plan.steps() if isinstance(s, WriteSystemFile)] == [path]


def test_an_entry_that_an_earlier_kit_wrote_for_a_bond_is_named() -> None:
    file = {MTU_NETPLAN: SystemFile(content=b"x", mode="600")}
    one = facts(nics=(Nic(name="eth0", mtu=1500, physical=False, unit=NETPLAN),), files=file)
    (remark,) = draft(one, areas=("mtu",), setup={"mtu": 9000}).remarks
    assert "kit setup --undo --only mtu" in (remark.hint or "")


def test_an_mtu_without_a_confirmation_is_changed_again_in_both_directions() -> None:
    nics = (Nic(name="eth0", mtu=9000, physical=True, pending=True),)
    saved = (SavedValue(kind="mtu", key="eth0", value="9000", area="mtu"),)
    one = facts(nics=nics, saved_values=saved, network_manager="ifupdown")
    plan = draft(one, areas=("mtu",), setup={"mtu": 9000}).plan
    assert [step.kind for _, step in plan.steps()] == ["ChangeMtu", "WriteSystemFile"]
    undo, _ = undo_plan(spec_from({"name": "lab"}), [one], ("mtu",))
    assert [step.kind for _, step in undo.plan.steps()] == ["ChangeMtu", "RestoreValues"]


def test_undo_restores_what_kit_changed_and_nothing_else() -> None:
    one = facts(
        engine="26.1.5",
        compose="2.26.1",
        packages={"docker.io": "26"},
        saved_packages=(("docker.io", "docker"), ("gone", "docker")),
        saved_files=(
            SavedFile(path=DAEMON_JSON, areas=("docker",), existed=True, state="same"),
            SavedFile(path=FILES[8], areas=("sysctl",), existed=False, state="changed"),
        ),
        saved_values=(
            SavedValue(kind="mtu", key="eth0", value="1450", area="mtu"),
            SavedValue(kind="sysctl", key="net.core.rmem_max", value="212992", area="sysctl"),
        ),
    )
    result, problems = undo_plan(spec_from({"name": "lab"}), [one], AREAS)
    assert problems == []
    check_golden("setup/undo.txt", text_of(result.plan, undo=True, verbose=True) + "\n")
    assert [remark.text for remark in result.remarks] == [
        "/etc/sysctl.d/90-kit.conf was changed after kit setup wrote it, and kit leaves it unchanged",
        "packages that kit setup installed stay: docker.io",
    ]
    only, _ = undo_plan(spec_from({"name": "lab"}), [one], ("mtu",))
    assert [step.kind for _, step in only.plan.steps()] == ["ChangeMtu", "RestoreValues"]


def test_a_file_of_two_areas_is_restored_only_with_both() -> None:
    saved = SavedFile(path=DAEMON_JSON, areas=("docker", "toolkit"), existed=True, state="same")
    one = facts(engine="26.1.5", compose="2.26.1", saved_files=(saved,))

    def undo(*areas: Area, state: str = "same") -> tuple[list[str], list[str]]:
        observed = replace(one, saved_files=(replace(saved, state=state),))
        result, _ = undo_plan(spec_from({"name": "lab"}), [observed], areas)
        return [s.kind for _, s in result.plan.steps()], [f"{r.text} → {r.hint}" for r in result.remarks]

    both: tuple[tuple[Area, Area], ...] = (("docker", "toolkit"), ("toolkit", "docker"))
    for area, other in both:
        assert undo(area, "mtu") == ([], [
            f"/etc/docker/daemon.json also has settings of the area {other}, and kit leaves it unchanged "
            "→ undo both: kit setup --undo --only docker,toolkit,mtu"
        ])  # fmt: skip
    assert undo("docker", "toolkit") == undo(*AREAS) == (["RestoreFile", "StartEngine", "VerifyEngine"], [])
    assert undo("mtu") == undo("docker", state="original") == ([], [])
    steps, (remark,) = undo("docker", state="changed")
    assert steps == []
    assert "was changed after kit setup wrote it" in remark
