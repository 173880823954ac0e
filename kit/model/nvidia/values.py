"""Values of nvidia-smi: words for a missing value, amounts with a unit, names, and the sentences of its failures."""

from __future__ import annotations

import re
from decimal import Decimal

from kit.model.answer import MOST, MOST_BYTES, OddAnswer

# What nvidia-smi prints instead of a value. Drivers differ in the brackets and the words.
_MISSING = {
    "",
    "-",
    "GPU access blocked by the operating system",
    "Insufficient Permissions",
    "N/A",
    "None",
    "Not Available",
    "Not Found",
    "Not Supported",
    "Requested functionality has been deprecated",
    "Unknown",
}
# What it prints for each value of a GPU that no longer works. Sound GPUs never have these.
_LOST = {"GPU is lost", "GPU requires reset"}
# These, too. But a sound GPU of some models has them for a value that the model lacks, such as its fan or power.
_ERRORS = {"ERR!", "Unknown Error"}
_AMOUNT = re.compile(r"(-?[0-9]{1,18})(?:\.([0-9]{1,9}))?(?: ?([A-Za-z%]{1,8}))?")
_LONGEST = 200
# The state of 16 GPUs with 500 processes each has about 75,000 lines.
MOST_LINES = 200_000
# How it begins what does not prevent its answer: "WARNING: infoROM is corrupted at gpu 0000:17:00.0".
WARNING = "WARNING: "
# How nvidia-smi begins when it cannot read the GPUs at all.
_FAILURES = (
    "NVIDIA-SMI has failed because",
    "NVIDIA-SMI couldn't",
    "Failed to initialize NVML",
    "Failed to properly shut down NVML",
    "Unable to determine the device handle",
    "Unable to determine number of devices",
    "No devices were found",
    "No devices found",
    "Error: ",
    "ERROR: ",
)


def check_size(text: str) -> None:
    """Raise OddAnswer for more text than any nvidia-smi prints."""
    if len(text) > MOST_BYTES:
        raise OddAnswer(f"it has more than {MOST_BYTES} bytes", text)
    if text.count("\n") > MOST_LINES:
        raise OddAnswer(f"it has more than {MOST_LINES} lines", text)


def known(word: str) -> str | None:
    """Return the word without spaces around it, or None if nvidia-smi prints it for a missing value."""
    word = word.strip()
    return None if _bare(word) in _MISSING | _LOST | _ERRORS else word


def broken(memory: str, *others: str) -> str | None:
    """Return the failure that nvidia-smi prints for the values of a GPU, or None if the GPU works.

    `memory` is its total memory, which each model reports, and `others` are values that most models report. An error
    without a cause must be in place of the memory and, if there are others, of one of them.
    """
    words = [_bare(word.strip()) for word in (memory, *others)]
    lost = next((word for word in words if word in _LOST), None)
    if lost is not None or words[0] not in _ERRORS:
        return lost
    return words[0] if not others or not _ERRORS.isdisjoint(words[1:]) else None


def _bare(word: str) -> str:
    """Return a word without the brackets that queries for CSV have around it."""
    return word[1:-1].strip() if word.startswith("[") and word.endswith("]") else word


def name(word: str) -> str | None:
    """Return a short line that a terminal can show, or None for a missing value. Raises OddAnswer."""
    value = known(word)
    return None if value is None else line(value)


def line(word: str) -> str:
    """Return a short line that a terminal can show. Raises OddAnswer for another text."""
    if not (len(word) <= _LONGEST and word.isprintable()):
        raise OddAnswer("this is not a name or an identifier", word)
    return word


def program_name(word: str) -> str | None:
    """Return what a program calls itself, or None for a missing value.

    Any user of the machine may start a program with any name, and some replace theirs by a command line without end. So
    the name is cut, and ? stands for what a terminal cannot show.
    """
    value = known(word)
    if value is None:
        return None
    shown = "".join(char if char.isprintable() else "?" for char in value[:_LONGEST])
    return shown + "…" * (len(value) > _LONGEST)


def amount(word: str, unit: str = "") -> float | None:
    """Return the number of `81559 MiB`, `97.31 W`, `16x` or `1980`, or None for a missing value.

    A number without a unit counts as one in `unit`, because `nounits` leaves it out. Raises OddAnswer for another unit.
    """
    value = known(word)
    if value is None:
        return None
    match = _AMOUNT.fullmatch(value)
    if not match or match[3] not in (None, unit):
        raise OddAnswer(f"this is not an amount in {unit}" if unit else "this is not a number", value)
    number = float(Decimal(f"{match[1]}.{match[2] or 0}"))
    if abs(number) > MOST:
        raise OddAnswer(f"the number is above {MOST}", value)
    return number


def whole(word: str, unit: str = "") -> int | None:
    """Return an amount as a whole number, or None for a missing value. Raises OddAnswer."""
    number = amount(word, unit)
    return None if number is None else int(number)


def yes(word: str) -> bool | None:
    """Return whether a state is on (Enabled, Active, Yes), or None if it is unknown."""
    return {"Enabled": True, "Active": True, "Yes": True, "Disabled": False, "Not Active": False, "No": False}.get(
        word.strip()
    )


def failure(text: str) -> str | None:
    """Return the sentence with which nvidia-smi says that it cannot read the GPUs, or None if it has none."""
    for line in text[:MOST_BYTES].splitlines():
        if line.startswith(_FAILURES):
            return "".join(char for char in line[:_LONGEST] if char.isprintable()).strip()
    return None
