"""What the text of an option's value becomes. Each function raises ValueError with what to write instead."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from kit.model import quantity

if TYPE_CHECKING:
    from kit.model.forward import Wanted
    from kit.model.metrics import Address

# A number of nvidia-smi, or the UUID of a GPU or of a MIG device.
_DEVICE = re.compile(r"[0-9]{1,3}(:[0-9]{1,2})?|(GPU|MIG)-[0-9A-Za-z/-]{1,80}", re.ASCII)
# More GPUs than any host has.
MOST_GPUS = 64
_SIGNED = re.compile(r"-?[0-9.]+", re.ASCII)


def words(text: str) -> str:
    """Return the text, which may be anything but empty."""
    if not text.strip():
        raise ValueError("the value is empty")
    return text


def below(text: str) -> str:
    """Return a relative path without its dots; '' for the top."""
    if text.startswith(("/", "~")):
        raise ValueError(f"'{text}' is no relative path: write a folder of your code")
    path = posixpath.normpath(words(text))
    if path == ".." or path.startswith("../"):
        raise ValueError(f"'{text}' leads out of your code")
    return "" if path == "." else path


def count(text: str) -> int:
    """Return a whole number of 1 or more."""
    # int() alone would accept ' 1_0 ' as well.
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or int(text) < 1:
        raise ValueError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def lines(text: str) -> int:
    """Return a whole number of 0 or more."""
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise ValueError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def priority(text: str) -> int:
    """Return a whole number from -100 to 100."""
    from kit.model.queue import LEAST_PRIORITY, MOST_PRIORITY  # noqa: PLC0415  (only for runs in line)

    if not re.fullmatch(r"-?[0-9]{1,3}", text, re.ASCII) or not LEAST_PRIORITY <= int(text) <= MOST_PRIORITY:
        raise ValueError(f"'{text}' is not a whole number from {LEAST_PRIORITY} to {MOST_PRIORITY}")
    return int(text)


def after(text: str) -> object:
    """Return the run of `ID`, `ID,ok`, `ID,failed` or `ID,any`, and how it must have ended: by default ok."""
    from kit.model.queue import After  # noqa: PLC0415  (only for runs in line)

    run, comma, how = text.partition(",")
    if how not in ("ok", "failed", "any") and comma:
        raise ValueError(f"'{how}' is no end of a run: write {run},ok or {run},failed or {run},any")
    if run != "latest" and not re.fullmatch(r"[0-9]{1,8}(-[0-9]{0,6}(-[0-9a-f]{0,4})?)?", run, re.ASCII):
        raise ValueError(f"'{run}' is not the id of a run, nor latest")
    return After(run=run, how=how or "ok")  # type: ignore[arg-type]


def array(text: str) -> tuple[int, ...]:
    """Return the indexes of `0-9`, `1,3,5` or `0-3,8`, each once, in their order."""
    from kit.model.queue import MOST_ARRAY  # noqa: PLC0415  (only for runs in line)

    indexes: list[int] = []
    for part in names(text):
        match = re.fullmatch(r"([0-9]{1,6})(-([0-9]{1,6}))?", part, re.ASCII)
        if not match:
            raise ValueError(f"'{part}' is not an index or a range such as 0-9")
        first, last = int(match[1]), int(match[3] or match[1])
        if last < first or last - first >= MOST_ARRAY or len(indexes) > MOST_ARRAY:
            raise ValueError(f"'{part}' is not a range of 1 to {MOST_ARRAY} indexes, such as 0-9")
        indexes += range(first, last + 1)
    if len(set(indexes)) != len(indexes) or len(indexes) > MOST_ARRAY:
        raise ValueError(f"'{text}' has an index twice, or more than {MOST_ARRAY} indexes")
    return tuple(indexes)


def memory(text: str) -> int:
    """Return a size in bytes: 64gb, 512mb."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}(kb?|mb?|gb?)", text, re.ASCII | re.IGNORECASE):
        known = quantity.in_known_units(text) or "64gb or 512mb"
        raise ValueError(f"'{text}' is not a size in kb, mb or gb: write {known}")
    return quantity.size_bytes(text)


def gpus_per_rank(text: str) -> int:
    """Return a number of GPUs that a host can have."""
    if lines(text) > MOST_GPUS:
        raise ValueError(f"'{text}' is more than the {MOST_GPUS} GPUs of a host")
    return int(text)


def gpus(text: str) -> str:
    """Return which GPUs of this machine a container gets: all, none, a number of them, or names in order."""
    if text in ("all", "none") or (re.fullmatch(r"[0-9]{1,2}", text, re.ASCII) and int(text)):
        return text
    devices = text.removeprefix("device=").split(",")
    if text == "0" or not all(_DEVICE.fullmatch(device) for device in devices):
        raise ValueError(f"'{text}' names no GPUs: write all, none, a number such as 2, or device=0 or 0,1")
    if len(set(devices)) < len(devices):
        raise ValueError(f"'{text}' names a GPU twice")
    return f"device={','.join(devices)}"


def port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= 65535:
        raise ValueError(f"'{text}' is not a port from 1 to 65535")
    return int(text)


def local_port(text: str) -> int:
    """Return a port, or 0 for any free one."""
    return 0 if text == "0" else port(text)


def forwarded(text: str) -> Wanted:
    """Return the port of this machine and that of the VM: 8888, 9000:8888, or 0:8888 for any free one."""
    from kit.model.forward import Wanted  # noqa: PLC0415  (only for kit forward)

    here, colon, there = text.rpartition(":")
    return Wanted(local=local_port(here) if colon else port(there), port=port(there))


def listen(text: str) -> Address:
    """Return an address of this machine and a port: 127.0.0.1:9400, [::1]:9400, or 9400 for the loopback."""
    from kit.model.metrics import Address  # noqa: PLC0415  (only for kit metrics)

    host, colon, number = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    # Programs in Go mean all addresses by :9400.
    return Address(host=host or ("0.0.0.0" if colon else "127.0.0.1"), port=local_port(number))  # noqa: S104


def interval(text: str) -> float:
    """Return a time of 1 second or more."""
    if span(text) < 1:
        raise ValueError(f"'{text}' is less than 1 second")
    return span(text)


def positive(text: str) -> float:
    """Return a number above 0, such as 290 or 0.5."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,20})?", text, re.ASCII) or float(text) <= 0:
        raise ValueError(f"'{text}' is not a number above 0, such as 290 or 0.5")
    return float(text)


def not_negative(text: str) -> float:
    """Return a number of 0 or more."""
    if re.fullmatch(r"0+(\.0+)?", text, re.ASCII):
        return 0.0
    try:
        return positive(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number of 0 or more") from None


def share(text: str) -> float:
    """Return a part of 1: 0.9 or 1/3."""
    part, slash, whole = text.partition("/")
    try:
        value = positive(part) / (positive(whole) if slash else 1)
    except ValueError:
        value = 2.0
    if value > 1:
        raise ValueError(f"'{text}' is not a part of 1, such as 0.9 or 1/3")
    return value


def minutes(text: str) -> float:
    """Return minutes, from 1 to 120: 5, 5m or 1h30m."""
    value = quantity.seconds(text, unit="m") / 60
    if not 1 <= value <= 120:
        raise ValueError(f"'{text}' is not a time from 1 to 120 minutes")
    return value


def span(text: str) -> float:
    """Return a time in seconds: 90, 90s, 290ms, 10m, 8h, 2d or 1h30m."""
    return quantity.seconds(text)


def age(text: str) -> float:
    """Return a time with its unit in seconds: 7d, 12h or 30m. What is older may be deleted, so 7 alone is refused."""
    if re.fullmatch(r"[0-9.]+", text.strip(), re.ASCII):
        raise ValueError(f"'{text}' has no unit: write 7d, 12h or 30m")
    return quantity.seconds(text)


def milliseconds(text: str) -> float:
    """Return a time above 0 in milliseconds: 290, 290ms or 1.5s."""
    if _SIGNED.fullmatch(text):
        return positive(text)
    return positive(f"{round(quantity.seconds(text) * 1e3, 6):f}")


def milliseconds_or_0(text: str) -> float:
    """Return a time in milliseconds, or 0."""
    if _SIGNED.fullmatch(text):
        return not_negative(text)
    return round(quantity.seconds(text, unit="ms") * 1e3, 6)


def microseconds(text: str) -> float:
    """Return a time in microseconds, or 0: 50, 50us or 0.1ms."""
    if _SIGNED.fullmatch(text):
        return not_negative(text)
    return round(quantity.seconds(text, unit="us") * 1e6, 6)


def rate(text: str) -> str:
    """Return a rate as tc takes it (200mbit, 1gbit) of one that people write: 8Gbps."""
    return quantity.in_words_of_tc(text)


def bytes_per_second(text: str) -> int:
    """Return a rate in bytes per second: 1gbit, 100mbit or 50MB/s."""
    rate = int(quantity.bits_per_second(text) / 8)
    if not rate:
        raise ValueError(f"'{text}' is not a rate such as 200mbit, 8gbit or 8Gbps")
    return rate


def names(text: str) -> tuple[str, ...]:
    """Return words that commas separate."""
    listed = tuple(word.strip() for word in text.split(",") if word.strip())
    if not listed:
        raise ValueError(f"'{text}' has no names: separate them with commas")
    return listed


def areas(text: str) -> tuple[str, ...]:
    """Return what kit setup can do, each once: docker,driver,toolkit,sysctl,clocks,hugepages,mtu."""
    from kit.model.setup.areas import AREAS  # noqa: PLC0415  (only for kit setup)

    listed = tuple(dict.fromkeys(names(text)))
    wrong = [name for name in listed if name not in AREAS]
    if wrong:
        raise ValueError(f"'{wrong[0]}' is not something that kit sets up: write one of {', '.join(AREAS)}")
    return listed


def numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers of 1 or more that commas separate."""
    return tuple(count(word) for word in names(text))


def png_file(text: str) -> str:
    """Return the name of a file that ends in .png."""
    if not text.lower().endswith(".png"):
        raise ValueError(f"'{text}' is not the name of a PNG file, such as both.png")
    return text


def variable(text: str) -> tuple[str, str | None]:
    """Return (name, value) of `VAR=value`. The value of `VAR` alone is None: kit takes it from this shell."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        from kit.config.words import variable_name  # noqa: PLC0415  (only for an error)

        raise ValueError(f"'{variable_name(text)}' is not VAR or VAR=value")
    return (name, value if equals else None)
