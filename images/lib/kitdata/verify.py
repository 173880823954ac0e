"""Compares what a host has with its manifest: every byte of every file."""

import concurrent.futures
import hashlib
import os
import stat
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from kitdata import manifest
from kitdata.disk import FILES
from kitdata.manifest import Kept
from kitdata.source import shown

# The most files that the answer names.
MOST_NAMED = 20
PROGRESS_S = 0.5
_THREADS = 4


def verify(folder: str, write: bool, say: Callable[[Dict[str, Any]], None]) -> None:
    """Check all files, and say how far it is and what is wrong. `write`: nodes may add files."""
    known = manifest.read(folder)
    if known is None or not manifest.summary(folder):
        say({"failed": {"kind": "not-staged", "host": None, "text": "nothing is staged here"}})
        return
    files = os.path.join(folder, FILES)
    total = sum(kept.entry.size for kept in known.files.values())
    counter = _Counter(total, say)
    wrong: List[Tuple[str, str]] = []
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        kept = list(known.files.values())
        for item, why in zip(kept, pool.map(lambda one: _check(files, one, counter.add), kept)):
            if why is not None:
                wrong.append((item.entry.path, why))
    spoiled = [path for path, why in wrong if why == "bytes"]
    if spoiled:
        # Their size and time are right, so the next staging would not bring them again.
        manifest.spoil(folder, spoiled)
    if not write:
        wrong += [(path, "extra") for path in _extra(files, known.files)]
    answer: Dict[str, Any] = {
        "files": len(known.files),
        "bytes": total,
        "wrong": [{"file": shown(path), "why": why} for path, why in wrong[:MOST_NAMED]],
    }
    if len(wrong) > MOST_NAMED:
        answer["more"] = len(wrong) - MOST_NAMED
    say({"verified": answer})


class _Counter:
    def __init__(self, total: int, say: Callable[[Dict[str, Any]], None]) -> None:
        self._total = total
        self._say = say
        self._lock = threading.Lock()
        self._count = 0
        self._last = time.monotonic()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count
            if time.monotonic() - self._last < PROGRESS_S:
                return
            self._last = time.monotonic()
            self._say({"checked": {"bytes": self._count, "of": self._total}})


def _check(files: str, kept: Kept, count: Callable[[int], None]) -> Optional[str]:
    """Return what is wrong with a file: missing, size or bytes; None if nothing is."""
    path = os.path.join(files, kept.entry.path)
    try:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size != kept.entry.size:
            return "size" if stat.S_ISREG(about.st_mode) else "missing"
        with open(path, "rb", buffering=0) as file:
            for digest in kept.sums:
                data = file.read(manifest.EXTENT)
                while 0 < len(data) < manifest.EXTENT:
                    more = file.read(manifest.EXTENT - len(data))
                    if not more:
                        break
                    data += more
                count(len(data))
                if hashlib.sha256(data).digest() != digest:
                    return "bytes"
        return None
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "bytes"


def _extra(files: str, known: Dict[str, Kept]) -> List[str]:
    """Return the files that are in no manifest."""
    result = []
    for folder, _, names in os.walk(files):
        below = os.path.relpath(folder, files)
        for name in names:
            path = name if below == "." else os.path.join(below, name)
            if path not in known:
                result.append(path)
    return sorted(result)
