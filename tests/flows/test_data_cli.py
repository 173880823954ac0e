"""kit data from its words to what it prints, with scripted stagers: exit codes, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.cli.main import main
from kit.cli.session import Session
from tests.fakes.reporter import Remembering
from tests.fakes.staging_hosts import StagingHosts, staging_hosts
from tests.flows.test_data import DONE, PLAN, WHOLE, fill, run_stager


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StagingHosts]:
    with staging_hosts(tmp_path, 2) as machine:
        data = {"images": {"from": "gpu2:/srv/images", "to": "/data/images"}}
        context = machine.context(Remembering(), data=data)
        machine.deploy(context)

        def own(session: Session, _fixed: Any = None) -> Any:
            return machine.context(session.reporter, data=data)

        monkeypatch.setattr(Session, "context", own)
        yield machine


def kit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["data", *words], environ={})
    return code, *capsys.readouterr()


def test_stage(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    hosts.says({"stage": WHOLE})
    code, out, err = kit(capsys, "stage", "--limit", "1gbit")
    assert (code, out) == (
        0,
        "Staged images on 2 hosts: gpu[1-2]: 2 files, 3 kB (2 new or changed) in 1.5 s.\n",
    )
    assert "gpu1: has the data" in err
    (order,) = [one for one in hosts.heard() if one["op"] == "stage"]
    assert order["request"]["limit"] == 125_000_000
    code, out, _ = kit(capsys, "stage", "images", "--json")
    result = json.loads(out)
    assert (code, result["name"], result["hosts"], result["read"]) == (0, "images", ["gpu1", "gpu2"], 3000)


def test_stage_in_the_background(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    hosts.says({"stage": [{"plan": PLAN}]})
    code, out, _ = kit(capsys, "stage", "-d")
    assert code == 0
    assert out.startswith("images is being staged on 2 hosts: gpu[1-2] (2 files, 3 kB, 3 kB to read).\n")


def test_a_lost_host_is_exit_code_4(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    lost = {"lost": {"host": "gpu2", "text": "its disk is full"}}
    hosts.says({"stage": [{"plan": PLAN}, lost, {"done": {**DONE, "hosts": ["gpu1"]}}]})
    code, out, err = kit(capsys, "stage")
    assert code == 4
    assert "Staged images on 1 host: gpu1" in out
    assert "gpu2: images: its disk is full" in err
    assert "when it is back: kit data stage images" in err


def test_a_dry_run(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = kit(capsys, "stage", "--dry-run")
    assert code == 0
    assert out.splitlines()[-2:] == [
        "  gpu[1-2]: would get what is missing",
        "kit read no source, and changed nothing.",
    ]
    hosts.down.add("gpu2")
    code, out, err = kit(capsys, "stage", "--dry-run", "--json")
    (plan,) = json.loads(out)["value"]
    assert (code, plan["hosts"], [*plan["missed"]]) == (4, ["gpu1"], ["gpu2"])
    assert "kit: error: gpu2: no SSH connection" in err


def test_ls(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = kit(capsys, "ls")
    assert code == 0
    assert out.splitlines()[1].split() == ["images", "gpu2:/srv/images", "disk", "0", "of", "2", "not", "staged"]
    hosts.down.add("gpu2")
    code, out, err = kit(capsys, "ls", "--json")
    assert code == 4
    assert json.loads(out)["missed"] == {"gpu2": "no SSH connection"}
    assert "gpu2: no SSH connection" in err


def test_verify(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    good = {"verified": {"files": 2, "bytes": 3000, "wrong": []}}
    for host in ("gpu1", "gpu2"):
        hosts.says({"verify": [good]}, host=host)
    assert kit(capsys, "verify")[:2] == (0, "images: right on gpu[1-2]: 2 files, 3 kB\n")
    hosts.says({"verify": [{"verified": {"files": 2, "wrong": [{"file": "a", "why": "size"}]}}]}, host="gpu2")
    code, out, _ = kit(capsys, "verify", "images")
    assert code == 4
    assert out.startswith("gpu2: a has another size\n")


def test_rm(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    fill(hosts)
    code, _, err = kit(capsys, "rm", "images")
    assert (code, "unless you add --yes" in err) == (2, True)
    assert "data is missing" in kit(capsys, "rm")[2]
    code, out, _ = kit(capsys, "rm", "images", "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "kit data rm would delete it from every host.")
    code, out, _ = kit(capsys, "rm", "images", "--yes")
    assert (code, out) == (0, "Deleted images from gpu[1-2].\n")
    assert kit(capsys, "rm", "images", "--yes")[1] == "Nothing to do: no host has images.\n"


def test_stop(hosts: StagingHosts, capsys: pytest.CaptureFixture[str]) -> None:
    assert kit(capsys, "stop", "images")[:2] == (0, "Nothing to do: images is not being staged.\n")
    run_stager(hosts, hosts.context(Remembering(), data={"images": {"from": "gpu2:/srv/images", "to": "/data/images"}}))
    hosts.says({"hello": [{"hello": {"version": 1, "staging": "77", "lead": True}}]})
    code, out, _ = kit(capsys, "stop", "images")
    assert (code, "was stopped. What came is kept" in out) == (0, True)
