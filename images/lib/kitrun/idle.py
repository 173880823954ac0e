"""Ends a run whose GPUs do nothing: the policy `idle_gpu`, in seconds.

A guard looks at the GPUs of its node (`Look`), and the supervisor asks all of them every 10 s (`Watch`).
"""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from kitrun import decide

EVERY_S = 10.0
# A GPU that is used less than this, in percent, does nothing. A process that only waits can show a few percent.
IDLE_USE = 5.0

# What a node answers: [number, use in percent or None] for each GPU, or None if nvidia-smi gives no answer.
Seen = Optional[Sequence[Sequence[Any]]]


class Look:
    """Looks at the GPUs of this node. One nvidia-smi is for all who look in this process."""

    def __init__(self) -> None:
        self._gpus: Any = None

    def gpus(self) -> Any:
        """Return the kitwatch.gpus.Gpus that asks. `close` ends it."""
        if self._gpus is None:
            # Imported only here: few runs need it.
            from kitwatch import gpus

            self._gpus = gpus.Gpus(EVERY_S)
        return self._gpus

    def read(self) -> Seen:
        """Return the newest answer. The first call starts nvidia-smi and returns None."""
        gpus = self.gpus().read()
        return None if gpus is None else [[gpu["index"], gpu["use"]] for gpu in gpus]

    def close(self) -> None:
        if self._gpus is not None:
            self._gpus.close()


def seen(answer: object) -> Seen:
    """Return what a node sent, or None if it has another form."""
    good = isinstance(answer, list) and all(
        isinstance(gpu, list)
        and len(gpu) == 2
        and isinstance(gpu[0], int)
        and (gpu[1] is None or isinstance(gpu[1], (int, float)))
        for gpu in answer
    )
    return answer if good and isinstance(answer, list) else None


class State(NamedTuple):
    """`since`: when the nodes were asked whose answers said first that all GPUs are idle; None if they are not.

    `last_round`: when the nodes were asked last. Both are seconds of the monotonic clock.
    """

    last_round: Optional[float] = None
    since: Optional[float] = None


def after(state: State, nodes: Iterable[bool], now: float) -> State:
    """Return the state after a round of answers, when the nodes are asked again. `nodes`: whether each is idle."""
    idle = state.last_round is not None and all(nodes)
    return State(now, (state.last_round if state.since is None else state.since) if idle else None)


def is_idle(gpus: Seen, numbers: Optional[Sequence[int]]) -> bool:
    """Return whether all GPUs of a run on one node do nothing. None as `numbers` means all GPUs of the node.

    A GPU of which nobody knows whether it works, for example one in MIG mode, counts as one that works. So do those
    behind it: the run's numbers count its MIG devices, and nvidia-smi's do not.
    """
    unknown = [number for number, use in gpus or () if use is None]
    if unknown and max(numbers or (0,)) > min(unknown):
        return False
    mine = [use for number, use in gpus or () if numbers is None or number in numbers]
    return len(mine) >= max(1, len(numbers or ())) and all(use is not None and use < IDLE_USE for use in mine)


def stop(state: State, most: float, now: float) -> Optional[decide.Stop]:
    """Return a stop if the GPUs were idle for `most` seconds."""
    if state.since is None or now - state.since < most:
        return None
    return decide.Stop("its GPUs were idle for %g s" % most, decide.GRACE_S, decide.TIMED_OUT)


class Watch:
    """Asks the nodes of a run. `most` is the policy; without it, nobody is asked. `held` is KIT_HELD_SLOTS."""

    def __init__(self, most: Optional[float], held: str, names: Sequence[str]) -> None:
        self._most = float(most or 0.0)
        self._numbers: Dict[str, Optional[List[int]]] = {}
        self._state = State()
        self.look_at(names, held)

    def look_at(self, names: Sequence[str], held: str) -> None:
        """Look at these nodes from now on: an elastic run comes to other ones, and leaves some."""
        if self._most:
            # Imported only here: few runs need it.
            from kitrun import devices

            self._numbers = {name: devices.held_numbers(held, name) for name in names}

    def tick(self, now: float, nodes: Sequence[Any]) -> Optional[decide.Stop]:
        """Take the answers and ask again if that is due. Return a stop if the GPUs were idle for too long."""
        if not self._most or (self._state.last_round is not None and now - self._state.last_round < EVERY_S):
            return None
        mine = [node for node in nodes if node.name in self._numbers]
        self._state = after(self._state, [is_idle(node.gpus, self._numbers[node.name]) for node in mine], now)
        for node in mine:
            # A node that does not answer is not idle.
            node.gpus = None
            node.send("gpus")
        return stop(self._state, self._most, now)
