"""kit tune on the command line: its words, and its result as text."""

# ruff: noqa: PLC0415  (a verb's own imports are paid by it alone)
from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, MEASURE

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.tune import Machine, Tried, TuneResult

MINUTES = 5.0


def minutes(text: str) -> float:
    """Minutes from 1 to 120."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,2})?", text, re.ASCII) or not 1 <= float(text) <= 120:
        raise ValueError(f"'{text}' is not a number of minutes from 1 to 120")
    return float(text)


VERBS = (
    Verb(
        words=("tune",),
        purpose="Measure the cluster, and write the settings that gain into kit.yaml, each with its reason.",
        handler="tune.tune",
        group=MEASURE,
        options=(
            Option(flags=("--dry-run",), help="Measure and show what would be written, and write nothing."),
            Option(flags=("-f", "--force"), help="Change also what somebody has set by hand."),
            Option(
                flags=("--fp16",),
                help="Half precision for gradients on the wire may be written; it changes the numbers.",
            ),
            Option(flags=("--minutes",), value="N", kind=minutes, help="How long it may measure (default: 5)."),
            *CLUSTER,
        ),
        notes="It needs all slots of the hosts. What it wrote carries '# kit tune:' above it, and it may change that "
        "later; take that line away, and the setting is yours.",
        examples=("kit tune --dry-run", "kit tune --minutes 10", "kit tune --fp16", "kit tune --output json"),
        exits=(
            *FAILED,
            ("5", "the cluster is not deployed, or its slots are in use"),
            ("130", "interrupted; kit.yaml is as it was"),
        ),
    ),
)


def tune(session: Session) -> int:
    from kit.config.settings import CONFIG_VARIABLE
    from kit.flows.tune.tune import TuneRequest, tune

    args = session.args
    named = args.config_file or session.environ.get(CONFIG_VARIABLE, "")
    file = Path(named).expanduser() if named else session.folder / "kit.yaml"
    request = TuneRequest(
        file=file, minutes=args.minutes or MINUTES, dry_run=args.dry_run, force=args.force, fp16=args.fp16
    )
    result = tune(session.context(), request)
    session.close()
    session.show("tune", result, "" if session.json else text(result))
    return 0


def text(value: TuneResult) -> str:
    from kit.cli.text import cluster as render

    parts = [render.table([_row(each) for each in value.machines], _HEADER)]
    if value.wire is not None:
        told = f"TCP, every link in both directions at once: {value.wire / 1e6:.1f} MB/s on the slowest"
        for each in value.networks:
            if each.rate is not None:
                told += (
                    f"\n{each.network} ({'/'.join(each.nics)}), not in use: {each.rate / 1e6:.1f} MB/s on the slowest"
                )
        parts.append(told)
    if value.before is not None and value.before.timing is not None:
        size, ranks = value.before.timing.bytes >> 20, value.before.timing.ranks
        rows = [_tried(each, value) for each in (value.before, *value.tried)]
        parts.append(
            f"All-reduce of {size} MB on {ranks} ranks:\n"
            + render.table(rows, ("WITH", "SECONDS", "+-", "BUS MB/S", "OF TCP", ""))
        )
    parts += [
        f"{kept.path} is yours ({kept.value}), and stays. {kept.wanted} would be: {kept.reason}" for kept in value.kept
    ]
    parts += [f"To consider: {each}." for each in value.advice]
    if value.skipped:
        parts.append(f"Not measured: {'; '.join(value.skipped)}. More time: --minutes")
    parts.append(_end(value))
    return "\n\n".join(parts)


_HEADER = ("HOST", "SLOTS", "CORES", "SOCKETS", "NUMA", "GPUS", "NIC", "MBIT/S", "MTU", "TCP")


def _row(each: Machine) -> tuple[object, ...]:
    links = f" ({'/'.join(each.gpu_links)})" if each.gpu_links else ""
    cores = each.cores or each.threads
    return (
        each.name, each.slots, cores, each.sockets, each.numa, f"{len(each.gpus)}{links}",
        each.nic or "?", each.nic_mbit or "?", each.mtu or "?", each.congestion or "?",
    )  # fmt: skip


def _tried(each: Tried, value: TuneResult) -> tuple[object, ...]:
    if each.timing is None:
        return (each.name, "failed" if each.failure else "-", "", "", "", each.failure or "")
    taken = "taken" if value.after is not None and each.name == value.after.name else ""
    timing = each.timing
    of_tcp = f"{timing.busbw / value.wire:.0%}" if value.wire else ""
    return (each.name, f"{timing.median:.4f}", f"{timing.noise:.4f}", f"{timing.busbw / 1e6:.1f}", of_tcp, taken)


def _end(value: TuneResult) -> str:
    if not value.changed:
        return f"Nothing to change in {value.file} ({value.seconds:.0f} s)."
    verb = "Written" if value.written else "Would be written"
    told = f"{verb} into {value.file} ({value.seconds:.0f} s):\n{value.diff}"
    later = [each.path for each in value.changed if each.acts == "deploy"]
    now = [each.path for each in value.changed if each.acts == "run"]
    if now:
        told += f"\nActs at the next run: {', '.join(now)}."
    if later:
        told += f"\nActs after the next kit deploy, which makes the containers anew: {', '.join(later)}."
    return told
