"""Which readings of hosts are of the same moment."""

from __future__ import annotations

from kit.model.watch import SuspectReading
from kit.plan.blame.together import parts


def stream(first: float, count: int, *, number: int = 0, late: float = 0.0) -> list[SuspectReading]:
    """Return readings once a second from this moment on. The last one comes late to kit. `at` has the moment."""
    return [
        SuspectReading(
            at=first + second,
            seconds=1.0 if second else 0.5,
            heard=first + second + (late if second == count - 1 else 0.0),
            stream=number,
        )
        for second in range(count)
    ]


def moments(readings: dict[str, list[SuspectReading]]) -> list[dict[str, list[float]]]:
    return [{host: [one.at for one in rows] for host, rows in part.items()} for part in parts(readings)]


def test_hosts_that_begin_later_are_compared_from_then_on() -> None:
    assert moments({"a": stream(0, 6), "b": stream(2.3, 6), "c": stream(0.1, 4, late=1.7)}) == [
        {"a": [2, 3], "b": [2.3, 3.3], "c": [2.1, 3.1]}
    ]


def test_a_break_of_one_connection_parts_the_time() -> None:
    breaks = [*stream(0, 3), *stream(7.4, 3, number=1)]
    assert moments({"a": stream(0.2, 12), "b": breaks}) == [
        {"a": [0.2, 1.2, 2.2], "b": [0, 1, 2]},
        {"a": [7.2, 8.2, 9.2], "b": [7.4, 8.4, 9.4]},
    ]
    both = [*stream(0, 4), *stream(9.4, 2, number=1)]
    assert moments({"a": both, "b": breaks}) == [
        {"a": [0, 1, 2], "b": [0, 1, 2]},
        {"a": [9.4], "b": [9.4]},
    ]


def test_hosts_that_were_never_there_at_once_have_their_last_readings() -> None:
    assert moments({"a": stream(0, 3), "b": stream(5, 2)}) == [{"a": [2], "b": [6]}]
    assert moments({"a": stream(0, 2)}) == [{"a": [0, 1]}]
    assert not parts({})
