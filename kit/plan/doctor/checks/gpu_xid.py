"""Errors of GPUs and NVSwitches in the kernel's log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, Severity, Sight
from kit.plan.doctor.gpus import PROGRAM

# The driver writes them as errors. The lines of a start that only inform would fill the answer. The newest ones
# count most, and dmesg prints them last.
_LOG = Command(argv=("dmesg", "--level=emerg,alert,crit,err,warn,notice"), only_with=PROGRAM, tail=True)
# With MIG, the GPU instance follows the address, and maybe the compute instance: GPU-I:05 GPU-CI:00.
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{4,20}(?: GPU-I:[0-9]{1,5}(?: GPU-CI:[0-9]{1,5})?)?)\): ([0-9]{1,4})\b"
)
# The lines after it have more numbers of the same error, such as Data {0x…}.
_SXID = re.compile(r"SXid \((?:PCI:)?([0-9A-Fa-f:.]{4,20})\): ([0-9]{1,6}), (Fatal|Non-fatal)\b")
# Of a program that did something wrong, or that was ended. NVIDIA's catalog says of most to start it again:
# https://docs.nvidia.com/deploy/xid-errors
_PROGRAMS = frozenset(
    {8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 45, 60, *range(68, 73), 75, 76, 77, 80, *range(82, 87), 88, 89}
    | {*range(96, 106), *range(126, 136), 137, 139}
)
_PROGRAM_FIX = (
    "look into the logs of the runs of that time: kit runs. The GPU needs no reset. If programs fail on it that work "
    "on others, replace the VM"
)
# The catalog says of these to do nothing now, and to ask NVIDIA's support if they return.
_MINOR = frozenset({14, 37, 38, 44, 66, 67, 92, 93, 106, 107, 108, 121, 141, 157, 160, 161})
_MINOR_FIX = "programs go on, and the GPU needs no reset now. If the error returns, tell your provider or NVIDIA"
# Its cause is the memory, and only one program ended. The catalog says to start that again, and to reset the GPU later.
_CONTAINED = 94
_CONTAINED_FIX = (
    "start the program again. Others go on. When no program uses the GPU, reset it: sudo nvidia-smi --gpu-reset -i "
    "NUMBER. If the error returns, replace the VM"
)
# Errors of NVLink on new GPUs. If one that is not fatal needs a reset, the driver adds a line of Xid 154.
_LINKS = frozenset({144, 145, 147, 148})
_NONFATAL = re.compile(r": 14[0-9], [A-Z0-9_]{1,40} Nonfatal\b")
_LINKS_FIX = (
    "NVLink goes on. If the GPU needs a reset, a line of Xid 154 reports that. If the error returns, tell your "
    "provider or NVIDIA"
)
# It says what another error needs: a reset, a reboot or, at the end of the line, nothing any more.
_RECOVERY, _NO_RECOVERY = 154, "(None)"
# The program's end after another error, and a memory row that was replaced and works again.
_AFTERMATH = frozenset({43, 45, 63})
_MEANINGS = {
    13: "a program did something wrong on the GPU",
    31: "a program used a wrong address",
    48: "memory error that ECC could not correct",
    62: "the GPU's own firmware stopped",
    64: "a broken memory row could not be replaced",
    74: "NVLink failed",
    79: "the GPU fell off the bus",
    92: "ECC corrects many memory errors",
    93: "its firmware's memory was written too often",
    94: "memory error, one program ended",
    95: "memory error, all programs on it ended",
    119: "the GPU's firmware (GSP) does not answer",
    120: "the GPU's firmware (GSP) failed",
    121: "errors of the link to the CPU were corrected",
    137: "a program used a wrong address over NVLink",
    154: "what the GPU needs after another error",
}
# A log that repeats itself says no more.
_MOST_LINES = 20_000
_MOST_KINDS = 8
# What a line says, how bad that is, and what to do instead of the check's own advice.
_Kind = tuple[str, Severity, str]


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        ran = host.ran(*_LOG.argv)
        if ran is None or ran.code != 0:
            continue
        kinds: dict[_Kind, int] = {}
        for line in ran.out.splitlines()[-_MOST_LINES:]:
            if kind := _kind(line):
                kinds[kind] = kinds.get(kind, 0) + 1
        # Of too many, those that break something: a faulty program leaves a line of each GPU that it used.
        shown = sorted(kinds, key=lambda kind: kind[1] != "breaks")[:_MOST_KINDS]
        for text, severity, fix in (kind for kind in kinds if kind in shown):
            count = kinds[text, severity, fix]
            times = f", {count} times" if count > 1 else ""
            yield Sight(hosts=(host.name,), seen=f"{text}{times}", severity=severity, fix=fix)


def _kind(line: str) -> _Kind | None:
    """Return what a line of the log says. None for a line that says nothing about a GPU's health."""
    if match := _XID.search(line):
        number = int(match[2])
        if number in _AFTERMATH or (number == _RECOVERY and line.rstrip().endswith(_NO_RECOVERY)):
            return None
        meaning = f" ({_MEANINGS[number]})" if number in _MEANINGS else ""
        text = f"Xid {number} on {match[1]}{meaning}"
        fix = _harmless(number, line)
        return (text, "watch", fix) if fix else (text, "breaks", "")
    if match := _SXID.search(line):
        return f"SXid {match[2]} on {match[1]} ({match[3]})", "breaks" if match[3] == "Fatal" else "watch", ""
    return None


def _harmless(number: int, line: str) -> str:
    """Return what to do after an error after which the GPU goes on, or ""."""
    if number in _MINOR:
        return _MINOR_FIX
    if number == _CONTAINED:
        return _CONTAINED_FIX
    if number in _LINKS and _NONFATAL.search(line):
        return _LINKS_FIX
    return _PROGRAM_FIX if number in _PROGRAMS else ""


CHECK = Check(
    id="gpu-xid",
    title="The kernel's log has errors of GPUs",
    area="gpu",
    severity="breaks",
    judge=judge,
    reads=(_LOG,),
    leads_to="Ranks on this GPU end or wait forever. After an error of the hardware, it may be missing after the next "
    "start.",
    fix="After an error of the hardware, end the programs on the GPU, reset it, `sudo nvidia-smi --gpu-reset -i "
    "NUMBER`, and clear the log, `sudo dmesg -C`: until then, its lines remain a finding. Or reboot the VM, which does "
    "both. If the error returns, replace the VM. NVIDIA lists the numbers: https://docs.nvidia.com/deploy/xid-errors",
    lab="kit lab gpu HOST --fault xid:79",
)
