"""What an engine says when it cannot raise a limit (ulimits) of a container, and what to do."""

from __future__ import annotations

import re

# Linux' numbers of the limits that kit.yaml sets beside memlock. The engine reports a number.
_BESIDE = {"3": "stack", "7": "nofile"}
_TYPE = re.compile(r"error setting rlimit type (\d{1,2})\b")


def limits_hint(answer: str) -> str | None:
    """Return what to do, or None if the engine's answer is about something else."""
    if "rlimit" not in answer and "ulimit" not in answer:
        return None
    match = _TYPE.search(answer)
    name = _BESIDE.get(match[1]) if match else None
    if name:
        return f"this engine cannot raise limits: set a lower ulimits.{name} in kit.yaml"
    return "this engine cannot raise limits: set ulimits.memlock to default in kit.yaml"
