"""An attempt with Horovod's elastic driver: the supervisor's side of kit-elastic.

kit-elastic (kitelastic.main) is in mpirun's place. It gets the hosts of the run on standard input, and sends its events
on standard output. A lost host does not end this run: kit-elastic continues with the others while --min-np ranks fit.
"""

import contextlib
import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any, Container, Dict, List, Mapping, Optional, Sequence, Tuple

from kitelastic import desk
from kitqueue import line

from kitrun import decide, devices, frames, leases
from kitrun.attempt import Attempt
from kitrun.output import Output, now_ms

if TYPE_CHECKING:
    import socket

# How often to look at what people changed.
LOOK_S = 1.0
# Events that kit-elastic may send.
EVENTS = ("formed", "reset", "short", "refused", "over")

Hosts = Dict[str, Dict[str, Any]]


def usable(
    places: Sequence[Mapping[str, Any]], cordons: Container[str], lost: Container[str], there: Container[str]
) -> Hosts:
    """Return the hosts that the run may use: those of its places that nobody drops or has lost.

    On a cordoned host, the ranks that are `there` go on, and no new one starts.
    """
    return {
        place["node"]: dict(
            {"address": place["address"], "slots": place["ranks"]}, **({"env": place["env"]} if "env" in place else {})
        )
        for place in places
        if not place.get("leaving")
        and place["node"] not in lost
        and (place["node"] in there or place["node"] not in cordons)
    }


def held_slots(places: Sequence[Mapping[str, Any]], first: str) -> str:
    """Return KIT_HELD_SLOTS of the hosts of these places. `first` is that of the hosts with which the run began."""
    own = {str(place["node"]): str(place["env"].get(devices.HELD, "")) for place in places if place.get("env")}
    kept = [word for word in first.split() if word.partition("=")[0] not in own]
    return " ".join([*kept, *filter(None, own.values())])


class ElasticOutput(Output):
    """kit-elastic's streams. `take` gets its events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: List[Dict[str, Any]] = []
        # (host, local rank) -> the rank's number in the present world.
        self.numbers: Dict[Tuple[str, str], int] = {}
        self._rest = b""

    def standard(self, data: bytes) -> bytes:
        *lines, self._rest = (self._rest + data).split(b"\n")
        records = b""
        for text in lines:
            try:
                value = json.loads(text.decode("utf-8"))
            except ValueError:
                continue
            if isinstance(value, dict) and value.get("event") in EVENTS:
                self.events.append(value)
                records += self._take(dict(value))
        return records

    def _take(self, event: Dict[str, Any]) -> bytes:
        if event["event"] in ("formed", "reset"):
            hosts = [host for host, count in event["hosts"] for _ in range(count)]
            self.up = dict(enumerate(hosts))
            before = {rank: place for place, rank in self.numbers.items()}
            self.numbers = {(host, str(local)): rank for rank, (host, local) in enumerate(event.pop("ranks", ()))}
            self._renumber(before)
            # What failed before this world is no failure of the run.
            self._forget()
        return frames.event(now_ms(), event.pop("event"), **event)

    def _renumber(self, before: Mapping[int, Tuple[str, str]]) -> None:
        """Give each rank the lines that it wrote under its earlier number, and forget those of ranks that are gone.

        `before` has the places of the earlier world. A rank that started since then writes under its new number.
        """
        tails = {}
        for (name, kind), text in self._tails.items():
            number = int(name)
            now = number if number in self._started else self.numbers.get(before.get(number, ("", "")))
            if now is not None:
                tails[str(now).encode(), kind] = text
        self._tails = tails


class ElasticAttempt(Attempt):
    """`elastic` of the launch is {"address": the head's, "timeout": seconds that a run waits for hosts}."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.output = ElasticOutput()
        self._root = os.path.dirname(self.run.folder)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._sent: Hosts = {}
        self._looked_at_hosts = 0.0
        # The hosts of the present world.
        self._there = [str(place["node"]) for place in self.launch.places]
        # Whether there was a world.
        self._formed = False
        # Whether the record lacks this world.
        self._unnoted = False
        self._over: Dict[str, Any] = {}

    def _hold_port(self, _: Dict[str, str]) -> "Optional[socket.socket]":
        """The rendezvous server chooses its port, and Horovod numbers the ranks."""
        return None

    def _argv(self) -> List[str]:
        return list(self.launch.argv)

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._sent = self._hosts()
        start = {
            "run": self.run.id,
            "head": self.launch.head,
            "address": self.launch.elastic["address"],
            "timeout": self.launch.elastic.get("timeout"),
            "hosts": self._sent,
            "code": self.launch.code,
            "began": time.time(),
        }
        self._tell(start=start)
        try:
            super()._watch(process)
        finally:
            self._close_stdin()
        # The driver says why it ends just before it does, so this may be read after the last look.
        if self.stop is None:
            self._take_events()

    def _tell(self, **value: Any) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            os.write(process.stdin.fileno(), json.dumps(value).encode() + b"\n")
        except OSError:
            return

    def _close_stdin(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                return

    # Hosts

    def _places(self) -> List[Mapping[str, Any]]:
        return list((self.run.record or {}).get("places") or self.launch.places)

    def _held(self) -> str:
        return held_slots(self._places(), str(self.launch.env.get(devices.HELD, "")))

    def _hosts(self) -> Hosts:
        return usable(self._places(), line.cordons(self._root), self._away(), self._there)

    def _look_at_hosts(self, now: float) -> None:
        if now - self._looked_at_hosts < LOOK_S:
            return
        self._looked_at_hosts = now
        if self._unnoted:
            self._note_world(self._there)
        known = {node.name for node in self.nodes}
        places = self._places()
        self._recorder.hold(self._held())
        # kit-elastic is on the head, whatever ranks are there.
        self._dropped = frozenset(known).difference([place["node"] for place in places], [self.launch.head])
        for place in places:
            if place["node"] not in known:
                node = self._node(place)
                self.nodes.append(node)
                if self.guarded:
                    node.open()
        hosts = self._hosts()
        if hosts != self._sent:
            self._sent = hosts
            self._tell(hosts=hosts)
        self._release([name for name in self._away() if name not in self._there])

    def _release(self, lost: Container[str]) -> None:
        """Give back the slots of hosts that are lost and dropped. The next reset may be far away."""
        if not desk.are_gone(self._places(), lost):
            return
        # On a full disk, the next look tries again.
        with contextlib.suppress(OSError), leases.starting(self._root):
            places = (self.run.record or {}).get("places") or []
            gone = desk.are_gone(places, lost)
            if gone:
                self.run.change_places([place for place in places if place["node"] not in gone])

    def _note_world(self, hosts: Sequence[str]) -> None:
        """Write down where ranks are. The slots of dropped hosts are free when no rank is there."""
        self._unnoted = True
        # On a full disk, the next look tries again.
        with contextlib.suppress(OSError), leases.starting(self._root):
            record = self.run.record
            if record is None:
                return
            places = desk.in_world(record["places"], hosts)
            if places != record["places"]:
                self.run.change_places(places)
            self._unnoted = False

    # Loop

    def _reason_to_stop(self, now: float) -> Optional[decide.Stop]:
        self._take_events()
        self._look_at_hosts(now)
        return super()._reason_to_stop(now)

    def _take_events(self) -> None:
        output = self.output
        assert isinstance(output, ElasticOutput)
        while output.events:
            event = output.events.pop(0)
            if event["event"] in ("formed", "reset"):
                self._formed = True
                self._there = [host for host, _ in event["hosts"]]
                self._note_world(self._there)
                self._idle.look_at(self._there, self._held())
            elif event["event"] in ("over", "refused"):
                self._over = event

    def _started(self) -> Tuple[int, int]:
        """Return that all are up, from the first world on. A later one may have fewer ranks than the start."""
        up, ranks = super()._started()
        return (ranks if self._formed else up), ranks

    def _hosts_of_ranks(self) -> Dict[int, str]:
        return dict(self.output.up) if self._formed else super()._hosts_of_ranks()

    def _numbered(self, answers: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """Return what ranks are doing, by their numbers in the present world. Their own are those of their start."""
        output = self.output
        assert isinstance(output, ElasticOutput)
        whole = [dict(entry, host=host) for host, entries in answers.items() for entry in entries]
        pairs = [(entry, output.numbers.get((entry["host"], entry.pop("local", "")))) for entry in whole]
        if not output.numbers:
            return [entry for entry, _ in pairs]
        return [dict(entry, rank=number) for entry, number in pairs if number is not None]

    def _stop_of_lost(self) -> Optional[decide.Stop]:
        """Forget lost nodes that answer again. Guards on the others have ended the ranks there, or soon will."""
        self.lost = [node for node in self.lost if node.lost]
        return None

    def _away(self) -> List[str]:
        return [node.name for node in self.lost]

    def _begin_stop(self, stop: decide.Stop, now: float) -> None:
        # Before the ranks get TERM: their ends are no failures.
        self._tell(stop=True)
        super()._begin_stop(stop, now)

    @property
    def is_last(self) -> bool:
        """kit-worker leaves nobody behind who settles the working folder of its node, so the guards do that."""
        return False

    def note(self, name: str, **fields: Any) -> None:
        super().note(name, **dict(fields, elastic=True) if name == "lost" else fields)

    def lost_hosts(self) -> List[str]:
        if self.code == decide.HOST_LOST and self.stop is None and not self._over.get("failed"):
            return sorted(self._away()) or [str(self._over.get("host") or self.launch.head)]
        return []

    def failure(self) -> Optional[Dict[str, Any]]:
        if self.code == 0 and self.stop is None:
            # Ranks may have failed on the way. The others went on.
            return None
        failure = super().failure()
        why = self._over.get("why")
        if failure is not None and isinstance(why, str) and why and not self._over.get("failed"):
            failure = dict(failure, lines=[why])
        return failure
