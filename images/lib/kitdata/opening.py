"""Makes the source that a request describes."""

from typing import Any, Callable, Dict

from kitdata.folder import Folder
from kitdata.source import Source, SourceError


def open_source(source: Dict[str, Any], feed: Callable[[str], Source]) -> Source:
    """Return the source. `feed` returns the one that the operator's kit answers, by its label. Raises SourceError."""
    kind, label = source.get("kind"), str(source.get("label", ""))
    if kind == "folder":
        return Folder(str(source["path"]), label)
    if kind == "feed":
        return feed(label)
    raise SourceError("internal", "this stager does not know a source of this kind")
