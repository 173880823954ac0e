"""A prediction as text: the requested size, the sizes before it, and every assumption."""

from __future__ import annotations

from kit.cli.text.table import table
from kit.flows.predict import Answer
from kit.model.scaling import Prediction
from kit.model.text import plural, size


def text(answer: Answer, *, width: int | None = None) -> str:
    """Return the prediction for the requested ranks, the smaller sizes, and every assumption."""
    last = answer.predictions[-1]
    head = (
        f"{answer.model}: {_parameters(answer)} "
        f"of gradients in {plural(answer.tensors, 'tensor')}\n"
        f"Predicted on {plural(last.ranks, 'rank')}, {plural(last.hosts, 'host')}: "
        f"efficiency {100 * last.efficiency:.1f} %, {last.speedup:.2f} times one rank"
    )
    if answer.batch_size:
        head += f", {_rate(answer, -1):.1f} images/s"
    header = ["RANKS", "HOSTS", "STEP ms", "ALL-REDUCE ms", "NOT HIDDEN ms", "SPEED-UP", "EFFICIENCY"]
    rows = []
    for number, one in enumerate(answer.predictions):
        row = [str(one.ranks), str(one.hosts), f"{1e3 * one.step:.1f}", f"{1e3 * one.wire:.1f}"]
        row += [f"{1e3 * one.exposed:.1f}", f"{one.speedup:.2f}", f"{100 * one.efficiency:.1f} %"]
        rows.append([*row, f"{_rate(answer, number):.1f}"] if answer.batch_size else row)
    if answer.batch_size:
        header.append("IMAGES/s")
    assumptions = [(a.what, a.value, a.source) for a in answer.assumptions]
    assumed = table(assumptions, ("ASSUMED", "VALUE", "FROM"), width=width, flexible=("FROM", "VALUE", "ASSUMED"))
    drop = ("NOT HIDDEN ms", "ALL-REDUCE ms", "SPEED-UP")
    return "\n\n".join([head, _exchange(last), table(rows, header, width=width, drop=drop), assumed])


def _parameters(answer: Answer) -> str:
    if answer.parameters < 100_000:
        return f"{answer.parameters:,} parameter{'' if answer.parameters == 1 else 's'}, {size(answer.gradient_bytes)}"
    return f"{answer.parameters / 1e6:.1f} million parameters, {answer.gradient_bytes / 1e6:.1f} MB"


def _exchange(last: Prediction) -> str:
    """Return what a step consists of. One rank exchanges nothing."""
    ms = [f"{1e3 * n:.1f} ms" for n in (last.step, last.alone, last.wire, last.copy, last.negotiation)]
    if last.ranks == 1:
        return f"A step takes {ms[0]}. One rank exchanges nothing."
    return (
        f"A step takes {ms[0]}, alone {ms[1]}. The exchange, in {last.batches} "
        f"batch{'' if last.batches == 1 else 'es'} ({last.algorithm}): "
        f"all-reduce {ms[2]}, fusion buffer {ms[3]}, agreement {ms[4]};\n"
        f"{1e3 * last.hidden:.1f} ms of it are hidden behind "
        f"backward, {1e3 * last.exposed:.1f} ms are not. "
        f"{last.host_bytes / 1e6:.1f} MB leave each host in a step."
    )


def _rate(answer: Answer, number: int) -> float:
    prediction = answer.predictions[number]
    return (answer.batch_size or 0) * prediction.ranks / prediction.step
