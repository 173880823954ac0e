"""A prediction as text: what was asked for, the way there, and what all of it rests on."""

from __future__ import annotations

from kit.cli.text.table import table
from kit.flows.predict import Answer


def text(answer: Answer) -> str:
    """The prediction for the ranks asked for, the way there, and what all of it rests on."""
    asked = answer.predictions[-1]
    head = (
        f"{answer.model}: {answer.parameters / 1e6:.1f} million parameters, {answer.gradient_bytes / 1e6:.1f} MB "
        f"of gradients in {answer.tensors} tensors\n"
        f"Predicted on {asked.ranks} ranks, {asked.hosts} hosts: efficiency {100 * asked.efficiency:.1f} %, "
        f"{asked.speedup:.2f} times one rank"
    )
    if answer.batch_size:
        head += f", {_rate(answer, -1):.1f} images/s"
    ms = [f"{1e3 * n:.1f} ms" for n in (asked.step, asked.alone, asked.wire, asked.copy, asked.negotiation)]
    parts = (
        f"A step takes {ms[0]}, alone {ms[1]}. Of the exchange, in {asked.batches} batches ({asked.algorithm}): "
        f"all-reduce {ms[2]}, fusion buffer {ms[3]}, agreement {ms[4]};\n"
        f"{1e3 * asked.hidden:.1f} ms of it are hidden behind "
        f"backward, and {1e3 * asked.exposed:.1f} ms are not. "
        f"{asked.host_bytes / 1e6:.1f} MB leave each host a step."
    )
    header = ["RANKS", "HOSTS", "STEP ms", "ALL-REDUCE ms", "NOT HIDDEN ms", "SPEED-UP", "EFFICIENCY"]
    rows = []
    for number, one in enumerate(answer.predictions):
        row = [str(one.ranks), str(one.hosts), f"{1e3 * one.step:.1f}", f"{1e3 * one.wire:.1f}"]
        row += [f"{1e3 * one.exposed:.1f}", f"{one.speedup:.2f}", f"{100 * one.efficiency:.1f} %"]
        rows.append([*row, f"{_rate(answer, number):.1f}"] if answer.batch_size else row)
    if answer.batch_size:
        header.append("IMAGES/s")
    assumed = table([(a.what, a.value, a.source) for a in answer.assumptions], ("ASSUMED", "VALUE", "FROM"))
    return "\n\n".join([head, parts, table(rows, header), assumed])


def _rate(answer: Answer, number: int) -> float:
    one = answer.predictions[number]
    return (answer.batch_size or 0) * one.ranks / one.step
