"""docs/doctor.md: all checks of kit doctor, in a table and with a section each. scripts/docs-doctor writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kit.model.doctor import Area, Check, Command, Disk, File, Files, Links, Lookup, Mounts, Read
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
    "resources", "gpu-hook", "gpu-snap", "gpu-cuda",
})  # fmt: skip
_HEAD = """\
# The doctor

<!-- scripts/docs-doctor writes this page from kit/plan/doctor/checks. Do not edit it. -->

`kit doctor` names what is wrong with your hosts, their GPUs and the network between them, before a job fails or hangs
on it. It only reads, except with [`--cordon`](queue.md#hosts-that-should-rest). It needs no engine, no deployed cluster
and no GPU. Where a cluster runs, it also looks into its nodes.

```sh
kit doctor                    # all hosts, and all pairs of at most 16 hosts
kit doctor --pairs none       # without measuring between hosts
kit doctor -H 'gpu[1-4]'
kit doctor --explain own-name # a part of this page, without contacting hosts
kit doctor --json             # one object, for a program
```

A finding has an ID, its hosts, what kit saw on them, what it leads to, and what to type. Hosts with the same problem
share a line. Where hosts should be alike, most of them are the reference, and the others are named. Of two that
differ, it is the head, or the one that has more where less is worse. A head that runs no ranks
(`head_runs_ranks: false`) may be small: kit does not compare its size, and its slow network is only to watch. kit runs
all checks even if one host cannot be reached: that host is a finding (`unreachable`).

| Severity | What it means | Exit code |
|---|---|---|
| *breaks* | runs or deploys fail, or hang | 4 |
| *slows* | runs work, and are slower than they could be | 3 |
| *watch* | nothing is wrong yet, or it is only wrong for some programs | 0 |

The exit code is that of the worst finding. It is 0 without findings, and 4 if a check failed because of a bug in kit.

The last column of the table says what `kit deploy` does with a check. It *refuses* a host with the same words and
changes nothing. If it has something to do, it also reads the files of other checks, and *warns* of what they find.

## All checks

"""
_LAB = """\
## How the checks are tested

Each check has unit tests. Most also have a fault for [the lab](lab.md): a test brings up hosts, finds nothing,
injects the fault, expects the check to name that host, repairs the host, and finds nothing again. Except for checks
between hosts, and those that name hosts that are alike, it must name no other host. The
sections say how to provoke a finding yourself, or why the lab cannot. On a VM with a real GPU, an
[H200](gpus.md#on-an-h200), `gpu-xid` named the fault of a program, and no other check had a finding. No check has met
InfiniBand, or a fault of real hardware.
"""
# Before the checks of an area.
_INTRODUCTIONS: Mapping[Area, str] = {
    "pair": """\
Each host runs one small program while kit measures, over one connection. It writes no file, listens on the cluster's
address only, serves only who knows the secret of this examination, and ends with its connection, also after Ctrl-C.

1. **Ports.** Every host connects to its peers at once: to `ssh_port`, to the first port of MPI's ranks (1024, or your
   `btl_tcp_port_min_v4`), to an ephemeral port, and with Swarm to Swarm's two. The program listens there for a few
   seconds where nothing else does, so do not deploy at the same time. A port of mpirun's daemons is tried if your
   arguments fix it. UDP is only used to find the largest packet.
2. **The largest packet** that arrives with the don't-fragment bit, to the byte.
3. **Round trips, clocks and rates**, in rounds: no host is in two measurements at once. A rate takes 0.3 s in each
   direction. This loads the links, so it disturbs running jobs, and they disturb it.
4. **The head's ssh** to each node, where the cluster is deployed.

`--pairs all` measures each pair: N - 1 rounds of 0.6 s. `--pairs quick` measures a ring, and hosts that are 2, 4, 8 …
places apart: about 1 + log2 N rounds. The head's connections to all hosts are tried in both.

A rate or a round trip is compared with what the other hosts reach, never with a fixed number. A slow link is measured
once more, for longer, and then alone. For a link that looks slow, time in which a program waited for a core does not
count; the links that it is compared with count as measured. If a program waited most of the time, kit has no rate. If
most links of a host are bad, kit names the host. Clocks are compared within half a round trip.

On a lab of four hosts on two cores, all checks with all pairs took 2.5 to 2.8 s, and 0.5 s with `--pairs none`.
""",
}


def markdown(checks: Sequence[Check] = CHECKS) -> str:
    """Return the page."""
    parts = [_HEAD + _table(checks), _LAB]
    for area, title in AREAS.items():
        members = [check for check in checks if check.area == area]
        if members:
            introduction = [_INTRODUCTIONS[area]] if area in _INTRODUCTIONS else []
            parts += [f"## {title}\n", *introduction, *map(_section, members)]
    return "\n".join(parts)


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
            where = " in the node" if read.node else f" (only with `{read.only_with}`)" if read.only_with else ""
            return f"`{_shown(read.argv)}`{where}"
        case Disk():
            return f"the room of `{read.path}`" if read.path.startswith("/") else f"the room of {read.path}"
        case Lookup():
            return f"the addresses of `{read.name}`" if read.name else "the addresses of its own name"
        case Mounts():
            return f"the mounts of `{read.kind}`, and whether they answer"


def _shown(argv: Sequence[str]) -> str:
    """Return a command without the text of a script."""
    words = [word for word in argv if "\n" not in word and len(word) < 60]
    return " ".join(words).replace("|", "\\|")
