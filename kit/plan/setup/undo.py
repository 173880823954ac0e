"""The way back: files get their original bytes, units stop, values are as they were. Packages stay."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import KitError
from kit.model.plan import HostPlan, Round, Step, plan_of
from kit.model.setup.areas import AREAS, Area
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import DAEMON_JSON, DOCKER_PROXY, GRUB, STATE
from kit.model.setup.result import Draft, Remark
from kit.model.setup.steps import (
    ChangeMtu,
    RestoreFile,
    RestoreValues,
    StartEngine,
    StopUnit,
    UpdateBootLoader,
    VerifyEngine,
)
from kit.model.spec import ClusterSpec
from kit.plan.setup.docker import needs_no_containers


def undo_plan(spec: ClusterSpec, observed: Sequence[SetupFacts], areas: Sequence[Area]) -> tuple[Draft, list[KitError]]:
    """Return the plan that restores what kit setup changed in these areas, and everything that prevents it."""
    problems: list[KitError] = []
    remarks: list[Remark] = []
    hosts, cautious = [], []
    for facts in observed:
        steps = _steps(facts, areas)
        problems += needs_no_containers(facts, steps, then="kit setup --undo")
        remarks += _remarks(facts, areas)
        hosts.append(HostPlan(host=facts.host.name, steps=tuple(steps)))
        cautious.append(HostPlan(host=facts.host.name, steps=tuple(_mtu(facts, areas))))
    rounds = [
        Round(name="undo", hosts=tuple(hosts), needs="host"),
        Round(name="MTU", hosts=tuple(cautious), needs="host"),
    ]
    return Draft(
        plan=plan_of(spec.name, [facts.host.name for facts in observed], rounds), remarks=tuple(remarks)
    ), problems


def _steps(facts: SetupFacts, areas: Sequence[Area]) -> list[Step]:
    values = [value for value in facts.saved_values if value.area in areas]
    mine = [file for file in facts.saved_files if file.areas and set(file.areas) <= set(areas)]
    files = [file for file in mine if file.state != "changed"]
    steps: list[Step] = [
        StopUnit(unit=value.key, why="kit setup started it") for value in values if value.kind == "unit"
    ]
    for file in files:
        why = "kit setup changed it" if file.existed else "it did not exist before kit setup"
        steps.append(RestoreFile(path=file.path, existed=file.existed, why=why))
    kernel = tuple((value.key, value.value) for value in values if value.kind == "sysctl")
    if kernel:
        steps.append(RestoreValues(what="sysctl", values=kernel, why="kit setup raised them"))
    pages = tuple((value.key, value.value) for value in values if value.kind == "hugepages")
    if pages:
        steps.append(RestoreValues(what="hugepages", values=pages, why="kit setup reserved more"))
    restored = {file.path for file in files if file.state == "same"}
    # What an undo that was killed has left to do: its files are restored already.
    unfinished = {
        *(["grub"] if "hugepages" in areas else []),
        *(["engine"] if {"docker", "toolkit"} & set(areas) else []),
    }
    unfinished &= set(facts.unfinished)
    if facts.grub and (GRUB in restored or "grub" in unfinished):
        steps.append(UpdateBootLoader(why="its settings changed"))
    if facts.engine and (restored & {DAEMON_JSON, DOCKER_PROXY} or "engine" in unfinished):
        steps += [
            StartEngine(area="docker", why="it reads its settings when it starts", restart=True),
            VerifyEngine(why="the engine was restarted"),
        ]
    return steps


def _mtu(facts: SetupFacts, areas: Sequence[Area]) -> list[Step]:
    """Return the steps that give each interface its former MTU, with the same way back as the change."""
    steps: list[Step] = []
    now = {nic.name: nic.mtu for nic in facts.nics}
    pending = {nic.name for nic in facts.nics if nic.pending}
    for value in facts.saved_values:
        if value.kind != "mtu" or value.area not in areas or not value.value.isdecimal():
            continue
        if value.key in pending or now.get(value.key) not in (None, int(value.value)):
            why = f"it was {value.value} before kit setup"
            steps.append(ChangeMtu(area="mtu", interface=value.key, mtu=int(value.value), why=why))
        steps.append(RestoreValues(what="mtu", values=((value.key, value.value),), why="kit setup changed it"))
    return steps


def _remarks(facts: SetupFacts, areas: Sequence[Area]) -> list[Remark]:
    name = facts.host.name
    remarks = []
    for file in facts.saved_files:
        if not set(file.areas) & set(areas):
            continue
        if file.state == "same" and (others := [area for area in file.areas if area not in areas]):
            text = f"{file.path} also has settings of the area {' and '.join(others)}, and kit leaves it unchanged"
            every = ",".join(area for area in AREAS if area in {*areas, *others})
            remarks.append(Remark(host=name, text=text, hint=f"undo both: kit setup --undo --only {every}"))
        if file.state == "changed":
            original = f"{STATE}/files/{file.path.replace('/', '+')}/original"
            hint = f"compare them: kit ssh {name} -- sudo diff {original} {file.path}" if file.existed else None
            text = f"{file.path} was changed after kit setup wrote it, and kit leaves it unchanged"
            remarks.append(Remark(host=name, text=text, hint=hint))
    ours = sorted(package for package, area in facts.saved_packages if area in areas and package in facts.packages)
    if ours:
        text = f"packages that kit setup installed stay: {' '.join(ours)}"
        command = f"kit ssh {name} -- sudo apt-get remove --autoremove {' '.join(ours)}"
        hint = f"to remove them with what they brought: {command}"
        remarks.append(Remark(host=name, text=text, hint=hint))
    return remarks
