"""From what hosts have to the plan of kit setup. Nothing to do is a plan without rounds.

A round is an area, and in it all hosts work side by side. Hosts reboot one after the other, each in a round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kit.errors import KitError, StepError
from kit.model.plan import HostPlan, Round, Step, plan_of
from kit.model.setup.areas import AREAS, Area
from kit.model.setup.facts import SetupFacts
from kit.model.setup.result import Draft, Remark
from kit.model.setup.steps import FinishPackages, InstallPackages, Reboot
from kit.model.spec import ClusterSpec
from kit.plan.setup import clocks, docker, driver, hugepages, mtu, sysctl, toolkit
from kit.plan.setup.part import Part

# A host that fails in one area is left out of the later ones; the others go on.
_TITLES: Mapping[Area, str] = {
    "docker": "Docker",
    "driver": "NVIDIA's driver",
    "toolkit": "NVIDIA's container toolkit",
    "sysctl": "kernel settings",
    "clocks": "GPU clocks",
    "hugepages": "huge pages",
    "mtu": "MTU",
}


def setup_plan(
    spec: ClusterSpec,
    observed: Sequence[SetupFacts],
    areas: Sequence[Area],
    *,
    reboot: bool = False,
    own_boot_id: str = "",
    rebooted: Collection[str] = (),
) -> tuple[Draft, list[KitError]]:
    """Return the plan and everything that prevents it. kit never reboots the machine with `own_boot_id`, its own.

    It does not reboot the hosts in `rebooted` again, either.
    """
    chosen = tuple(area for area in AREAS if area in areas)
    parts = {facts.host.name: {area: _part(area, facts, spec, chosen) for area in chosen} for facts in observed}
    problems = _once([problem for areas_ in parts.values() for part in areas_.values() for problem in part.problems])
    waiting = {
        host: tuple(reason for part in areas_.values() for reason in part.waiting)
        for host, areas_ in parts.items()
        if any(part.waiting for part in areas_.values())
    }
    remarks = [remark for areas_ in parts.values() for part in areas_.values() for remark in part.remarks]
    rounds = [_finish(observed, parts)]
    for area in chosen:
        hosts = tuple(HostPlan(host=host, steps=tuple(areas_[area].steps)) for host, areas_ in parts.items())
        rounds.append(Round(name=_TITLES[area], hosts=hosts, needs="host"))
    names = [facts.host.name for facts in observed]
    plan = plan_of(spec.name, names, rounds)
    if plan.empty and reboot:
        wait = {host: reasons for host, reasons in waiting.items() if host not in rebooted}
        rounds, refused, prevented = _reboots(observed, wait, own_boot_id)
        remarks += refused
        problems += prevented
        plan = plan_of(spec.name, names, rounds)
    return Draft(plan=plan, waiting=waiting, remarks=tuple(remarks)), problems


def useless_reboots(result: Draft, rebooted: Collection[str]) -> list[KitError]:
    """Return an error for each of these hosts that still waits for a reboot."""
    return [_useless_reboot(host, reasons) for host, reasons in result.waiting.items() if host in rebooted]


def _useless_reboot(host: str, reasons: Sequence[str]) -> KitError:
    driver = any("driver" in reason for reason in reasons)
    # A module that was not built for this kernel, one that Secure Boot refuses, or one that does not know the GPU.
    where = "dkms status; mokutil --sb-state; dmesg | grep -i nvidia" if driver else "cat /proc/cmdline; free -g"
    return StepError(
        f"a reboot did not help: {'; '.join(reasons)}",
        hint=f"look at the host: kit ssh {host}, then: {where}",
        host=host,
    )


def _part(area: Area, facts: SetupFacts, spec: ClusterSpec, areas: tuple[Area, ...]) -> Part:
    drafts: Mapping[Area, Callable[[], Part]] = {
        "docker": lambda: docker.plan(facts, spec.setup),
        "driver": lambda: driver.driver(facts, spec),
        "toolkit": lambda: toolkit.toolkit(facts, spec, areas),
        "sysctl": lambda: sysctl.sysctl(facts),
        "clocks": lambda: clocks.clocks(facts),
        "hugepages": lambda: hugepages.hugepages(facts, spec.setup),
        "mtu": lambda: mtu.mtu(facts, spec.setup, spec.network),
    }
    return drafts[area]()


def _once(problems: Sequence[KitError]) -> list[KitError]:
    """Return each problem of a host once: two areas may have the same."""
    return list({str(problem): problem for problem in problems}.values())


def _finish(observed: Sequence[SetupFacts], parts: Mapping[str, Mapping[Area, Part]]) -> Round:
    """Return the round that lets dpkg finish, on hosts where a package must be installed or was interrupted."""
    step = FinishPackages(why="an installation was interrupted, and apt installs nothing before that")
    hosts: list[HostPlan] = []
    for facts in observed:
        installs = any(isinstance(s, InstallPackages) for part in parts[facts.host.name].values() for s in part.steps)
        # install.sh finishes what was interrupted, too. The round names it, and does it where nothing is installed.
        steps: tuple[Step, ...] = (step,) if facts.interrupted and not installs else ()
        hosts.append(HostPlan(host=facts.host.name, steps=steps))
    return Round(name="packages", hosts=tuple(hosts), needs="host")


def _reboots(
    observed: Sequence[SetupFacts], waiting: Mapping[str, Sequence[str]], own_boot_id: str
) -> tuple[list[Round], list[Remark], list[KitError]]:
    """Return a round for each host that waits for a reboot, remarks on hosts that kit never reboots, and problems.

    A host that does not come back ends the plan. No host reboots while containers run on one of them.
    """
    rounds, refused, problems = [], [], list[KitError]()
    for facts in observed:
        name = facts.host.name
        if name not in waiting:
            continue
        if not facts.boot_id or facts.boot_id == own_boot_id:
            text = "waits for a reboot, and kit never reboots the machine that it runs on"
            refused.append(Remark(host=name, text=text, hint="reboot it yourself, then: kit setup"))
            continue
        if facts.running:
            # Live-restore does not keep them, either.
            then = "kit setup --allow-reboot"
            problems.append(docker.containers_run(facts, "kit setup would reboot the host, which ends", then=then))
            continue
        step = Reboot(boot_id=facts.boot_id, why=f"{'; '.join(waiting[name])}")
        rounds.append(Round(name=f"reboot {name}", hosts=(HostPlan(host=name, steps=(step,)),)))
    return rounds, refused, problems
