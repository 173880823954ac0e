"""A fleet that was deployed, with a real launcher on this machine as its head: whole runs, and no engine."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from kit.flows.cluster.deploy import deploy
from kit.flows.context import Context
from kit.flows.run.run import run
from kit.model.launch import RunRequest
from kit.model.result import RunResult
from tests.fakes.fleet import Fleet
from tests.fakes.head import Head
from tests.fakes.reporter import Remembering


class Cluster:
    """A fleet that was deployed; its head's launcher is one of this machine."""

    def __init__(
        self, fleet: Fleet, head: Head, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, **spec: Any
    ) -> None:
        self.fleet, self.head, self.reporter, self._spec = fleet, head, reporter, spec
        deploy(self.context())
        self.head.record.write_bytes(fleet["gpu1"].files["/opt/kit/lab/cluster.json"][0])
        self.head.with_mpirun()
        self.head.ssh()
        self._monkeypatch = monkeypatch
        self.reach()

    def reach(self, before: str = ":") -> None:
        folder = self.head.reached_by_ssh(before)
        rest = [part for part in os.environ["PATH"].split(":") if part != folder]
        self._monkeypatch.setenv("PATH", ":".join((folder, *rest)))

    def context(self, **spec: Any) -> Context:
        return self.fleet.context(self.reporter, **self._spec, **spec)

    def run(self, script: str, **more: Any) -> RunResult:
        request = {"hosts": "gpu1", "command": ("sh", "-c", script), **more}
        spec = request.pop("spec", {})
        door = request.pop("door", None)
        result = run(self.context(**spec), RunRequest(**request), door=door)
        self.head.ids.append(result.plan.run_id)
        return result

    def record(self, run_id: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.head.runs / run_id / "record.json").read_text())
        return record

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, by ID: those of one second are in no order."""
        return [json.loads(path.read_text()) for path in sorted(self.head.runs.glob("*/record.json"))]

    @property
    def out(self) -> list[str]:
        return [line.text for line in self.reporter.lines if line.stream == "stdout"]

    def log(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.head.runs.glob("*/log"))
