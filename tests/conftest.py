"""For all tests: working Ctrl-C, a warning for each test that got a second try, and a head on this machine."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.fakes.head import Head, MakeHead
from tests.lanes import Lanes

# How long an example takes says how busy the machine is. In CI, a commit passes or does not: always the same examples.
hypothesis.settings.register_profile("kit", deadline=None, derandomize=os.environ.get("CI") == "true")
hypothesis.settings.load_profile("kit")

# What fails in a contract shows its values, as in a test.
pytest.register_assert_rewrite("tests.contract.script_contract", "tests.contract.transport_contract")

# A shell's background job ignores SIGINT, and one under nohup SIGHUP; so would every kit that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """With --dist loadscope, a worker gets one lane of the integration tests."""
    return Lanes(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_configure() -> None:
    """Stop the garbage collector for the collection. It would look at all tests again and again: half of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector off what was collected: some thousand tests and all of kit, which stay to the end."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a warning for each test that failed and passed, or failed again, in a second try."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_line(
            f"WARNING: {report.nodeid} failed and got a second try. Find out why: it is a bug.",
            yellow=True,
        )


# The tests start python3 thousands of times, as on a VM. That of pyenv is a script that starts twenty shells first,
# which takes ten times as long as Python does.
_PYTHON = Path(sys.executable).resolve()
if Path(shutil.which("python3") or "").resolve() != _PYTHON:
    os.environ["PATH"] = f"{_PYTHON.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def make_head(tmp_path: Path) -> Iterator[MakeHead]:
    heads: list[Head] = []

    def make(**values: Any) -> Head:
        folder = tmp_path / f"head{len(heads)}"
        folder.mkdir()
        heads.append(Head(folder, **values))
        return heads[-1]

    yield make
    for head in heads:
        head.close()


@pytest.fixture
def head(make_head: MakeHead) -> Head:
    return make_head()
