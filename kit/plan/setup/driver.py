"""NVIDIA's driver, on hosts that have a GPU on the PCI bus.

No GPU is here: golden plans and stand-ins test this.
"""

from __future__ import annotations

import re

from kit.errors import KitError, StepError
from kit.model.plan import Step
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import NON_FREE_SOURCES, UPGRADES
from kit.model.setup.result import Remark
from kit.model.setup.steps import InstallPackages, LoadDriver, WriteSystemFile
from kit.model.spec import ClusterSpec, SetupSpec
from kit.plan import flavour
from kit.plan.setup import debian_driver, packages, ubuntu_driver
from kit.plan.setup.part import Part

# Packages that have nvidia-smi.
_PROGRAMS = ("nvidia-utils", "nvidia-smi", "nvidia-driver")
# Packages that have the modules of the kernel, or their source. Debian has four kinds: nvidia-kernel-dkms,
# nvidia-open-kernel-dkms, nvidia-tesla-535-kernel-dkms and nvidia-legacy-390xx-kernel-dkms, and apt installs one
# beside another. Those with -support and -common, on Ubuntu nvidia-kernel-common-580 and nvidia-kernel-source-580, stay
# behind if somebody removes the modules.
_BRINGS_MODULES = re.compile(
    r"linux-modules-nvidia-|nvidia-(?:dkms|headless)-"
    r"|nvidia-(?:open-|tesla-(?:[0-9]+-)?|legacy-[0-9]+xx-)?(?:driver|kernel-(?!common$|support$|(?:common|source)-[0-9]))"
)
_HOLD = """// Made by kit setup. A driver that is replaced while it is loaded fails the next start of a container:
// "Driver/library version mismatch". Upgrade it by hand: apt-get install, then a reboot.
"""
_HOLD_KERNEL = """// The same for the kernel: Ubuntu's modules of the driver are packages for one kernel each, and the
// next kernel has no driver without its own. Upgrade both together: apt-get dist-upgrade, then a reboot.
"""
# unattended-upgrades compares the beginnings of names.
_HELD = ("nvidia-", "libnvidia-", "libcuda1", "linux-modules-nvidia-", "cuda-drivers")
_HELD_KERNEL = ("linux-image-", "linux-modules-", "linux-headers-", "linux-virtual")


def driver(facts: SetupFacts, cluster: ClusterSpec) -> Part:
    """Return what makes nvidia-smi list the GPUs. kit keeps a driver that works, and one that no package brought."""
    spec = cluster.setup
    part = Part()
    if not facts.gpus_on_bus:
        return part
    if facts.switches and not facts.fabric_manager:
        part.remarks.append(_no_fabric_manager(facts))
    works = bool(facts.driver) and not facts.driver_fault and bool(facts.clocks)
    installed = any(_BRINGS_MODULES.match(name) for name in facts.packages)
    if not works:
        problem = _unclear(facts, installed=installed)
        if problem is None and not installed:
            problem = packages.unknown_distribution(facts, "NVIDIA's driver")
        try:
            if problem is not None:
                raise problem
            _mend(part, facts, spec, installed=installed)
            part.remarks += debian_driver.unknown_key(facts)
        except KitError as error:
            part.problems.append(error)
            return part
    if works or installed:
        part.steps += debian_driver.open_sources(facts)
    part.remarks += _too_old(facts, cluster, installed=works or installed)
    kernel = facts.os == "ubuntu" and (bool(ubuntu_driver.branch_of(facts)) or not (works or installed))
    hold = _hold(facts, kernel=kernel)
    if facts.apt and not facts.has(UPGRADES, hold):
        why = "an unattended upgrade of the driver breaks the next start of a container"
        part.steps.append(WriteSystemFile(area="driver", path=UPGRADES, content=hold, why=why))
    return part


def _mend(part: Part, facts: SetupFacts, spec: SetupSpec, *, installed: bool) -> None:
    """Add what can help a driver that does not work. Raises KitError if kit must not do it."""
    if not installed:
        part.steps += _driver_steps(facts, spec)
        part.waiting.append("the driver, if the kernel cannot load it now")
    elif lacking := ubuntu_driver.lacking_modules(facts) or debian_driver.lacking_headers(facts):
        why = f"its kernel {facts.kernel} has no module of the driver"
        part.steps += [InstallPackages(area="driver", packages=lacking, why=why), LoadDriver(why="it was installed")]
        part.waiting.append("the driver, if the kernel cannot load it now")
    elif wrong := ubuntu_driver.wrong_branch(facts, spec):
        raise wrong
    else:
        part.waiting.append(f"the driver: {_fault(facts)}")


def _fault(facts: SetupFacts) -> str:
    """Return why the driver of a host does not work."""
    absent = "there is no nvidia-smi" if facts.driver else "its module is not loaded"
    return debian_driver.other_kernel(facts) or facts.driver_fault or absent


def _unclear(facts: SetupFacts, *, installed: bool) -> StepError | None:
    """Return the error for a driver of which kit does not know whether or how it works, so that none replaces it."""
    name = facts.host.name
    if facts.driver and facts.smi_late:
        return StepError(
            f"the driver {facts.driver} is loaded, and {_fault(facts)}",
            hint=f"try it: kit ssh {name} -- nvidia-smi; if it is only slow: "
            f"kit ssh {name} -- sudo nvidia-smi -pm 1; if it hangs, reboot the host; then: kit setup",
            host=name,
        )
    own = facts.smi and not any(package.startswith(_PROGRAMS) for package in facts.packages)
    # Of a system without apt, kit knows no packages.
    if installed or not facts.apt or not (facts.driver or own):
        return None
    return StepError(
        f"its NVIDIA driver is of no package that kit knows (a .run file?), and does not work: {_fault(facts)}",
        hint=f"repair it for the kernel {facts.kernel}: kit ssh {name} -- sudo dkms autoinstall, or run its installer "
        f"again; or remove it: kit ssh {name} -- sudo nvidia-uninstall; then: kit setup",
        host=name,
    )


def _no_fabric_manager(facts: SetupFacts) -> Remark:
    name, branch = facts.host.name, (facts.driver or ubuntu_driver.branch_of(facts) or ubuntu_driver.DRIVER)
    package = f"nvidia-fabricmanager-{branch.replace('-', '.').split('.')[0]}"
    return Remark(
        host=name,
        text=f"has NVSwitches ({facts.switches}) and no fabric manager, without which CUDA does not start",
        hint=f"when the driver works: kit ssh {name} -- sudo apt-get install {package}, then: "
        f"kit ssh {name} -- sudo systemctl enable --now nvidia-fabricmanager",
    )


def _too_old(facts: SetupFacts, cluster: ClusterSpec, *, installed: bool) -> list[Remark]:
    """Return the remark for a driver that the host has or gets, if it is too old for the image: kit deploy refuses it.

    kit does not know the version of an installed driver that is not loaded, and judges it at the next kit setup.
    """
    image = flavour.with_flavour(cluster.image, gpus=True)
    needs = flavour.cuda_needs(image)
    if needs is None:
        return []
    debian, wanted = facts.os == "debian", cluster.setup.driver
    branch = debian_driver.branch_of(facts) if debian else (wanted or ubuntu_driver.DRIVER).partition("-")[0]
    # A branch gets all its versions, so only its number counts.
    planned = bool(branch) and not installed and int(branch) < int(needs.driver.partition(".")[0])
    loaded = bool(packages.major(facts.driver)) and flavour.is_older(facts.driver, needs.driver)
    if not planned and not loaded:
        return []
    version = facts.driver if loaded else branch
    hint = flavour.newer_driver(needs, version, debian=debian)
    if planned and wanted and not debian:
        hint = f"write setup.driver: {ubuntu_driver.default_branch(facts)} in kit.yaml, or remove it, then: kit setup"
    verb = "has" if loaded else "gets"
    text = f"{verb} the NVIDIA driver {flavour.driver_and_need(version, image, needs)}"
    return [Remark(host=facts.host.name, text=f"{text}: kit deploy refuses that", hint=hint)]


def _hold(facts: SetupFacts, *, kernel: bool) -> bytes:
    """Return the file that keeps unattended upgrades from the driver, and from a kernel whose module is a package."""
    # The package that brings the next kernel: linux-generic, which also begins linux-generic-hwe-24.04.
    names = (*_HELD, *_HELD_KERNEL, f"linux-{ubuntu_driver.flavor_of(facts)}") if kernel else _HELD
    lines = "".join(f'  "{name}";\n' for name in names)
    text = f"{_HOLD}{_HOLD_KERNEL if kernel else ''}Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    return text.encode()


def _driver_steps(facts: SetupFacts, spec: SetupSpec) -> list[Step]:
    why = f"it has {facts.gpus_on_bus} GPU{'s' if facts.gpus_on_bus > 1 else ''} and no driver"
    before: list[Step] = []
    if facts.os == "ubuntu":
        names = ubuntu_driver.packages_of(facts, spec)
    else:
        names, text = debian_driver.packages_of(facts), debian_driver.missing_sources(facts)
        if text is not None:
            reason = "Debian's driver and its tools are in contrib and non-free"
            mode = debian_driver.mode_of(text)
            before = [WriteSystemFile(area="driver", path=NON_FREE_SOURCES, content=text, why=reason, mode=mode)]
    install = InstallPackages(area="driver", packages=names, why=why)
    return [*before, install, LoadDriver(why="it was installed")]
