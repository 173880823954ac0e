"""Packages of NVIDIA's driver on Ubuntu: branches, and a package of modules for each kernel."""

from __future__ import annotations

import re

from kit.errors import StepError
from kit.model.setup.facts import SetupFacts
from kit.model.spec import SetupSpec
from kit.plan.setup.gpu_ids import needs_open
from kit.plan.setup.packages import major

# The branch of the driver on Ubuntu, if kit.yaml names none: NVIDIA's long-term branch, which has GPUs from Pascal on.
DRIVER = "580-server"
# 580, 580-server, 580-open and 580-server-open, in packages that a driver from Ubuntu's modules has.
_BRANCH = re.compile(r"(?:linux-modules-nvidia|nvidia-headless-no-dkms)-([0-9]+(?:-server)?(?:-open)?)(?:-|$)")


def branch_of(facts: SetupFacts) -> str:
    """Return the branch of a driver that uses Ubuntu's modules, or "". One that dkms builds needs no such package."""
    if facts.os != "ubuntu" or any(name.startswith("nvidia-dkms-") for name in facts.packages):
        return ""
    return next((match[1] for name in facts.packages if (match := _BRANCH.match(name))), "")


def default_branch(facts: SetupFacts) -> str:
    """Return the branch for a host's GPUs if kit.yaml names none."""
    return f"{DRIVER}-open" if needs_open(facts) else DRIVER


def packages_of(facts: SetupFacts, spec: SetupSpec) -> tuple[str, ...]:
    """Return what brings the driver of kit.yaml's branch, or of kit's, to a host without one."""
    branch = spec.driver or default_branch(facts)
    # The programs are the same for both kinds of modules.
    utils = f"nvidia-utils-{branch.removesuffix('-open')}"
    return (f"nvidia-headless-no-dkms-{branch}", utils, *_modules(facts, branch))


def wrong_branch(facts: SetupFacts, spec: SetupSpec) -> StepError | None:
    """Return the error for a driver of Ubuntu's modules that does not work, and is not the wanted one."""
    mine = [name for name in facts.packages if _BRANCH.match(name)] if branch_of(facts) else []
    branches = sorted({match[1] for name in mine if (match := _BRANCH.match(name))})
    there, change = ", ".join(branches), ""
    if not branches:
        return None
    if needs_open(facts) and not any("-open" in branch for branch in branches):
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


def lacking_modules(facts: SetupFacts) -> tuple[str, ...]:
    """Return what is missing if the driver has no module for the running kernel: the kernel was upgraded without it."""
    branch = branch_of(facts)
    modules = _modules(facts, branch)
    if not branch or modules[0] in facts.packages:
        return ()
    return tuple(name for name in modules if name not in facts.packages)


def _modules(facts: SetupFacts, branch: str) -> tuple[str, str]:
    """Return the package of the running kernel's modules, and the one that brings those of later kernels."""
    return f"linux-modules-nvidia-{branch}-{facts.kernel}", f"linux-modules-nvidia-{branch}-{_series(facts)}"


def flavor_of(facts: SetupFacts) -> str:
    """Return the flavor of Ubuntu's kernel, which follows version and number: generic, aws, nvidia-64k."""
    return facts.kernel.split("-", 2)[-1]


def _series(facts: SetupFacts) -> str:
    """Return the flavor as metapackages spell it: generic, generic-hwe-22.04, aws."""
    flavor = flavor_of(facts)
    release = {"22.04": (5, 15), "24.04": (6, 8)}.get(facts.version)
    number = major(".".join(facts.kernel.split("-")[0].split(".")[:2]))
    newer = release is not None and number > release
    return f"{flavor}-hwe-{facts.version}" if newer and flavor.startswith(("generic", "lowlatency")) else flavor
