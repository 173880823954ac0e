"""Which options of a run an older launcher would ignore."""

from __future__ import annotations

import pytest

from kit.errors import NotReadyError
from kit.model.launch import RunPolicy, RunRequest
from kit.model.values import fields
from kit.plan.run import known

# What the first launchers of this protocol knew.
FIRST = {
    "operator", "share", "start_timeout", "timeout", "stall_timeout", "retries", "retry_on", "backoff", "min_np",
    "checkpoints", "clean", "keep_s", "keep",
}  # fmt: skip
# Only elastic runs have it.
WITH_ELASTIC = {"max_np"}
LIMITED = RunRequest(np=1, cpus=2, policy=RunPolicy(memory=1 << 30))


def check(request: RunRequest, listed: tuple[str, ...] | None, *, has_line: bool = True) -> None:
    known.check(request, listed, has_line=has_line, host="gpu1")


def test_a_launcher_of_this_kit_knows_all() -> None:
    check(LIMITED, tuple(known.FLAGS))
    check(RunRequest(launcher="elastic", policy=RunPolicy(min_np=1, idle_gpu=60.0)), tuple(known.FLAGS))


def test_one_that_lists_nothing_knows_them_if_it_has_a_line() -> None:
    check(LIMITED, None)
    with pytest.raises(NotReadyError, match=r"would ignore --cpus and --memory$") as caught:
        check(LIMITED, None, has_line=False)
    assert (caught.value.hint, caught.value.host) == ("run: kit deploy", "gpu1")


def test_one_that_lists_others_knows_only_those() -> None:
    with pytest.raises(NotReadyError, match=r"would ignore --memory$"):
        check(LIMITED, ("cpus", "elastic"))
    with pytest.raises(NotReadyError, match=r"would ignore --elastic$"):
        check(RunRequest(launcher="elastic"), ())


def test_a_run_without_such_options_starts_on_any() -> None:
    check(RunRequest(np=1, policy=RunPolicy(timeout=60.0, retries=3)), None, has_line=False)


def test_no_option_of_a_run_is_forgotten() -> None:
    """An older launcher ignores an option that kit neither lists here nor knows as one of the first."""
    assert set(fields(RunPolicy)) == FIRST | WITH_ELASTIC | (set(known.FLAGS) & set(fields(RunPolicy)))
