"""The look at a VM that has Python: what it asks the engine, when it leaves that to Docker's client, and its limits."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.model.observed import HostFacts
from kit.remote.cluster.observe import interfaces_of, parse
from kit.remote.scripts import kernel, script
from kit.remote.ssh.transport import Completed
from tests.contract.script_contract import IMAGE
from tests.contract.test_scripts import SocketMachine
from tests.fakes.facts import host

QUICK = {"/_ping", f"/images/{IMAGE}/json", "/containers/json"}


class ShortMachine(SocketMachine):
    """A VM on which the look's limits are short."""

    limits = "15.0, 15.0, 10.0"

    def localized(self, text: str) -> str:
        assert "LIST_S = 15.0, 15.0, 10.0" in text or "observe" not in text
        return super().localized(text).replace("LIST_S = 15.0, 15.0, 10.0", f"LIST_S = {self.limits}")

    def stub_of(self, name: str, text: str) -> None:
        path = self._path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    @property
    def plugin(self) -> Path:
        return self._home / ".docker/cli-plugins/docker-compose"

    def look(self, wanted: str) -> Completed:
        return self.run("observe", self.folder, IMAGE, wanted)


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[ShortMachine]:
    machine = ShortMachine(tmp_path)
    yield machine
    machine.stub.close()


def test_an_engine_without_swarm_is_asked_nothing_that_takes_time(vm: ShortMachine) -> None:
    assert vm.facts().engine == "26.1.5"
    assert set(vm.stub.requests) == QUICK


def test_a_deploy_to_swarm_knows_the_engines_settings(vm: ShortMachine) -> None:
    assert vm.facts(wanted="swarm").swarm.live_restore
    assert "/info" in vm.stub.requests


def test_gpus_need_the_engines_runtimes(vm: ShortMachine) -> None:
    vm.stub_of("nvidia-smi", "echo 'Tesla T4, 15360, GPU-77aa'")
    facts = vm.facts()
    assert [gpu.uuid for gpu in facts.gpus] == ["GPU-77aa"]
    assert "/info" in vm.stub.requests


@pytest.mark.parametrize("path", ["/containers/json", f"/images/{IMAGE}/json"])
def test_an_engine_that_is_busy_is_not_an_engine_that_is_empty(vm: ShortMachine, path: str) -> None:
    vm.limits = "15.0, 15.0, 1.0"
    vm.stub.silent = (path,)
    done = vm.look("compose")
    what = "containers" if "containers" in path else "images"
    assert (done.code, done.text) == (75, "")
    assert done.error_text == f"the engine did not report its {what} within 1 s"


def test_an_engine_that_does_not_answer_is_slow(vm: ShortMachine) -> None:
    vm.limits = "15.0, 0.5, 0.5"
    vm.stub.silent = tuple(QUICK)
    facts = vm.facts()
    assert (facts.engine, facts.slow, facts.image_id, facts.containers) == ("", True, None, ())


@pytest.mark.parametrize("name", ["DOCKER_HOST", "DOCKER_CONTEXT"])
def test_an_engine_elsewhere_is_left_to_the_client(vm: ShortMachine, name: str) -> None:
    with vm.engine() as state:
        state["described"] = True
    words = vm.localized(script("observe")[2])
    environ = {"PATH": str(vm._path), "HOME": str(vm._home), "KIT_STUB_ENGINE": str(vm._state), name: "other"}
    done = subprocess.run(
        ["sh", "-c", words, "kit-observe", vm.folder, IMAGE, "compose"], env=environ, capture_output=True, check=True
    )
    assert parse(host(1), done.stdout.decode()).engine == "26.1.5"
    assert vm.stub.requests == []


def test_a_context_is_left_to_the_client(vm: ShortMachine) -> None:
    with vm.engine() as state:
        state["described"] = True
    (vm._home / ".docker/config.json").write_text('{"currentContext": "rootless"}')
    assert vm.facts().engine == "26.1.5"
    assert vm.stub.requests == []


@pytest.mark.parametrize("text", ["exit 1", "echo Segmentation fault"])
def test_a_plugin_that_does_not_start(vm: ShortMachine, text: str) -> None:
    vm.plugin.write_text(f"#!/bin/sh\n{text}\n")
    assert (vm.facts().engine, vm.facts().compose) == ("26.1.5", None)


def test_a_container_of_compose_shows_that_the_plugin_works(vm: ShortMachine) -> None:
    vm.plugin.write_text(f"#!/bin/sh\ntouch {vm.root}-started\n")
    vm.container("one", cluster=vm.cluster)
    with vm.engine() as state:
        state["containers"][0]["labels"]["com.docker.compose.version"] = "2.40.0"
    assert vm.facts().compose == "2.40.0"
    assert not Path(f"{vm.root}-started").exists()
    vm.plugin.unlink()
    assert vm.facts().compose is None


def test_the_look_waits_for_compose(vm: ShortMachine) -> None:
    vm.put("f", b"")
    file = Path(vm.root, f".lock/{vm.cluster}.compose")
    file.parent.mkdir(mode=0o700)
    file.touch()
    folder = os.open(file, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    release = threading.Timer(0.7, fcntl.flock, (folder, fcntl.LOCK_UN))
    start = time.monotonic()
    release.start()
    assert vm.facts().engine
    assert time.monotonic() - start > 0.7
    os.close(folder)


def test_runs_that_go_on(vm: ShortMachine) -> None:
    ids = [f"20261121-101500-000{letter}" for letter in "abc"]
    with contextlib.ExitStack() as stack:
        for name, watched, ended in ((ids[0], True, False), (ids[1], False, False), (ids[2], True, True)):
            run = Path(vm.folder, "var/runs", name)
            run.mkdir(parents=True)
            (run / "record.json").write_text("{}")
            lock = stack.enter_context((run / "lock").open("w"))
            if watched:
                fcntl.flock(lock, fcntl.LOCK_EX)
            if ended:
                (run / "end.json").write_text("{}")
        assert vm.facts().living == (ids[0],)


def test_names_of_other_kinds_than_files_are_left_out(vm: ShortMachine) -> None:
    vm.put("f", b"", "600")
    Path(vm.folder, "link").symlink_to("f")
    Path(vm.folder, "folder").mkdir()
    facts = vm.facts()
    assert (dict(facts.modes), set(facts.files)) == ({"f": "600"}, {"f"})


@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("ip"), reason="needs ip of iproute2")
def test_the_kernel_shows_what_programs_show(vm: ShortMachine) -> None:
    def printed(*argv: str) -> list[str]:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()

    with vm.listener() as (address, port):
        tcp = Path("/proc/net/tcp").read_text().splitlines()[1:]
        listeners = {line.split()[1] for line in tcp if line.split()[3] == "0A"}
        assert set(kernel.listening()) == listeners
        assert f"{address}:{port}" in vm.facts().listening
    assert interfaces_of(kernel.addresses()) == interfaces_of(printed("ip", "-4", "-o", "addr", "show"))
    devices = [line.split()[line.split().index("dev") + 1] for line in printed("ip", "-4", "route", "show", "default")]
    assert [line.split()[-1] for line in kernel.default_routes()] == devices


def test_both_ways_report_the_same(vm: ShortMachine) -> None:
    """The system is the machine's: the tests of the contract compare the rest."""
    by_python = vm.facts()
    (vm._path / "python3").unlink()
    with vm.engine() as state:
        state["described"] = True
    by_client = vm.facts()

    def system(facts: HostFacts) -> tuple[object, ...]:
        return facts.arch, facts.cores, facts.memory_mib, facts.os, facts.engine, facts.compose, facts.image_id

    assert system(by_python) == system(by_client)
    assert (by_python.python is not None, by_client.python) == (True, None)
