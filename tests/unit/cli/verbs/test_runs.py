"""kit wait: an error before it has connected to the head is that error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.verbs import runs
from kit.flows.run import dial


def test_ctrl_c_before_kit_wait_has_connected_is_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_context: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(dial, "dialled", interrupted)
    session: Any = SimpleNamespace(context=lambda: None, args=SimpleNamespace(run=None))
    with pytest.raises(KeyboardInterrupt):
        runs.wait(session)
