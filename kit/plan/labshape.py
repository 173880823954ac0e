"""From the shape of an existing lab, which its network carries as a label, to the options that make it again. Pure."""

from __future__ import annotations

import re

from kit.model.lab import LabSpec

_SHAPE = re.compile(
    r"(?P<hosts>\d+) hosts, (?P<slots>\d+) slots each(?:, bare (?P<system>[\w-]+))?(?:, (?P<nics>\d+) NICs each)?"
    r"(?:, links of (?P<link_rate>\w+))?(?:, (?P<gpus>\d+) PRETENDED (?P<gpu_model>\w+) each "
    r"\(driver (?P<gpu_driver>[\d.]+), toolkit (?P<gpu_toolkit>\w+)\))?, login (?P<user>\w+)",
    re.ASCII,
)


def options(shape: str) -> str | None:
    """Return the options of `kit lab up` for a lab of this shape, such as `--hosts 2`; '' for its defaults.

    None if the text is no shape: another version of kit may have made the lab.
    """
    match = _SHAPE.fullmatch(shape)
    if match is None:
        return None
    default = LabSpec()
    parts = match.groupdict()
    # With GPUs, a host has as many slots as GPUs, unless you say otherwise.
    usual = {"slots": parts["gpus"] or str(default.slots)}
    words = ["--bare"] if parts["system"] else []
    for name, value in parts.items():
        if value is not None and value != usual.get(name, str(getattr(default, name))):
            words += [f"--{name.replace('_', '-')}", value]
    return " ".join(words)
