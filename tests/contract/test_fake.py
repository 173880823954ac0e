"""The transport of the tests keeps the contract of the real one. Its plain commands run in a local shell, as root."""

from __future__ import annotations

import os

import pytest

from tests.contract.transport_contract import Factory, TransportContract
from tests.fakes.fleet import Fleet


class TestFakeTransport(TransportContract):
    @pytest.fixture
    def connect(self) -> Factory:
        fleet = Fleet(1)
        return lambda: fleet.connect(fleet["gpu1"].host)

    @pytest.fixture
    def scratch(self) -> str:
        return "/opt/scratch"

    @pytest.mark.skipif(os.geteuid() != 0, reason="the fake runs plain commands as the user of the tests: be root")
    def test_commands_run_as_root(self, connect: Factory) -> None:
        super().test_commands_run_as_root(connect)
