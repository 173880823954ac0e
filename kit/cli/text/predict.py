"""A prediction as text: the requested size, the sizes before it, and every assumption."""

from __future__ import annotations

from kit.cli.text.table import table
from kit.flows.predict import Answer
from kit.model.scaling import Prediction
from kit.model.text import plural


def text(answer: Answer, *, width: int | None = None) -> str:
    """Return the prediction for the requested ranks, the smaller sizes, and every assumption."""
    last = answer.predictions[-1]
    head = (
        f"{answer.model}: {answer.parameters / 1e6:.1f} million parameters, {answer.gradient_bytes / 1e6:.1f} MB "
        f"of gradients in {plural(answer.tensors, 'tensor')}\n"
        f"Predicted on {plural(last.ranks, 'rank')}, {plural(last.hosts, 'host')}: "
        f"efficiency {100 * last.efficiency:.1f} %, {last.speedup:.2f} times one rank"
    )
    if answer.batch_size:
        head += f", {_rate(answer, -1):.1f} images/s"
    header = ["RANKS", "HOSTS", "STEP ms", "ALL-REDUCE ms", "NOT HIDDEN ms", "SPEED-UP", "EFFICIENCY"]
    rows = []
    for number, size in enumerate(answer.predictions):
        row = [str(size.ranks), str(size.hosts), f"{1e3 * size.step:.1f}", f"{1e3 * size.wire:.1f}"]
        row += [f"{1e3 * size.exposed:.1f}", f"{size.speedup:.2f}", f"{100 * size.efficiency:.1f} %"]
        rows.append([*row, f"{_rate(answer, number):.1f}"] if answer.batch_size else row)
    if answer.batch_size:
        header.append("IMAGES/s")
    assumptions = [(a.what, a.value, a.source) for a in answer.assumptions]
    assumed = table(assumptions, ("ASSUMED", "VALUE", "FROM"), width=width, flexible=("FROM", "VALUE", "ASSUMED"))
    drop = ("NOT HIDDEN ms", "ALL-REDUCE ms", "SPEED-UP")
    return "\n\n".join([head, _exchange(last), table(rows, header, width=width, drop=drop), assumed])


def _exchange(size: Prediction) -> str:
    """Return what a step consists of. One rank exchanges nothing."""
    ms = [f"{1e3 * n:.1f} ms" for n in (size.step, size.alone, size.wire, size.copy, size.negotiation)]
    if size.ranks == 1:
        return f"A step takes {ms[0]}. One rank exchanges nothing."
    return (
        f"A step takes {ms[0]}, alone {ms[1]}. The exchange, in {size.batches} "
        f"batch{'' if size.batches == 1 else 'es'} ({size.algorithm}): "
        f"all-reduce {ms[2]}, fusion buffer {ms[3]}, agreement {ms[4]};\n"
        f"{1e3 * size.hidden:.1f} ms of it are hidden behind "
        f"backward, {1e3 * size.exposed:.1f} ms are not. "
        f"{size.host_bytes / 1e6:.1f} MB leave each host in a step."
    )


def _rate(answer: Answer, number: int) -> float:
    prediction = answer.predictions[number]
    return (answer.batch_size or 0) * prediction.ranks / prediction.step
