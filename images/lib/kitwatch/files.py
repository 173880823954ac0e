"""Small readers of the kernel's files. A file that is missing or cannot be read is empty."""

import os
from typing import Dict, Iterable, List, Tuple

PROC, SYS = "/proc", "/sys"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Larger than any file that is read here. /proc/stat of 1,024 CPUs has about 100 KiB.
_MOST = 1 << 20


def read(path: str) -> bytes:
    """Return a file of the kernel. Much cheaper than `open`, which matters for thousands of small files."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        # The kernel returns a page or less of a longer file, whatever the size of the buffer.
        data = piece = os.read(descriptor, 8192)
        while piece and len(data) < _MOST:
            piece = os.read(descriptor, 8192)
            data += piece
        return data
    except OSError:
        # The process has ended meanwhile, or the kernel has no value, such as the speed of a link that is down.
        return b""
    finally:
        os.close(descriptor)


def record(path: str) -> bytes:
    """Return a file that the kernel writes whole into one read, such as /proc/PID/stat. It is cheaper than `read`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def lines(path: str) -> List[str]:
    return read(path).decode("utf-8", "replace").splitlines()


def word(path: str) -> str:
    """Return the file without spaces around it."""
    return read(path).decode("utf-8", "replace").strip()


def number(path: str, missing: int = 0) -> int:
    """Return the number that the file consists of."""
    text = word(path)
    return int(text) if text.lstrip("-").isdigit() else missing


def names(folder: str) -> List[str]:
    """Return the names in a folder, sorted; nothing if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def cpu_list(cpus: Iterable[int]) -> str:
    """Return `0-3,8` for these numbers, as the kernel writes it."""
    parts: List[Tuple[int, int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join("%d" % first if first == last else "%d-%d" % (first, last) for first, last in parts)


def pairs(path: str) -> Dict[str, int]:
    """Return {name: number} of lines such as `nr_throttled 7`, or `MemTotal:  16 kB`."""
    numbers = {}
    for line in lines(path):
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            numbers[words[0].rstrip(":")] = int(words[1])
    return numbers
