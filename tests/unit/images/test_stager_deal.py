"""kitdata.deal: who reads which piece and where it passes, with hosts that die, break connections and alter bytes."""

from __future__ import annotations

import collections
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

deal: Any = launcher.load("kitdata.deal")
plan: Any = launcher.load("kitdata.plan")

Report = Callable[[], None]


class Simulation:
    """Members that carry out a Dealer's orders, one step of one host at a time, in an order that hypothesis draws."""

    def __init__(self, pieces: list[tuple[int, int]], count: int, readers: int, draw: Any) -> None:
        self.count = count
        self.draw = draw
        self.faults = 0
        # The host that alters everything that it sends, and whether it says that it never gets anything right.
        self.altering = -1
        self.lying = False
        self.pieces = [plan.Piece(((0, number),), 1, need, have) for number, (need, have) in enumerate(pieces)]
        self.dealer = deal.Dealer(self.pieces, count, (1 << count) - 1, readers)
        self.living = set(range(count))
        self.has = [{n for n, (_, have) in enumerate(pieces) if have >> host & 1} for host in range(count)]
        self.reads: collections.Counter[int] = collections.Counter()
        # What each host does next, and what it has reported and the lead has not read.
        self.steps: list[tuple[int, Callable[[], None]]] = []
        self.reports: dict[int, list[Report]] = {host: [] for host in range(count)}
        self.connections = dict.fromkeys(((a, b) for a in range(count) for b in range(count)), 1)

    def run(self) -> None:
        for _ in range(20_000):
            for order in self.dealer.deal():
                assert order.host in self.living
                if order.read:
                    self.reads[order.piece] += 1
                self.steps.append((order.host, partial(self.begin, order)))
            if self.dealer.out:
                for host in list(self.dealer.out):
                    self.die(host)
                continue
            if not self.dealer.left or not self.living:
                return
            choices: list[Callable[[], None]] = [partial(self.step, at) for at in range(len(self.steps))]
            choices += [partial(self.deliver, host) for host in self.living if self.reports[host]]
            if not choices:
                assert self.dealer.stuck, "the dealer waits for something that nobody does"
                return
            choices[self.draw(st.integers(0, len(choices) - 1))]()
        raise AssertionError("it does not end")

    def fault(self, *kinds: str) -> str:
        """Return what goes wrong at this step: mostly nothing."""
        if not self.faults:
            return ""
        kind: str = self.draw(st.sampled_from(["", "", "", *kinds]))
        self.faults -= kind != ""
        return kind

    def deliver(self, host: int) -> None:
        self.reports[host].pop(0)()

    def report(self, host: int, report: Report) -> None:
        if host in self.living:
            self.reports[host].append(report)

    def step(self, at: int) -> None:
        host, step = self.steps.pop(at)
        if host in self.living:
            if self.fault("death") == "death" and len(self.living) > 1:
                self.die(host)
            else:
                step()

    def die(self, host: int) -> None:
        if host in self.living:
            self.living.discard(host)
            self.reports[host] = []
            self.dealer.lost(host)

    def begin(self, order: Any) -> None:
        host, piece = order.host, order.piece
        if order.read:
            if self.fault("unread") == "unread":
                self.report(host, lambda: self.dealer.unread(host, piece, True))
                self.report(host, lambda: self.dealer.over(host, piece))
                return
            if self.pieces[piece].need >> host & 1:
                self.has[host].add(piece)
                self.report(host, lambda: self.dealer.arrived(host, piece))
        else:
            assert piece in self.has[host]
        if order.route:
            over = lambda: self.report(host, lambda: self.dealer.over(host, piece))  # noqa: E731
            self.steps.append((host, lambda: self.pass_on(host, piece, order.route, True, over)))
        else:
            self.report(host, lambda: self.dealer.over(host, piece))

    def pass_on(self, host: int, piece: int, route: tuple[int, ...], right: bool, over: Report) -> None:
        to = route[0]
        kind = self.fault("broken", "unsent", "wrong")
        if to not in self.living or kind == "unsent":
            self.report(host, lambda: self.dealer.unsent(host, piece, to, False))
            over()
            return
        connection = self.connections[host, to]
        self.report(host, lambda: self.dealer.sent(host, piece, to, connection))
        over()
        if kind == "broken":
            self.connections[host, to] += 1
            self.report(to, lambda: self.dealer.broken(host, to, connection))
            return
        right = right and kind != "wrong" and host != self.altering
        if right and not (self.lying and to == self.altering):
            self.has[to].add(piece)
            self.report(to, lambda: self.dealer.arrived(to, piece))
        else:
            self.report(to, lambda: self.dealer.wrong(to, piece))
        if len(route) > 1:
            self.steps.append((to, lambda: self.pass_on(to, piece, route[1:], right, lambda: None)))

    def complete(self) -> bool:
        """Return whether every living host has what it needs."""
        return all(
            number in self.has[host]
            for number, piece in enumerate(self.pieces)
            for host in self.living
            if piece.need >> host & 1
        )


@st.composite
def simulations(draw: Any, faults: bool = False, altering: bool = False) -> Simulation:
    count = draw(st.integers(2 if altering else 1, 8 if altering else 5))
    everybody = (1 << count) - 1
    readers = draw(st.integers(1, everybody))
    bad = draw(st.integers(0, count - 1)) if altering else -1
    if altering and readers == 1 << bad:
        readers = everybody
    pieces = []
    for _ in range(draw(st.integers(0, 12))):
        have = draw(st.sampled_from([0, 0, draw(st.integers(0, everybody))]))
        pieces.append((draw(st.integers(0, everybody)) & ~have, have))
    simulation = Simulation(pieces, count, readers, draw)
    simulation.altering = bad
    simulation.lying = altering and draw(st.booleans())
    simulation.faults = draw(st.integers(1, 8)) if faults else 0
    return simulation


@given(simulations())
def test_without_faults_every_host_gets_everything_and_each_piece_is_read_at_most_once(one: Simulation) -> None:
    one.run()
    assert one.complete()
    expected = {number: 1 for number, piece in enumerate(one.pieces) if piece.need and not piece.have}
    assert dict(one.reads) == expected


@given(simulations(faults=True))
def test_with_faults_every_living_host_gets_everything_or_nobody_is_left_to_read(one: Simulation) -> None:
    one.run()
    assert one.complete() or stuck_rightly(one)


@given(simulations(altering=True))
def test_a_host_that_alters_everything_that_it_sends_takes_nobody_out(one: Simulation) -> None:
    one.run()
    assert one.living >= set(range(one.count)) - ({one.altering} if one.lying else set())
    assert one.complete()


def stuck_rightly(one: Simulation) -> bool:
    """Return whether all that is missing is held by nobody that lives, and no reader can reach who needs it."""
    missing = [
        number
        for number, piece in enumerate(one.pieces)
        if any(piece.need >> host & 1 and number not in one.has[host] for host in one.living)
    ]
    return bool(one.dealer.stuck) and all(not any(n in one.has[h] for h in one.living) for n in missing)


def dealer(pieces: int, hosts: int, readers: int | None = None, **more: Any) -> Any:
    everybody = (1 << hosts) - 1
    all_of_it = [plan.Piece(((0, number),), 1, everybody, 0) for number in range(pieces)]
    return deal.Dealer(all_of_it, hosts, everybody, everybody if readers is None else readers, **more)


def test_each_host_reads_its_part_and_passes_it_around_the_ring() -> None:
    orders = dealer(4, 4, slots=1).deal()
    assert [(order.host, order.read, order.route) for order in orders] == [
        (0, True, (1, 2, 3)), (1, True, (2, 3, 0)), (2, True, (3, 0, 1)), (3, True, (0, 1, 2)),
    ]  # fmt: skip


def test_a_slow_host_reads_less() -> None:
    one = dealer(100, 2, slots=1)
    reads = [0, 0]
    waiting = list(one.deal())
    while one.left:
        # Host 1 finishes one piece while host 0 finishes four.
        fast = [order for order in waiting if order.host == 0]
        order = fast[0] if fast and sum(reads) % 5 else waiting[-1]
        waiting.remove(order)
        reads[order.host] += 1
        for host in range(2):
            one.arrived(host, order.piece)
        one.over(order.host, order.piece)
        waiting += one.deal()
    assert reads[0] > 3 * reads[1]


def test_the_ring_closes_around_a_host_that_dies() -> None:
    one = dealer(1, 4, readers=1)
    assert one.deal()[0].route == (1, 2, 3)
    one.arrived(0, 0)
    one.arrived(1, 0)
    one.over(0, 0)
    one.lost(2)
    (order,) = one.deal()
    # Both have it, and it is not read again.
    assert (order.read, order.route) == (False, (3,))


def test_two_hosts_that_cannot_talk_use_a_third() -> None:
    one = dealer(2, 3, readers=1, slots=1)
    assert one.deal()[0].route == (1, 2)
    one.arrived(0, 0)
    one.unsent(0, 0, 1, False)
    one.over(0, 0)
    (order,) = one.deal()
    assert order.route == (2, 1)


def test_a_host_that_nobody_can_reach_is_out() -> None:
    one = dealer(1, 2)
    one.deal()
    one.unsent(0, 0, 1, False)
    assert list(one.out) == [1]


def test_a_piece_that_comes_wrong_again_and_again_takes_its_host_out() -> None:
    one = dealer(1, 2, readers=1)
    for _ in range(deal.MOST_WRONG):
        assert len(one.deal()) == 1
        one.arrived(0, 0)
        one.over(0, 0)
        one.wrong(1, 0)
    assert list(one.out) == [1]


def test_without_a_reader_it_is_stuck() -> None:
    one = dealer(2, 2, readers=2)
    one.deal()
    one.lost(1)
    assert one.deal() == []
    assert one.stuck


def test_a_skipped_piece_is_not_left() -> None:
    one = dealer(2, 2)
    one.skip(1)
    assert one.left == 1
    assert [order.piece for order in one.deal()] == [0]


def test_what_was_sent_on_a_connection_that_had_ended_is_sent_again() -> None:
    one = dealer(1, 2, readers=1)
    one.deal()
    one.arrived(0, 0)
    one.over(0, 0)
    # The receiver's report comes first.
    one.broken(0, 1, 7)
    assert one.deal() == []
    one.sent(0, 0, 1, 7)
    assert [(order.read, order.route) for order in one.deal()] == [(False, (1,))]


def test_a_host_that_is_gone_is_not_out_again() -> None:
    one = dealer(1, 3)
    one.lost(2)
    one.unsent(0, 0, 2, False)
    one.unsent(1, 0, 2, False)
    assert one.out == {}


def test_the_last_host_is_not_out_because_another_one_is_lost() -> None:
    one = dealer(1, 2)
    one.lost(0)
    # Late reports of both.
    one.unsent(1, 0, 0, False)
    one.unsent(0, 0, 1, False)
    assert one.out == {}


def test_a_host_that_lost_what_it_had_gets_it_again() -> None:
    one = dealer(1, 2, readers=1)
    one.deal()
    for host in (0, 1):
        one.arrived(host, 0)
    one.over(0, 0)
    assert one.left == 0
    one.rotten(0, 0, "a")
    assert one.left == 1
    (order,) = one.deal()
    assert (order.host, order.read, order.route) == (1, False, (0,))


def test_where_a_piece_is_read_quickly_a_host_reads_more_at_once() -> None:
    one = dealer(100, 8)
    assert len(one.deal()) == 8
    one.took(0.1)
    assert len(one.deal()) == 8
    for _ in range(9):
        one.took(0.1)
    assert len(one.deal()) == (deal.SLOTS - 2) * 8
    for _ in range(9):
        one.took(3.0)
    for piece in range(16):
        one.over(piece % 8, piece)
    # Each host has two pieces still.
    assert one.deal() == []
