"""What keeps a run from starting that does not wait in line, for kit-launch's `start` (kitrun.front)."""

from typing import Any, Dict, Mapping

from kitqueue import line


def cordoned(launch: Mapping[str, Any], root: str) -> Dict[str, Any]:
    """Return the run's hosts that are cordoned, each with its cordon. In `store.starting`."""
    known = line.cordons(root)
    hosts = [place["node"] for place in launch["places"]] + [helper["node"] for helper in launch["helpers"]]
    return {host: known[host] for host in hosts if host in known}
