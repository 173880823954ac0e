"""Ships an image to the hosts of a lab, in a process of its own so that a test can kill it.

python -m tests.integration.shipper FOLDER IMAGE HOST...   lines of JSON: steps as they come, at last what was shipped
A host whose name has a + before it is the source; without one it is this machine's engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kit.config.hosts import parse_hosts
from kit.events import Event, HostStep, Warned
from kit.model import values
from kit.model.host import Login
from kit.remote.ship.broadcast import ship
from kit.remote.ship.lanes import Target
from kit.remote.ship.result import Shipped

OWNER = "shipper"


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class Lines:
    """A reporter that prints steps and warnings as JSON."""

    def report(self, event: Event) -> None:
        if isinstance(event, HostStep | Warned):
            say({type(event).__name__: values.asdict(event)})


def targets(folder: Path, names: list[str]) -> list[Target]:
    hosts = {host.name: host for host in parse_hosts((folder / "hosts").read_text(), source="hosts").hosts}
    key, known = str(folder / ".kit/lab/id_ed25519"), str(folder / ".kit/lab/known_hosts")
    return [
        Target(
            login=Login(host=name, address=hosts[name].address, user="root", port=None, key=key, known_hosts=known),
            address=hosts[name].address,
        )
        for name in names
    ]


def summary(shipped: Shipped) -> dict[str, object]:
    failures = {host: f"{error.message} → {error.hint}" for host, error in shipped.failures.items()}
    return {**values.asdict(values.replace(shipped, failures={})), "failures": failures}


def main() -> None:
    folder, image, *names = sys.argv[1:]
    source = next(iter(targets(Path(folder), [name[1:] for name in names if name[0] == "+"])), None)
    wanting = targets(Path(folder), [name for name in names if name[0] != "+"])
    shipped = ship(image, owner=OWNER, targets=wanting, reporter=Lines(), source=source)
    say({"Shipped": summary(shipped)})


if __name__ == "__main__":
    main()
