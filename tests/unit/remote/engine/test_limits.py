"""What to do if an engine cannot raise a limit."""

from __future__ import annotations

import pytest

from kit.remote.engine.limits import limits_hint

MEMLOCK = "this engine cannot raise limits: set ulimits.memlock to default in kit.yaml"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        ("error during container init: error setting rlimit type 8: operation not permitted", MEMLOCK),
        ("error setting rlimits for ready process: error setting rlimit type 8: operation not permitted", MEMLOCK),
        ("the engine's configuration allows no ulimit above 65536", MEMLOCK),
        (
            "error setting rlimit type 7: operation not permitted: unknown",
            "this engine cannot raise limits: set a lower ulimits.nofile in kit.yaml",
        ),
        (
            "error setting rlimit type 3: operation not permitted: unknown",
            "this engine cannot raise limits: set a lower ulimits.stack in kit.yaml",
        ),
        ("OCI runtime create failed: no such file or directory", None),
        ("", None),
    ],
)
def test_the_limit_that_the_engine_cannot_raise(answer: str, hint: str | None) -> None:
    assert limits_hint(answer) == hint
