"""The hosts that an elastic run may use now, as the supervisor says, less those that do not answer."""

import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set

from horovod.runner.elastic.discovery import HostDiscovery

from kitelastic.crew import SSH

# Ends what an earlier world of the run left on a node, and so shows that the node is ready for the next one.
SWEEP = ("python3", "-IS", "/opt/kit/bin/kit-node", "sweep")
AGAIN_S = 2.0
PATIENCE_S = 20.0


class Hosts(HostDiscovery):  # type: ignore[misc]
    """`usable` is {name: {"address", "slots": number}}. `busy(name)`: ranks of this run live there."""

    def __init__(self, usable: Mapping[str, Any], run_id: str, head: str, busy: Callable[[str], bool]) -> None:
        self._usable = dict(usable)
        self._run_id, self._head, self._busy = run_id, head, busy
        # Hosts that are known to be ready. At the start, the ranks' own streams find out.
        self._ready: Set[str] = set(usable)
        self._trying: Set[str] = set()
        self._lock = threading.Lock()

    def set(self, usable: Mapping[str, Any]) -> None:
        """Replace the hosts. One that was not among them must answer first."""
        with self._lock:
            self._usable = dict(usable)
            self._ready.intersection_update(usable)

    def doubt(self, name: str) -> None:
        """A rank there has ended: it must answer before the next one starts there."""
        with self._lock:
            self._ready.discard(name)

    def trust(self, name: str) -> None:
        """Ranks live there, which shows that it answers."""
        with self._lock:
            if name in self._usable:
                self._ready.add(name)

    def ordered(self, available: Set[str], before: Sequence[str]) -> List[str]:
        """Return the available hosts: first those of `before`, which have the training's state, as they were."""
        with self._lock:
            rest = [name for name in self._usable if name in available and name not in before]
        return [name for name in before if name in available] + rest

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        with self._lock:
            for name in self._usable:
                if name not in self._ready and name not in self._trying:
                    self._trying.add(name)
                    threading.Thread(target=self._try, args=(name,), daemon=True).start()
            return {name: host["slots"] for name, host in self._usable.items() if name in self._ready}

    def _try(self, name: str) -> None:
        """Sweep the host, unless ranks of a living world are there. Wait a little if it does not answer."""
        good = False
        try:
            with self._lock:
                address = self._usable[name]["address"]
            if not self._busy(name):
                # The head's ranks are children of this process, which a sweep there would end, too.
                good = name == self._head or self._run([*SSH, "--", address, *SWEEP, self._run_id])
        except (KeyError, OSError):
            good = False
        finally:
            if not good:
                time.sleep(AGAIN_S)
            with self._lock:
                self._trying.discard(name)
                if good and name in self._usable:
                    self._ready.add(name)

    @staticmethod
    def _run(argv: Any) -> bool:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0 and b'"left": 0' in done.stdout
