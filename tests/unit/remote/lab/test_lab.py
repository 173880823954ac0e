"""A command that the engine did not begin is repeated; a failure names the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.errors import StepError
from kit.plan import lab as plan
from kit.remote.engine import hiccups
from kit.remote.lab import fault, image
from kit.remote.lab.engine import LabEngine
from tests.fakes.vm import RESET

NO_EXEC = f"OCI runtime exec failed: exec failed: {RESET}: unknown\r\n".encode()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiccups, "PAUSE_S", 0.0)


def engine(*answers: tuple[int, bytes]) -> Any:
    """A lab's engine whose execs end so, one after the other."""
    left = list(answers)
    lab_engine = LabEngine.__new__(LabEngine)
    api = SimpleNamespace(
        exec_create=lambda container, argv: {"Id": "1"},
        exec_start=lambda _: left[0][1],
        exec_inspect=lambda _: {"ExitCode": left.pop(0)[0]},
    )
    lab_engine.client = cast(Any, SimpleNamespace(api=api))
    return lab_engine


def test_a_command_that_never_began_is_requested_again() -> None:
    assert engine((126, NO_EXEC), (0, b"17\n")).link("c", "gpu1") == 17
    engine((126, NO_EXEC), (0, b"")).shape_own_links("c", "gpu1", "1gbit", 1)


def test_an_index_that_a_busy_engine_lost_is_read_again() -> None:
    assert engine((0, b""), (0, b"17\n")).link("c", "gpu1") == 17


@pytest.mark.parametrize("answers", [[(1, b"no such file\n")], [(0, b"\n")] * hiccups.ATTEMPTS])
def test_a_link_that_cannot_be_read(answers: list[tuple[int, bytes]]) -> None:
    with pytest.raises(StepError, match="its link cannot be read") as caught:
        engine(*answers).link("c", "gpu1")
    assert caught.value.host == "gpu1"


END = f"{fault.END}\n".encode()


def test_an_answer_about_faults_that_a_busy_engine_lost_is_requested_again() -> None:
    """A list that is lost is no list without faults."""
    assert engine((0, b""), (0, b"swap\n"), (0, b"swap\nthp\n" + END)).fault("c", "gpu1", []) == "swap\nthp\n"
    assert engine((0, END)).fault("c", "gpu1", []) == ""


def test_a_lost_answer_and_a_refusal_are_errors() -> None:
    with pytest.raises(StepError, match="lost the answer") as caught:
        engine(*[(0, b"swap\n")] * hiccups.ATTEMPTS).fault("c", "gpu1", [])
    assert caught.value.host == "gpu1"
    with pytest.raises(StepError, match="cannot have this fault: no room"):
        engine((1, b"a line\nno room\n")).fault("c", "gpu1", [])


def test_an_exit_code_comes_after_the_output() -> None:
    """Without one, a command that failed would be one that succeeded."""
    codes: list[int | None] = [None, None, 3]
    lab_engine = engine((0, b"no such device\n"))
    lab_engine.client.api.exec_inspect = lambda _: {"ExitCode": codes.pop(0)}
    with pytest.raises(StepError, match="no such device"):
        lab_engine.fault("c", "gpu1", [])
    assert codes == []


def test_a_link_that_cannot_be_shaped() -> None:
    with pytest.raises(StepError, match="cannot be limited to 1gbit: no such device"):
        engine((2, b"no such device\n")).shape_own_links("c", "gpu1", "1gbit", 1)


@pytest.mark.parametrize("system", plan.SYSTEMS)
def test_a_bare_host_starts_from_its_system_and_shares_what_others_do_first(system: str) -> None:
    content = image.bare_content(system, plan.SYSTEMS[system])
    assert f"\nFROM {plan.SYSTEMS[system]}\n" in content.files["Dockerfile"].decode()
    assert content.files["prepare"] == image.content().files["prepare"]
    assert {"boot", "link-rate"} <= content.executables & content.files.keys()
    assert "docker.io" not in content.files["Dockerfile"].decode()
    assert content.tag.startswith(f"kit-lab:bare-{system}-")
