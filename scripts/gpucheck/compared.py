"""The parts of gpu-check that compare: formats with each other, the driver with flavors, facts with nvidia-smi."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from kit.model.answer import OddAnswer
from kit.model.nvidia.topology import topology
from scripts.gpucheck.anonymous import Names
from scripts.gpucheck.commands import Clock, run
from scripts.gpucheck.needs import needs, numbers
from scripts.gpucheck.outcome import Failed, cleaned, shown
from scripts.gpucheck.smi import Smi

FACTS_S = 60.0


def formats(smi: Smi, names: Names, captures: dict[str, str]) -> tuple[str, Sequence[str]]:
    """Keep the answers without names, and check that kit reads them like the originals."""
    for file, answer in smi.answers.items():
        captures[file] = cleaned(answer, names, smi.programs)
    if smi.problems:
        raise Failed("; ".join(smi.problems))
    lines = ["| GPU | memory | power | SM clock | PCIe | held down by |", "|---|---|---|---|---|---|"]
    for gpu in smi.gpus:
        link = "%s of %s × %s of %s" % tuple(
            shown(value)
            for value in (gpu.link_generation, gpu.most_link_generation, gpu.link_width, gpu.most_link_width)
        )
        lines.append(
            "| %d: %s | %s MiB | %s of %s W | %s of %s MHz | %s | %s |"
            % (
                gpu.index,
                gpu.name,
                shown(gpu.memory_mib),
                shown(gpu.watts),
                shown(gpu.limit_watts),
                shown(gpu.sm_mhz),
                shown(gpu.most_sm_mhz),
                link,
                ", ".join(gpu.reasons) or "nothing",
            )
        )
    return "kit's parsers read all %d formats, and they agree" % len(smi.answers), lines


def driver(root: Path, smi: Smi) -> tuple[str, Sequence[str]]:
    if not smi.state.driver:
        raise Failed("nvidia-smi reports no version of the driver")
    own = numbers(smi.state.driver)
    lines = ["| flavor | CUDA | oldest driver | this driver |", "|---|---|---|---|"]
    fits = []
    for flavor, (cuda, driver) in needs(root).items():
        enough = own >= numbers(driver)
        fits += [flavor] if enough else []
        lines.append("| %s | %s | %s | %s |" % (flavor, cuda, driver, "new enough" if enough else "too old"))
    summary = "%s, CUDA %s; new enough for %s" % (
        smi.state.driver,
        smi.state.cuda or "?",
        ", ".join(fits) or "no flavor of kit",
    )
    return summary, lines


def facts(root: Path, clock: Clock, smi: Smi) -> tuple[str, Sequence[str]]:
    """Run the script that kit tune runs on each host, and compare its GPUs and links with nvidia-smi's."""
    smi_program, tune_facts = ((root / "kit/remote/scripts" / name).read_text() for name in ("smi.sh", "tune_facts.sh"))
    # As kit.remote.scripts does it.
    program = "smi_program=%s\n%s" % (shlex.quote(smi_program), tune_facts)
    done = run(["sh", "-c", program, "kit-tune_facts", "127.0.0.1"], clock.left(FACTS_S))
    words: dict[str, list[str]] = {}
    for line in done.text.splitlines():
        word, _, rest = line.partition(" ")
        words.setdefault(word, []).append(rest)
    if "end" not in words:
        raise Failed("tune_facts.sh: %s" % done.last)
    gpus = words.get("gpu", [])
    try:
        matrix = topology("\n".join(words.get("topo", ())))
    except OddAnswer as odd:
        raise Failed("tune_facts.sh: %s" % odd) from None
    if gpus != [gpu.name for gpu in smi.gpus] or matrix != smi.topology:
        raise Failed("tune_facts.sh reports other GPUs or links than nvidia-smi: %s" % gpus)
    links = matrix.between_gpus()
    lines = ["| | near cores | NUMA node | nearest NICs |", "|---|---|---|---|"]
    lines += [
        "| %s | %s | %s | %s |"
        % (
            gpu,
            matrix.cpus.get(gpu, "?"),
            matrix.numa.get(gpu, "?"),
            ", ".join(matrix.nearest_nics(gpu)) or ("all alike" if matrix.nics else "no NIC"),
        )
        for gpu in matrix.gpus
    ]
    nodes = max(1, len(words.get("numa", ())))
    cores = "%d cores on %d NUMA node%s" % (len(words.get("core", ())), nodes, "" if nodes == 1 else "s")
    return "%s; GPUs are connected by %s" % (cores, "/".join(links) or "nothing (one GPU)"), lines
