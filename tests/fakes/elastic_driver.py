"""Stand-ins for what kitelastic.driver takes of Horovod. It has every rank in its world and notes their ends."""

from __future__ import annotations

import threading
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.fakes import rendezvous


class HostManager:
    """Horovod's has the hosts and lets those with failures rest."""

    order_available_hosts: Any = None


class HostDiscovery:
    """Horovod's names the hosts."""


class ElasticDriver:
    """Notes the ends of ranks, as (host, exit code)."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._host_manager = HostManager()
        self._host_assignments: dict[str, list[Any]] = {}
        self._shutdown = threading.Event()
        self._wait_hosts_cond = threading.Condition()
        self._verbose = 0
        self.ends: list[tuple[str, int]] = []

    def has_rank_assignment(self, _host: str, _slot: int) -> bool:
        return True

    def get_slot_info(self, host: str, slot: int) -> Any:
        return SimpleNamespace(hostname=host, rank=3, local_rank=slot)

    def finished(self) -> bool:
        return self._shutdown.is_set()

    def _handle_worker_exit(self, slot: Any, exit_code: int, _timestamp: float) -> None:
        self.ends.append((slot.hostname, exit_code))


class WorkerStateRegistry:
    """Horovod's counts which ranks are ready, failed or done."""

    def __init__(self, *_: Any) -> None:
        """Count nothing."""


def modules() -> dict[str, ModuleType]:
    """Return the modules by name, for sys.modules, with those of kitelastic.meeting."""
    contents: dict[str, dict[str, Any]] = {
        "horovod.runner.elastic.discovery": {
            "DiscoveredHosts": object, "HostDiscovery": HostDiscovery, "HostManager": HostManager,
        },
        "horovod.runner.elastic.driver": {"ElasticDriver": ElasticDriver},
        "horovod.runner.elastic.registration": {
            "FAILURE": "FAILURE", "READY": "READY", "SUCCESS": "SUCCESS", "WorkerStateRegistry": WorkerStateRegistry,
        },
    }  # fmt: skip
    made = rendezvous.modules()
    for name, content in contents.items():
        made[name] = ModuleType(name)
        vars(made[name]).update(content)
    vars(made["horovod.runner.elastic.worker"])["HostUpdateResult"] = object
    return made
