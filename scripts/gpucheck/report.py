"""Writes what gpu-check found: a page of Markdown, and the answers of nvidia-smi beside it."""

from __future__ import annotations

import datetime
import platform
import re
from collections import Counter
from pathlib import Path

from scripts.gpucheck.check import Found


def name_of(results: Found) -> str:
    """Return the folder's name: gpu-nvidia-h200-x2-570."""
    models = Counter(gpu.name for gpu in results.smi.gpus) or Counter({"unknown": 1})
    words = ["%s-x%d" % (model, number) for model, number in models.items()]
    words += [results.smi.state.driver.split(".")[0]]
    if results.smi.pretended:
        words.insert(0, "pretended")
    return "gpu-" + re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


def title(results: Found) -> str:
    models = Counter(gpu.name for gpu in results.smi.gpus)
    gpus = " and ".join("%d × %s" % (number, model) for model, number in models.items()) or "GPUs that kit cannot read"
    return "%s%s" % ("PRETENDED: " if results.smi.pretended else "", gpus)


def page(results: Found, *, day: datetime.date) -> str:
    """Return the report."""
    lines = ["# GPU check: %s" % title(results), ""]
    if results.smi.pretended:
        lines += ["**These GPUs are PRETENDED by a lab of kit. This is no report about a GPU.**", ""]
    lines += [
        "Written by `scripts/gpu-check` on %s, driver %s, CUDA %s, Linux %s, Python %s. UUIDs, serial numbers, PCI"
        % (
            day,
            results.smi.state.driver or "?",
            results.smi.state.cuda or "?",
            platform.release(),
            platform.python_version(),
        ),
        "buses and names are replaced here and in the files of this folder.",
        "",
        "| part | result | seconds | |",
        "|---|---|---:|---|",
        *(
            "| %s | %s | %.0f | %s |" % (part.name, part.outcome, part.seconds, _cell(part.summary))
            for part in results.parts
        ),
    ]
    for part in results.parts:
        if part.lines:
            lines += ["", "## %s" % part.name, "", *part.lines]
    lines += ["", "## Answers of nvidia-smi", ""]
    for file, text in results.captures.items():
        lines.append("- `%s`%s" % (file, "" if text else ": left out, because a name would have stayed in it"))
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return a text as one cell: nothing in it ends the cell or is markup."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return re.sub(r"([|<>`*_\\\[\]])", r"\\\1", printable)


def write(results: Found, above: Path) -> Path:
    """Write the page and the answers into a folder with the GPU's name. Return the folder."""
    folder = above / name_of(results)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(page(results, day=datetime.date.today()), encoding="utf-8")
    for file, text in results.captures.items():
        if text:
            (folder / file).write_text(text, encoding="utf-8")
    return folder
