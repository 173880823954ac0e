"""What the program on a VM prints: types and limits. A host that prints something else is an error of that host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kit.model.answer import OddAnswer, decode
from kit.model.values import fields, is_value
from kit.model.watch import Reading

# A host with 1,024 cores, 512 ranks and 64 GPUs prints about 300 KiB.
MOST_LINE = 1 << 20
# Of a name, such as that of a device, a program or a kernel's function. A fault has a sentence.
_LONGEST = 200
# Of a field that may be longer. The CPUs of a rank are a list: `0,2,4` where the CPUs of each socket alternate.
_LONGER = {"allowed": 4000}
_MOST_ENTRIES = 8192
# The largest number. A port of RDMA counts words of 4 bytes in 64 bits: at 400 Gbit/s, 2**53 bytes take 2 days.
MOST = 2**66


def reading_of(line: bytes, form: type[Reading] = Reading) -> Reading:
    """Return the reading in a line. Raises OddAnswer."""
    reading: Reading = decode(line, form, most=MOST_LINE)
    for value, longest in _values(reading, _LONGEST):
        if isinstance(value, str):
            if len(value) > longest:
                raise OddAnswer("a text is too long", value)
        elif isinstance(value, int | float) and not abs(value) <= MOST:
            raise OddAnswer(f"a number is above {MOST}")
    return reading


def _values(value: Any, longest: int) -> Iterator[tuple[Any, int]]:
    """Yield all texts and numbers in a value, each with the most characters that a text there may have."""
    if is_value(value):
        for name in fields(value):
            yield from _values(getattr(value, name), _LONGER.get(name, _LONGEST))
    elif isinstance(value, dict | tuple):
        if len(value) > _MOST_ENTRIES:
            raise OddAnswer(f"it has a list of more than {_MOST_ENTRIES} entries")
        for item in value.items() if isinstance(value, dict) else value:
            yield from _values(item, longest)
    elif value is not None:
        yield value, longest
