"""Makes the source that a request describes."""

from typing import Any, Callable, Dict

from kitdata.folder import Folder
from kitdata.rclone import Rclone
from kitdata.source import Source, SourceError


def open_source(source: Dict[str, Any], feed: Callable[[str], Source], memory: str) -> Source:
    """Return the source. `feed` returns the one that the operator's kit answers, by its label. Raises SourceError.

    `memory` is a folder in memory, for what must be on no disk.
    """
    kind, label = source.get("kind"), str(source.get("label", ""))
    if kind == "folder":
        return Folder(str(source["path"]), label)
    if kind == "rclone":
        env = {str(name): str(value) for name, value in source["env"].items()}
        return Rclone(str(source["remote"]), env, label, ca=str(source.get("ca") or ""), folder=memory)
    if kind == "feed":
        return feed(label)
    raise SourceError("internal", "this stager does not know a source of this kind")
