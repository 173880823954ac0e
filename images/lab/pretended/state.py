"""The state of a host's pretended GPUs: what the lab gave it, and the faults. A file that containers see read-only."""

import json
import os
import uuid
from typing import Any, Dict, FrozenSet, NamedTuple, Tuple

from pretended.models import DRIVER, MARK, MODELS, Model

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(FOLDER, "state", "gpus.json")

# How many MIG devices a GPU has, if it has any.
MIG_DEVICES = 2


class State(NamedTuple):
    """`faults` maps the number of a GPU to its faults. `pids` names the host's PID namespace.

    `unified`: the host has cgroup v2, where a hook cannot give a container the permission for a device.
    """

    host: str
    model: str
    total: int
    driver: str = DRIVER
    pids: str = ""
    unified: bool = False
    faults: Tuple[Tuple[int, FrozenSet[str]], ...] = ()

    @property
    def facts(self) -> Model:
        return MODELS[self.model]

    @property
    def name(self) -> str:
        """Return the name of its GPUs. It ends with the mark, so that every list that shows a GPU shows the mark."""
        return "%s %s" % (self.facts.name, MARK)

    def faults_of(self, number: int) -> FrozenSet[str]:
        return dict(self.faults).get(number, frozenset())

    def with_faults(self, number: int, faults: FrozenSet[str]) -> "State":
        changed = {**dict(self.faults), number: faults}
        return self._replace(faults=tuple(sorted((key, value) for key, value in changed.items() if value)))

    def uuid(self, number: int) -> str:
        """Return the UUID of a GPU: another one on every host, and always the same one there."""
        return "GPU-%s" % uuid.uuid5(uuid.NAMESPACE_DNS, "%s.%d.gpu.kit.lab" % (self.host, number))

    def mig_uuid(self, number: int, device: int) -> str:
        return "MIG-%s" % uuid.uuid5(uuid.NAMESPACE_DNS, "%s.%d.%d.mig.kit.lab" % (self.host, number, device))

    def uuids(self, number: int) -> Tuple[str, ...]:
        """Return the UUID of a GPU, and those of its MIG devices."""
        mig = "mig" in self.faults_of(number)
        return (self.uuid(number), *((self.mig_uuid(number, device) for device in range(MIG_DEVICES)) if mig else ()))

    def bus(self, number: int) -> str:
        return "00000000:%s:00.0" % self.facts.buses[number]


def dumped(state: State) -> str:
    values: Dict[str, Any] = dict(state._asdict())
    values["faults"] = {str(number): sorted(faults) for number, faults in state.faults}
    return json.dumps(values, indent=1, sort_keys=True) + "\n"


def parsed(text: str) -> State:
    values = json.loads(text)
    faults = {int(number): frozenset(names) for number, names in values.pop("faults").items()}
    return State(faults=tuple(sorted(faults.items())), **values)


def load(path: str = PATH) -> State:
    with open(path) as file:
        return parsed(file.read())


def save(state: State, path: str = PATH) -> None:
    """Write the file as a whole. Containers mount its folder, so they see the new file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = path + ".part"
    with open(part, "w") as file:
        file.write(dumped(state))
    os.replace(part, path)
