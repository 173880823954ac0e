"""The age of a run's last checkpoint, which the next attempt can begin with."""

import os
import threading
from typing import Dict, List, Optional

# Neither a folder of very many files nor a file system that does not answer may delay the next attempt.
MOST, PATIENCE_S = 10000, 2.0


def age(folder: str, now: float) -> Optional[float]:
    """Return the seconds since a file below the folder was last changed; None without one, or if that takes long."""
    result: Dict[str, float] = {}
    thread = threading.Thread(target=lambda: result.update(at=newest(folder)), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    at = result.get("at", 0.0)
    return max(0.0, now - at) if at else None


def newest(folder: str) -> float:
    """Return when the newest file below the folder was changed, in seconds since 1970; 0 without one."""
    latest, count = 0.0, 0
    folders: List[str] = [folder]
    while folders and count < MOST:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        count += len(entries)
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    latest = max(latest, entry.stat(follow_symlinks=False).st_mtime)
            except OSError:
                continue
    return latest
