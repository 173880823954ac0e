"""NVIDIA's driver, container toolkit and clocks, on hosts that have a GPU on the PCI bus.

No GPU is here: golden plans and stand-ins test this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kit.errors import KitError, StepError
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.setup.areas import Area
from kit.model.setup.facts import SetupFacts, Source
from kit.model.setup.paths import CLOCKS_UNIT, NON_FREE_SOURCES, NVIDIA_KEY, NVIDIA_SOURCES, UPGRADES
from kit.model.setup.result import Remark
from kit.model.setup.steps import ConfigureEngine, InstallPackages, LoadDriver, StartUnit, VerifyEngine, WriteSystemFile
from kit.model.spec import ClusterSpec, SetupSpec
from kit.plan.setup import daemon, docker, packages
from kit.plan.setup.packages import Repository
from kit.plan.setup.part import Part

# The branch of the driver on Ubuntu, if kit.yaml names none: NVIDIA's long-term branch, which has GPUs from Pascal on.
DRIVER = "580-server"
# Device IDs from which on NVIDIA's closed modules drive no GPU, and those of GH200: they need the open ones.
_BLACKWELL, _GRACE_HOPPER = 0x2900, range(0x2340, 0x2350)
# Packages that have nvidia-smi.
_PROGRAMS = ("nvidia-utils", "nvidia-smi", "nvidia-driver")
_DEBIAN = ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "libnvidia-ptxjitcompiler1", "nvidia-persistenced")
_STABLE = ("stable", "oldstable", "oldoldstable")
_TESTING = ("testing", "unstable", "sid")
_DEBIANS_PATH = re.compile(r"/debian(-security)?(\.list)?/*$")
_HOLD = """// Made by kit setup. A driver that is replaced while it is loaded fails the next start of a container:
// "Driver/library version mismatch". Upgrade it by hand: apt-get install, then a reboot.
"""
_HOLD_KERNEL = """// The same for the kernel: Ubuntu's modules of the driver are packages for one kernel each, and the
// next kernel has no driver without its own. Upgrade both together: apt-get dist-upgrade, then a reboot.
"""
# unattended-upgrades compares the beginnings of names.
_HELD = ("nvidia-", "libnvidia-", "libcuda1", "linux-modules-nvidia-", "cuda-drivers")
_HELD_KERNEL = ("linux-image-", "linux-modules-", "linux-headers-", "linux-virtual")
# 580, 580-server, 580-open and 580-server-open, in packages that a driver from Ubuntu's modules has.
_BRANCH = re.compile(r"(?:linux-modules-nvidia|nvidia-headless-no-dkms)-([0-9]+(?:-server)?(?:-open)?)(?:-|$)")
# nvidia-smi prints memory, graphics in MHz. A GPU that refuses application clocks keeps its own.
_CLOCKS = b"""# Made by kit setup.
[Unit]
Description=Persistence mode and maximum application clocks of NVIDIA GPUs
After=nvidia-persistenced.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-/usr/bin/env nvidia-smi -pm 1
ExecStart=/bin/sh -c 'nvidia-smi --query-gpu=index,clocks.max.memory,clocks.max.graphics \\
  --format=csv,noheader,nounits | while IFS=", " read -r gpu memory graphics; do \\
  nvidia-smi -i "$$gpu" -ac "$$memory,$$graphics" || true; done'

[Install]
WantedBy=multi-user.target
"""


def driver(facts: SetupFacts, spec: SetupSpec) -> Part:
    """Return what makes nvidia-smi list the GPUs. kit keeps a driver that works, and one that no package brought."""
    part = Part()
    if not facts.gpus_on_bus:
        return part
    if facts.switches and not facts.fabric_manager:
        part.remarks.append(_no_fabric_manager(facts))
    works = bool(facts.driver) and not facts.driver_fault and bool(facts.clocks)
    installed = any(
        name.startswith(("nvidia-kernel-", "linux-modules-nvidia-", "nvidia-driver")) for name in facts.packages
    )
    if not works:
        problem = _unclear(facts, installed=installed)
        if problem is None and not installed:
            problem = packages.unknown_distribution(facts, "NVIDIA's driver")
        try:
            if problem is not None:
                raise problem
            _mend(part, facts, spec, installed=installed)
        except KitError as error:
            part.problems.append(error)
            return part
    hold = _hold(facts, kernel=facts.os == "ubuntu" and (bool(_branch(facts)) or not (works or installed)))
    if facts.apt and not facts.has(UPGRADES, hold):
        why = "an unattended upgrade of the driver breaks the next start of a container"
        part.steps.append(WriteSystemFile(area="driver", path=UPGRADES, content=hold, why=why))
    return part


def _mend(part: Part, facts: SetupFacts, spec: SetupSpec, *, installed: bool) -> None:
    """Add what can help a driver that does not work. Raises KitError if kit must not do it."""
    if not installed:
        part.steps += _driver_steps(facts, spec)
        part.waiting.append("the driver, if the kernel cannot load it now")
    elif lacking := _lacking_modules(facts):
        why = f"its kernel {facts.kernel} has no module of the driver"
        part.steps += [InstallPackages(area="driver", packages=lacking, why=why), LoadDriver(why="it was installed")]
        part.waiting.append("the driver, if the kernel cannot load it now")
    elif wrong := _wrong_branch(facts, spec):
        raise wrong
    else:
        part.waiting.append(f"the driver: {_fault(facts)}")


def _fault(facts: SetupFacts) -> str:
    """Return why the driver of a host does not work."""
    absent = "there is no nvidia-smi" if facts.driver else "its module is not loaded"
    return facts.driver_fault or absent


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
    name, branch = facts.host.name, (facts.driver or _branch(facts) or DRIVER)
    package = f"nvidia-fabricmanager-{branch.replace('-', '.').split('.')[0]}"
    return Remark(
        host=name,
        text=f"has NVSwitches ({facts.switches}) and no fabric manager, without which CUDA does not start",
        hint=f"when the driver works: kit ssh {name} -- sudo apt-get install {package}, then: "
        f"kit ssh {name} -- sudo systemctl enable --now nvidia-fabricmanager",
    )


def _needs_open(facts: SetupFacts) -> bool:
    return any(number >= _BLACKWELL or number in _GRACE_HOPPER for number in facts.gpu_ids)


def _wrong_branch(facts: SetupFacts, spec: SetupSpec) -> StepError | None:
    """Return the error for a driver of Ubuntu's modules that does not work, and is not the wanted one."""
    mine = [name for name in facts.packages if _BRANCH.match(name)] if _branch(facts) else []
    branches = sorted({match[1] for name in mine if (match := _BRANCH.match(name))})
    there, change = ", ".join(branches), ""
    if not branches:
        return None
    if _needs_open(facts) and not any("-open" in branch for branch in branches):
        text = f"its GPUs need NVIDIA's open modules, and the driver {there} has others"
        if spec.driver is not None and "-open" not in spec.driver:
            change = f"write setup.driver: {spec.driver}-open; "
    elif spec.driver is not None and spec.driver not in branches:
        text = f"kit.yaml wants the driver {spec.driver}, and {there} is installed and does not work"
    else:
        return None
    # kit removes no package, and apt would have to.
    remove = f"kit ssh {facts.host.name} -- sudo apt-get remove --autoremove {' '.join(sorted(mine))}"
    return StepError(text, hint=f"{change}remove it: {remove}; then: kit setup", host=facts.host.name)


def _hold(facts: SetupFacts, *, kernel: bool) -> bytes:
    """Return the file that keeps unattended upgrades from the driver, and from a kernel whose module is a package."""
    # The package that brings the next kernel: linux-generic, which also begins linux-generic-hwe-24.04.
    names = (*_HELD, *_HELD_KERNEL, f"linux-{_flavor(facts)}") if kernel else _HELD
    lines = "".join(f'  "{name}";\n' for name in names)
    text = f"{_HOLD}{_HOLD_KERNEL if kernel else ''}Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    return text.encode()


def _branch(facts: SetupFacts) -> str:
    """Return the branch of a driver that uses Ubuntu's modules, or "". One that dkms builds needs no such package."""
    if facts.os != "ubuntu" or any(name.startswith("nvidia-dkms-") for name in facts.packages):
        return ""
    return next((match[1] for name in facts.packages if (match := _BRANCH.match(name))), "")


def _modules(facts: SetupFacts, branch: str) -> tuple[str, str]:
    """Return the package of the running kernel's modules, and the one that brings those of later kernels."""
    return f"linux-modules-nvidia-{branch}-{facts.kernel}", f"linux-modules-nvidia-{branch}-{_series(facts)}"


def _lacking_modules(facts: SetupFacts) -> tuple[str, ...]:
    """Return what is missing if the driver has no module for the running kernel: the kernel was upgraded without it."""
    branch = _branch(facts)
    modules = _modules(facts, branch)
    if not branch or modules[0] in facts.packages:
        return ()
    return tuple(name for name in modules if name not in facts.packages)


def _driver_steps(facts: SetupFacts, spec: SetupSpec) -> list[Step]:
    why = f"it has {facts.gpus_on_bus} GPU{'s' if facts.gpus_on_bus > 1 else ''} and no driver"
    if facts.os == "ubuntu":
        branch = spec.driver or (f"{DRIVER}-open" if _needs_open(facts) else DRIVER)
        names = [
            f"nvidia-headless-no-dkms-{branch}",
            # The programs are the same for both kinds of modules.
            f"nvidia-utils-{branch.removesuffix('-open')}",
            *_modules(facts, branch),
        ]
        return [InstallPackages(area="driver", packages=tuple(names), why=why), LoadDriver(why="it was installed")]
    kind = next((f"{word}-" for word in ("cloud", "rt") if f"-{word}-" in facts.kernel), "")
    # Debian has headers of its newest kernel only. With that kernel, one reboot brings a kernel with the module.
    kernel = (f"linux-image-{kind}{facts.arch}", f"linux-headers-{kind}{facts.arch}")
    before: list[Step] = []
    text = _debian_sources(facts)
    if text is not None and not facts.has(NON_FREE_SOURCES, _revealed(text)):
        reason = "Debian's driver and its tools are in contrib and non-free"
        before = [WriteSystemFile(area="driver", path=NON_FREE_SOURCES, content=text, why=reason)]
    install = InstallPackages(area="driver", packages=(*kernel, *_DEBIAN), why=why)
    return [*before, install, LoadDriver(why="it was installed")]


def _flavor(facts: SetupFacts) -> str:
    """Return the flavor of Ubuntu's kernel, which follows version and number: generic, aws, nvidia-64k."""
    return facts.kernel.split("-", 2)[-1]


def _series(facts: SetupFacts) -> str:
    """Return the flavor as metapackages spell it: generic, generic-hwe-22.04, aws."""
    flavor = _flavor(facts)
    release = {"22.04": (5, 15), "24.04": (6, 8)}.get(facts.version)
    number = packages.major(".".join(facts.kernel.split("-")[0].split(".")[:2]))
    newer = release is not None and number > release
    return f"{flavor}-hwe-{facts.version}" if newer and flavor.startswith(("generic", "lowlatency")) else flavor


def _debian_sources(facts: SetupFacts) -> bytes | Secret | None:
    """Return a file of sources with the components of the driver that the host lacks, from the places of its main.

    None if it lacks none. Raises StepError if kit cannot name the places.
    """
    components: dict[tuple[str, str], set[str]] = {}
    own: list[Source] = []
    for source in facts.sources:
        if source.file != NON_FREE_SOURCES:
            components.setdefault(source.place, set()).add(source.component)
            if source.component == "main" and _is_debians(facts, source):
                own.append(source)
    if not own:
        raise _no_place(facts, "apt on this host names no source of Debian with the component main")
    # What fits into one entry: the same options, and the same components to add.
    entries: dict[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], list[str]] = {}
    for source in own:
        missing = tuple(name for name in _components(facts) if name not in components[source.place])
        if not missing:
            continue
        if ("signed-by", "inline") in source.options:
            raise _no_place(facts, f"{source.file} has the key of Debian in itself, and kit cannot name it elsewhere")
        suites = entries.setdefault((source.uri, missing, source.options), [])
        if source.suite not in suites:
            suites.append(source.suite)
    text = "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {' '.join(suites)}\nComponents: {' '.join(missing)}\n"
        # apt reads no source at all if two files name one place with different options.
        + "".join(f"{'-'.join(word.capitalize() for word in key.split('-'))}: {value}\n" for key, value in options)
        for (uri, missing, options), suites in entries.items()
    )
    if not text:
        return None
    return Secret(text.encode()) if "@" in text else text.encode()


def _components(facts: SetupFacts) -> tuple[str, ...]:
    """Return the components that have the driver, what it depends on, and its firmware."""
    # Debian 11 has firmware in non-free. Debian's testing has no version.
    firmware = not facts.version or packages.major(facts.version) >= (12,)
    return ("contrib", "non-free", *(["non-free-firmware"] if firmware else []))


def _is_debians(facts: SetupFacts, source: Source) -> bool:
    """Return whether the source is Debian itself, and of this release. Others call their component main, too."""
    # A backport of the driver needs a newer kernel than the host may have.
    release = source.suite.removesuffix("/updates").removesuffix("-updates").removesuffix("-security")
    names = (facts.codename, *(_STABLE if facts.version else _TESTING))
    if release not in names:
        return False
    if source.origin:
        return source.origin == "Debian"
    # apt has not fetched its list yet. Debian's keyring signs it, or apt's default, as on old and cloud images.
    key = dict(source.options).get("signed-by", "")
    if key:
        return "/debian-archive-" in key
    return bool(_DEBIANS_PATH.search(source.uri))


def _no_place(facts: SetupFacts, text: str) -> StepError:
    wanted = " ".join(_components(facts))
    hint = f"see: kit ssh {facts.host.name} -- sudo apt-get update; or add {wanted} to its sources, then: kit setup"
    # The file of an earlier kit may be what apt refuses, and with it all sources.
    if NON_FREE_SOURCES in facts.files:
        hint = f"remove kit's {NON_FREE_SOURCES}: kit setup --undo --only driver; then {hint}"
    return StepError(
        f"{text}: the driver is in Debian's {wanted}",
        hint=hint,
        host=facts.host.name,
    )


def _revealed(content: bytes | Secret) -> bytes:
    return content.reveal() if isinstance(content, Secret) else content


def toolkit_repository(facts: SetupFacts) -> Repository:
    """Return NVIDIA's repository of the container toolkit. It is the same for all distributions."""
    base = "https://nvidia.github.io/libnvidia-container"
    return Repository(
        area="toolkit",
        whose="NVIDIA's",
        key_url=f"{base}/gpgkey",
        key=NVIDIA_KEY,
        fingerprint="C95B321B61E88C1809C4F759DDCAE044F796ECB0",
        sources=NVIDIA_SOURCES,
        uri=f"{base}/stable/deb/{facts.arch}",
        suite="/",
        text=f"Types: deb\nURIs: {base}/stable/deb/{facts.arch}\nSuites: /\nSigned-By: {NVIDIA_KEY}\n",
    )


def toolkit(facts: SetupFacts, spec: ClusterSpec, areas: tuple[Area, ...]) -> Part:
    """Return what lets the engine give GPUs to containers. Swarm requests no runtime, so its engines need a default."""
    part = Part()
    if not facts.gpus_on_bus:
        return part
    if not facts.engine and "docker" not in areas:
        part.problems.append(
            StepError(
                "NVIDIA's toolkit needs an engine, and none answers",
                hint="set up both: kit setup --only docker,toolkit",
                host=facts.host.name,
            )
        )
        return part
    if "nvidia-container-toolkit" not in facts.packages:
        problem = packages.unknown_distribution(facts, "NVIDIA's container toolkit")
        if problem is not None:
            part.problems.append(problem)
            return part
        install = InstallPackages(
            area="toolkit", packages=("nvidia-container-toolkit",), why="the engine cannot give GPUs to containers"
        )
        part.steps += [*toolkit_repository(facts).steps(facts), install]
    try:
        settings = daemon.settings_of(facts)
    except KitError as error:
        part.problems.append(error)
        return part
    # The round before has written the proxy.
    settings = daemon.merged(settings, docker.proxies(spec.setup) if "docker" in areas else {})
    wanted = _runtime(settings, swarm=spec.orchestrator == "swarm")
    if wanted:
        content = daemon.text_of(facts, daemon.merged(settings, wanted))
        keys = tuple("runtimes.nvidia" if key == "runtimes" else key for key in wanted)
        why = "the engine does not know the runtime nvidia"
        if "runtimes" not in wanted:
            why = "Swarm gives GPUs only by the engine's default runtime"
        part.steps += [
            ConfigureEngine(area="toolkit", content=content, keys=keys, restart=True, why=why),
            VerifyEngine(why="the engine was restarted"),
        ]
        if facts.running and not facts.live_restore:
            part.problems.append(docker.engine_restarts(facts))
    elif "docker" not in areas:
        part.steps += daemon.unfinished(facts, "toolkit")
    return part


def _runtime(settings: Mapping[str, Any], *, swarm: bool) -> dict[str, Any]:
    """Return what daemon.json lacks for GPUs. A default runtime that somebody chose stays: the deploy names it."""
    runtimes = settings.get("runtimes")
    known = isinstance(runtimes, dict) and "nvidia" in runtimes
    default = swarm and settings.get("default-runtime", "runc") == "runc"
    return {**({} if known else daemon.NVIDIA_RUNTIME), **({"default-runtime": "nvidia"} if default else {})}


def clocks(facts: SetupFacts) -> Part:
    """Return what keeps persistence mode and the maximum application clocks, also after a reboot."""
    part = Part()
    if not facts.clocks:
        return part
    name = facts.host.name
    if not facts.systemd:
        part.remarks.append(Remark(host=name, text="has no systemd, so kit does not set its clocks"))
        return part
    unit = CLOCKS_UNIT.rpartition("/")[2]
    known = any(value.kind == "unit" and value.key == unit for value in facts.saved_values)
    if facts.has(CLOCKS_UNIT, _CLOCKS) and known:
        slow = [str(gpu.index) for gpu in facts.clocks if not gpu.at_most]
        if slow:
            text = f"GPU {', '.join(slow)}: clocks are below their maximum, or persistence mode is off"
            part.remarks.append(Remark(host=name, text=text, hint=f"see: kit ssh {name} -- systemctl status {unit}"))
        return part
    if known and facts.running:
        # systemd has the former unit, and reads the new one only by a reload. Live-restore does not help against that.
        reason = f"systemd must reload to read the new {unit}, which can take the GPUs from"
        part.problems.append(docker.containers_run(facts, reason, then="kit setup --only clocks"))
        return part
    if known or not all(gpu.at_most for gpu in facts.clocks):
        part.steps += [
            WriteSystemFile(area="clocks", path=CLOCKS_UNIT, content=_CLOCKS, why="a reboot forgets clocks and mode"),
            StartUnit(area="clocks", unit=unit, why="the slowest GPU sets the pace of all"),
        ]
    return part
