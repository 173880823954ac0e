"""Which rank failed, if the first one that ended only noticed that another one was gone (kitrun.origin)."""

from __future__ import annotations

from typing import Any

import pytest

from kit.plan.run.causes import AFTERMATH
from tests.fakes import launcher
from tests.unit.images.test_decide import record

origin: Any = launcher.load("kitrun.origin")
decide: Any = launcher.load("kitrun.decide")
outputs: Any = launcher.load("kitrun.output")

HOSTS = {0: "gpu1", 1: "gpu1", 2: "gpu2", 3: "gpu2"}
# As MXNet's ranks wrote it on a lab.
NOTICED = (
    b"Traceback (most recent call last):\n"
    b'  File "/job/early.py", line 6, in <module>\n'
    b'    hvd.allreduce(mx.nd.ones(10), average=False, name="grad").wait_to_read()\n'
    b"mxnet.base.MXNetError: MXNetError: Horovod has been shut down. This was caused by an exception on one of the "
    b"ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution.\n"
)
RAISED = b'Traceback (most recent call last):\n  File "/job/early.py", line 10, in <lambda>\nIndexError: list index\n'
PYTORCH = b"".join(b"[rank1]: " + line for line in RAISED.splitlines(keepends=True))
# As Python 3.13 writes it with FORCE_COLOR=1, without its frames.
COLORED = (
    b"Traceback (most recent call last):\n"
    b'  File \x1b[35m"/job/early.py"\x1b[0m, line \x1b[35m10\x1b[0m, in \x1b[35m<lambda>\x1b[0m\n'
    b"\x1b[1;35mIndexError\x1b[0m: \x1b[35mlist index out of range\x1b[0m\n"
)
LATER = b"[2026-11-28 16:22:31.1: W horovod/common/stall_inspector.cc] ...\n"


def found(*records: bytes) -> Any:
    output = outputs.Output()
    output.errors(b"".join(record(rank, "u", host.encode() + b" 17") for rank, host in HOSTS.items()))
    output.errors(b"".join(records))
    return origin.origin(output.first, output.up, output.ended, output.wrote, output.last_lines)


ENDED = record(0, "x", b"gpu1 1 0 0")


@pytest.mark.parametrize("text", [RAISED, PYTORCH, COLORED, RAISED + LATER, b"ValueError: bad batch\n"])
@pytest.mark.parametrize("own", [b"", record(1, "x", b"gpu1 0 15 0"), record(1, "x", b"gpu1 143 0 0")])
def test_an_exception_that_the_first_rank_only_noticed_is_the_failure(text: bytes, own: bytes) -> None:
    """mpirun ends its rank, which waits for the others."""
    noticed = [record(rank, "e", NOTICED) for rank in (2, 0, 3)]
    assert found(record(1, "e", text), *noticed, ENDED, own) == decide.RankEnd(1, "gpu1", 1, 0, False)


@pytest.mark.parametrize(
    "exception",
    [
        b"torch.distributed.DistNetworkError: Broken pipe\n",
        b"\x1b[1;35mtorch.distributed.DistNetworkError\x1b[0m: \x1b[35mBroken pipe\x1b[0m\n",
    ],
)
def test_a_rank_may_notice_the_end_of_another_one_as_it_writes_to_the_store_of_pytorch(exception: bytes) -> None:
    broken = b'Traceback (most recent call last):\n  File "/job/st.py", line 13, in <module>\n'
    assert found(record(1, "e", RAISED), record(0, "e", broken + exception), ENDED).rank == 1


@pytest.mark.parametrize(("report", "code", "signal"), [(b"gpu2 3 0 0", 3, 0), (b"gpu2 0 9 1", 0, 9)])
def test_its_own_report_counts_if_it_has_one(report: bytes, code: int, signal: int) -> None:
    written = record(2, "e", RAISED) if code else b""
    end = found(written, record(0, "e", NOTICED), ENDED, record(2, "x", report))
    assert end == decide.RankEnd(2, "gpu2", code, signal, bool(signal))


def test_of_several_exceptions_the_first_one_counts() -> None:
    raised = [record(rank, "e", RAISED) for rank in (3, 1, 2)]
    assert found(*raised, record(0, "e", NOTICED), ENDED).rank == 3


@pytest.mark.parametrize(
    "others",
    [
        (),
        # They noticed it, too.
        (record(1, "e", NOTICED), record(2, "e", NOTICED)),
        # It went on after its exception, and ended well.
        (record(1, "e", RAISED), record(1, "x", b"gpu1 0 0 0")),
        (record(1, "e", b"a warning: nothing\n"), record(1, "x", b"gpu1 0 15 0")),
        # It survived its exception, until mpirun ended it.
        (record(1, "e", RAISED + b"INFO:root:epoch 2\n"), record(1, "x", b"gpu1 0 15 0")),
        (record(1, "e", RAISED + b"2026-11-28 16:22:31,104 train step 9\n"), record(1, "x", b"gpu1 0 15 0")),
        (record(1, "e", RAISED + b"Epoch 2:  37%|###7      | 37/100\n"), record(1, "x", b"gpu1 0 15 0")),
        (record(1, "x", b"gpu1 1 0 0"),),
    ],
)
def test_otherwise_the_first_rank_counts(others: tuple[bytes, ...]) -> None:
    assert found(record(0, "e", NOTICED), ENDED, *others) == decide.RankEnd(0, "gpu1", 1, 0, False)


def test_an_exception_before_torchruns_restart_is_past() -> None:
    again = [record(rank, "u", host.encode() + b" 18") for rank, host in HOSTS.items()]
    end = found(record(1, "e", RAISED), *again, record(0, "e", NOTICED), ENDED)
    assert end == decide.RankEnd(0, "gpu1", 1, 0, False)


# As urllib3 warns of it. The program then tried again.
SURVIVED = b"Retrying after connection broken by 'ConnectionResetError(104, 'Connection reset by peer')'\n"


@pytest.mark.parametrize("before", [b"", SURVIVED])
def test_a_rank_with_its_own_exception_is_the_first(before: bytes) -> None:
    """Also if it has survived a broken connection, and another rank an exception."""
    terminated = record(1, "x", b"gpu1 0 15 0")
    assert found(record(1, "e", RAISED), record(0, "e", before + RAISED), ENDED, terminated).rank == 0


def test_a_rank_that_the_kernel_killed_for_its_memory_noticed_nothing() -> None:
    killed = record(0, "x", b"gpu1 0 9 1")
    assert found(record(1, "e", RAISED), record(0, "e", SURVIVED), killed).rank == 0


@pytest.mark.parametrize(
    "link",
    [
        "\nDuring handling of the above exception, another exception occurred:\n",
        "\nThe above exception was the direct cause of the following exception:\n",
        "Exception ignored in: <function Pool.__del__ at 0x7f12>",
        "Error in atexit._run_exitfuncs:",
        # Python 3.13.
        "Exception ignored on threading shutdown:",
        "Exception in thread Thread-1 (_pin_memory_loop):",
    ],
)
def test_an_exception_that_follows_from_what_the_rank_noticed_is_not_its_own(link: str) -> None:
    both = NOTICED + f"{link}\n".encode() + RAISED
    assert found(record(1, "e", RAISED), record(0, "e", both), ENDED).rank == 1


def test_a_thread_that_fails_long_after_what_the_rank_survived_is_the_failure() -> None:
    """The rank had connected again, and the others only lost it. Their exceptions say nothing that kit knows."""
    both = NOTICED + b"connected again\nException in thread Thread-1 (reader):\n" + RAISED
    assert found(record(0, "e", both), record(1, "e", RAISED), ENDED).rank == 0


def test_an_end_that_mpirun_does_not_name_stays() -> None:
    nameless = decide.RankEnd(None, "", 7, 0, False)
    assert origin.origin(nameless, HOSTS, {}, {}, lambda _: []) == nameless


@pytest.mark.parametrize(
    ("records", "before"),
    [
        ((record(2, "x", b"gpu2 0 0 0"), record(1, "x", b"gpu1 0 0 0"), record(0, "e", NOTICED), ENDED), 2),
        ((record(0, "e", NOTICED), ENDED, record(2, "x", b"gpu2 0 0 0")), None),
        ((record(2, "x", b"gpu2 0 0 0"), record(0, "e", RAISED), ENDED), None),
        # The kernel killed it for its memory, whatever it wrote before.
        ((record(2, "x", b"gpu2 0 0 0"), record(0, "e", NOTICED), record(0, "x", b"gpu1 0 9 1")), None),
    ],
)
def test_a_rank_that_ended_before_without_an_error(records: tuple[bytes, ...], before: int | None) -> None:
    output = outputs.Output()
    output.errors(b"".join(records))
    end = origin.ended_before(output.first, output.ended, output.last_lines)
    assert (end and end.rank) == before


@pytest.mark.parametrize(("code", "signal"), [(3, 0), (0, 15)])
def test_a_rank_that_failed_before_did_not_end_well(code: int, signal: int) -> None:
    """On a busy machine, reports of ranks that mpirun ended arrive before that of the first one."""
    first = decide.RankEnd(0, "gpu1", 1, 0, False)
    earlier = decide.RankEnd(2, "gpu2", code, signal, False)
    lines = NOTICED.decode().splitlines()
    assert origin.ended_before(first, {2: earlier, 0: first}, lambda _: lines) is None
    well = decide.RankEnd(3, "gpu2", 0, 0, False)
    assert origin.ended_before(first, {2: earlier, 3: well, 0: first}, lambda _: lines) == well


def test_kit_calls_such_a_failure_an_aftermath() -> None:
    known = "\n".join(pattern for rule in AFTERMATH for pattern in (*rule.says, *rule.raised))
    assert [word for word in origin.NOTICED if word not in known] == []
