"""Connections that stay, and a look that goes on while they are closed: as after Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kit.errors import UnreachableError
from kit.model.host import Host
from kit.remote.bench.load import Watch
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import host


class Link:
    """A transport that closes late: meanwhile another host is connected to."""

    def __init__(self, one: Host, watch: list[Watch], late: list[Host]) -> None:
        self.host = one
        self._watch, self._late = watch, late
        self.closed = False

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if self.host.name == "gpu3":
            self._watch[0].close()
            raise UnreachableError("the connection broke")
        return Completed(code=0, stdout=b"end\n", stderr=b"")

    def close(self) -> None:
        self.closed = True
        if self._late:
            self._watch[0]._text(self._late.pop())


def test_closing_takes_along_what_is_connected_meanwhile() -> None:
    watch: list[Watch] = []
    late: list[Host] = [host(4)]
    links: list[Link] = []

    def connect(one: Host) -> Link:
        links.append(Link(one, watch, late))
        return links[-1]

    watch.append(Watch([host(1), host(2)], connect, "/opt/kit/lab"))
    assert set(watch[0].look(str.strip)) == {"gpu1", "gpu2"}
    watch[0].close()
    assert sorted(link.host.name for link in links) == ["gpu1", "gpu2", "gpu4"]
    assert all(link.closed for link in links)


def test_a_connection_that_breaks_while_it_closes_is_no_bug() -> None:
    watch: list[Watch] = []
    watch.append(Watch([host(3)], lambda one: Link(one, watch, []), "/opt/kit/lab"))
    with pytest.raises(UnreachableError):
        watch[0]._text(host(3))
