"""docs/doctor.md: all checks of kit doctor, in a table and with a section each. scripts/docs-doctor writes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kit.model.doctor import Area, Check, Command, Disk, File, Files, Links, Lookup, Read
from kit.plan.doctor.checks import CHECKS

AREAS: Mapping[Area, str] = {
    "host": "Hosts",
    "cluster": "Hosts as a cluster",
    "gpu": "GPUs",
    "network": "The network of a host",
    "pair": "Between hosts",
}
# The checks that prevent a deploy, with the same text.
REFUSED = frozenset({
    "engine", "compose", "python", "disk", "port-taken", "one-machine", "arch", "swarm", "no-address",
    "gpu-hook", "gpu-snap", "gpu-cuda",
})  # fmt: skip
# Verbs that this kit does not have yet are no commands to type.
_UNKNOWN = re.compile(r"`(kit (?:setup|lab fault)\b[^`]*)`")
_HEAD = """\
# The doctor

<!-- scripts/docs-doctor writes this page from kit/plan/doctor/checks. Do not edit it. -->

`kit doctor` names what is wrong with your hosts, their GPUs and the network between them, before a job fails or hangs
on it. It only reads. It needs no engine, no deployed cluster and no GPU. Where a cluster runs, it also looks into its
nodes.

```sh
kit doctor                    # all hosts, and all pairs of at most 16 hosts
kit doctor --pairs none       # without measuring between hosts
kit doctor -H 'gpu[1-4]'
kit doctor --explain own-name # a part of this page, without contacting hosts
kit doctor --json             # one object, for a program
```

A finding has an ID, its hosts, what kit saw on them, what it leads to, and what to type. Hosts with the same problem
share a line. Where hosts should be alike, most of them are the reference, and the others are named. kit runs all
checks even if one host cannot be reached: that host is a finding (`unreachable`).

| Severity | What it means | Exit code |
|---|---|---|
| *breaks* | runs or deploys fail, or hang | 4 |
| *slows* | runs work, and are slower than they could be | 3 |
| *watch* | nothing is wrong yet, or it is only wrong for some programs | 0 |

The exit code is that of the worst finding. It is 0 without findings.

The last column of the table says what `kit deploy` does with a check. It *refuses* a host with the same words and
changes nothing. If it has something to do, it also reads the files of other checks, and *warns* of what they find.

## All checks

"""
_LAB = """\
## How the checks are tested

Each check has unit tests. Most also have a fault for [the lab](lab.md): a test brings up hosts, finds nothing,
injects the fault, expects the check to name that host and no other, repairs the host, and finds nothing again. The
sections say how to provoke a finding yourself, or why the lab cannot. No check has met a real GPU, InfiniBand, or a
fault of real hardware.
"""


def markdown(checks: Sequence[Check] = CHECKS) -> str:
    """Return the page."""
    parts = [_HEAD + _table(checks), _LAB]
    for area, title in AREAS.items():
        members = [check for check in checks if check.area == area]
        if members:
            parts += [f"## {title}\n", *map(_section, members)]
    return _UNKNOWN.sub(r"\1", "\n".join(parts))


def _table(checks: Sequence[Check]) -> str:
    rows = ["| ID | It finds | Severity | Area | Deploy |", "|---|---|---|---|---|"]
    ordered = [check for area in AREAS for check in checks if check.area == area]
    rows += [
        f"| [`{one.id}`](#{one.id}) | {one.title} | {one.severity} | {AREAS[one.area]} | {_deploy(one)} |"
        for one in ordered
    ]
    return "\n".join(rows) + "\n"


def _deploy(check: Check) -> str:
    """Return what kit deploy does with a check."""
    words = ("refuses" if check.id in REFUSED else "", "warns" if check.deploy else "")
    return ", ".join(filter(None, words))


def _section(check: Check) -> str:
    lines = [f"### `{check.id}`", "", f"{check.title}. *{check.severity.capitalize()}.*", ""]
    lines.append(f"- **Leads to:** {check.leads_to}")
    lines.append(f"- **Fix:** {check.fix}")
    lines.append(f"- **Reads:** {', '.join(_sources(check))}")
    if check.lab:
        lines.append(f"- **In the lab:** `{check.lab}`")
    else:
        lines.append(f"- **Not in the lab:** {check.untested}")
    return "\n".join(lines) + "\n"


def _sources(check: Check) -> Iterable[str]:
    """Yield what a check reads, in Markdown."""
    yield from dict.fromkeys(map(_source, check.reads))
    if check.facts:
        yield "what `kit deploy` observes"
    if check.measures:
        yield "what hosts measure between each other"
    if not (check.reads or check.facts or check.measures):
        yield "whether kit can log in"


def _source(read: Read) -> str:
    match read:
        case File():
            return f"`{read.path}`"
        case Files() | Links():
            return f"`{read.pattern}`"
        case Command():
            return f"`{_shown(read.argv)}`" + (" in the node" if read.node else "")
        case Disk():
            return f"the room of `{read.path}`"
        case Lookup():
            return f"the addresses of `{read.name}`" if read.name else "the addresses of its own name"


def _shown(argv: Sequence[str]) -> str:
    """Return a command without the text of a script."""
    words = [word for word in argv if "\n" not in word and len(word) < 60]
    return " ".join(words).replace("|", "\\|")
