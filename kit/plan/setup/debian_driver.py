"""Packages of NVIDIA's driver on Debian, and the sources of apt that have them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kit.errors import StepError
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.setup.facts import SetupFacts, Source
from kit.model.setup.paths import NON_FREE_SOURCES
from kit.model.setup.result import Remark
from kit.model.setup.steps import WriteSystemFile
from kit.plan.setup.gpu_ids import least_branch, needs_open
from kit.plan.setup.packages import major

_PROGRAMS = ("nvidia-smi", "libcuda1", "libnvidia-ptxjitcompiler1", "nvidia-persistenced")
# The branch of each release.
_BRANCHES: Mapping[tuple[int, ...], str] = {(11,): "470", (12,): "535", (13,): "550"}
_STABLE = ("stable", "oldstable", "oldoldstable")
_TESTING = ("testing", "unstable", "sid")
_DEBIANS_PATH = re.compile(r"/debian(-security)?(\.list)?/*$")


def branch_of(facts: SetupFacts) -> str:
    """Return the branch of the driver in this release of Debian, or "" if kit does not know it, as in testing."""
    return _BRANCHES.get(major(facts.version)[:1], "")


def packages_of(facts: SetupFacts) -> tuple[str, ...]:
    """Return what brings the driver to a host without one.

    Raises StepError if the driver of this release does not know its GPUs.
    """
    branch, least = branch_of(facts), least_branch(facts)
    if branch and int(branch) < least:
        raise StepError(
            f"its GPUs need NVIDIA's driver {least} or newer, and {facts.name} has {branch}",
            hint="install the driver of NVIDIA's own repository with the open modules, by hand, then: kit setup",
            host=facts.host.name,
        )
    module = "nvidia-open-kernel-dkms" if needs_open(facts) else "nvidia-kernel-dkms"
    return (*_kernel(facts), module, *_PROGRAMS)


def lacking_headers(facts: SetupFacts) -> tuple[str, ...]:
    """Return what is missing if dkms has built the driver's module for no kernel, because it has no headers of one."""
    kernel = _kernel(facts)
    dkms = any(name.endswith("-dkms") for name in facts.packages)
    if facts.os != "debian" or not dkms or facts.module_kernels or kernel[1] in facts.packages:
        return ()
    return kernel


def other_kernel(facts: SetupFacts) -> str:
    """Return why a driver that dkms has built is not loaded into the kernel that runs, or ""."""
    if facts.driver or not facts.module_kernels or facts.kernel in facts.module_kernels:
        return ""
    return f"its module is for the kernel {', '.join(facts.module_kernels[-3:])}, and {facts.kernel} runs"


def unknown_key(facts: SetupFacts) -> list[Remark]:
    """Return the remark for a host whose firmware may not know the key with which dkms signs the driver's module."""
    if facts.os != "debian" or not facts.secure_boot:
        return []
    name = facts.host.name
    return [
        Remark(
            host=name,
            text="has Secure Boot, so the kernel refuses the module that dkms builds until the firmware knows its key",
            hint="turn Secure Boot off; or, when the module is built, install mokutil and type "
            f"kit ssh {name} -- sudo mokutil --import /var/lib/dkms/mok.pub; then reboot it and confirm at its console",
        )
    ]


def _kernel(facts: SetupFacts) -> tuple[str, str]:
    """Return the packages that bring Debian's newest kernel of the same kind, and its headers."""
    kind = next((f"{word}-" for word in ("cloud", "rt") if f"-{word}-" in facts.kernel), "")
    # Debian has headers of its newest kernel only. With that kernel, one reboot brings a kernel with the module.
    return f"linux-image-{kind}{facts.arch}", f"linux-headers-{kind}{facts.arch}"


def missing_sources(facts: SetupFacts) -> bytes | Secret | None:
    """Return a file of sources with the components of the driver that the host lacks, from the places of its main.

    None if nothing is missing, or the host has the file. Raises StepError if kit cannot name the places.
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
    content = Secret(text.encode()) if "@" in text else text.encode()
    return None if not text or facts.has(NON_FREE_SOURCES, text.encode(), mode_of(content)) else content


def mode_of(sources: bytes | Secret) -> str:
    """Return the mode of a file of sources. apt reads it as root, and other users of the host could read a login."""
    return "600" if isinstance(sources, Secret) else "644"


def open_sources(facts: SetupFacts) -> list[Step]:
    """Return the step that closes a file of sources with a login, which an earlier kit wrote for every user."""
    file = facts.files.get(NON_FREE_SOURCES)
    if file is None or file.content is None or b"@" not in file.content or file.mode[-1:] not in "4567":
        return []
    content = Secret(file.content)
    why = "it has a login, and every user of the host can read it"
    return [WriteSystemFile(area="driver", path=NON_FREE_SOURCES, content=content, mode=mode_of(content), why=why)]


def _components(facts: SetupFacts) -> tuple[str, ...]:
    """Return the components that have the driver, what it depends on, and its firmware."""
    # Debian 11 has firmware in non-free. Debian's testing has no version.
    firmware = not facts.version or major(facts.version) >= (12,)
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
