"""Huge pages of 1 GiB."""

from __future__ import annotations

from kit.errors import StepError
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import GRUB
from kit.model.setup.result import Remark
from kit.model.setup.steps import ReservePages, UpdateBootLoader, WriteSystemFile
from kit.model.spec import SetupSpec
from kit.model.text import plural
from kit.plan.setup.part import Part

# What huge pages leave to the system at least.
_GIB_KIB = 2**20
_LEAST_KIB = 2 * _GIB_KIB


def hugepages(facts: SetupFacts, spec: SetupSpec) -> Part:
    """Return what reserves huge pages of 1 GiB: now as far as there is room, and at the next boot."""
    part = _pages(facts, spec)
    if facts.grub and "grub" in facts.unfinished and not any(isinstance(step, UpdateBootLoader) for step in part.steps):
        part.steps.append(UpdateBootLoader(why="kit was killed before GRUB read its settings"))
    return part


def _pages(facts: SetupFacts, spec: SetupSpec) -> Part:
    part = Part()
    count, name = spec.hugepages, facts.host.name
    if not count:
        return part
    if facts.pages is None:
        part.problems.append(
            StepError(
                "its processor or kernel has no huge pages of 1 GiB",
                hint="see: grep pdpe1gb /proc/cpuinfo; remove setup.hugepages from kit.yaml, or choose other VMs",
                host=name,
            )
        )
        return part
    words = f"default_hugepagesz=2M hugepagesz=1G hugepages={count}"
    text = f'# Made by kit setup.\nGRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"\n'
    written = facts.has(GRUB, text.encode())
    enough = facts.pages >= count
    known = any(value.kind == "hugepages" for value in facts.saved_values)
    if enough and not known and GRUB not in facts.files:
        return part  # They are reserved by other means.
    if not enough and (problem := _too_many(facts, count)):
        part.problems.append(problem)
        return part
    new = not written if facts.grub else not known
    if new and not enough:
        why = f"it has {plural(facts.pages, 'page')} of 1 GiB, and kit.yaml wants {count}"
        part.steps.append(ReservePages(area="hugepages", count=count, why=why))
    if facts.grub and not written:
        part.steps += [
            WriteSystemFile(area="hugepages", path=GRUB, content=text.encode(), why="memory is whole only at boot"),
            UpdateBootLoader(why="its settings changed"),
        ]
    if not facts.grub and (new or not enough):
        reason = "kit knows no boot loader there but GRUB: the pages are gone after a reboot"
        part.remarks.append(
            Remark(host=name, text=reason, hint=f"add to its kernel's command line: hugepagesz=1G hugepages={count}")
        )
    if not enough and facts.boot_pages and written:
        text = f"the kernel reserved only {facts.pages} of {plural(count, 'page')} of 1 GiB at boot"
        part.remarks.append(Remark(host=name, text=text, hint="lower setup.hugepages in kit.yaml: see free -g"))
    elif not enough and facts.grub:
        later = ", if the kernel has no room for them now" if new else ""
        part.waiting.append(f"{plural(count, 'page')} of 1 GiB{later}")
    return part


def _too_many(facts: SetupFacts, count: int) -> StepError | None:
    """Return the error for pages that leave too little memory: the kernel gives it to them first, and does not boot."""
    least = max(_LEAST_KIB, facts.memory_kib // 10)
    if not facts.memory_kib or count * _GIB_KIB <= facts.memory_kib - least:
        return None
    most = max(0, (facts.memory_kib - least) // _GIB_KIB)
    return StepError(
        f"it has {facts.memory_kib / _GIB_KIB:.1f} GiB of memory, and setup.hugepages: {count} takes {count} GiB of "
        "it, so it would not boot",
        hint=f"pages have 1 GiB, so write at most {most} (setup.hugepages, or --hugepages); "
        f"for some hosts alone: kit setup -H {facts.host.name} --hugepages N",
        host=facts.host.name,
    )
