"""kit ssh: each word of a command reaches the far side as it was typed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest

from kit.flows.cluster import ssh as ssh_flow
from tests.contract.transport_contract import ODD
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering

SHOW = 'for one; do printf "%s\\0" "$one"; done'


@pytest.fixture
def argv(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    words: list[str] = []
    monkeypatch.setattr(ssh_flow, "replace_process", words.extend)
    return words


def ssh(command: Sequence[str], *, tty: bool = False) -> None:
    ssh_flow.ssh(Fleet(2).context(Remembering()), "gpu2", command, tty=tty)


def test_the_far_shell_sees_each_word_as_it_was_typed(argv: list[str]) -> None:
    ssh(["sh", "-c", SHOW, "sh", *ODD])
    # sshd gives the last word to the login's shell.
    assert argv[-2] == "10.0.0.2"
    done = subprocess.run(["sh", "-c", argv[-1]], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == ODD


def test_a_template_of_docker_arrives_whole(argv: list[str]) -> None:
    ssh(["docker", "info", "--format", "{{.Name}} {{.Driver}}"])
    assert argv[-1] == "docker info --format '{{.Name}} {{.Driver}}'"


def test_without_a_command_there_is_a_login_shell(argv: list[str]) -> None:
    ssh([], tty=True)
    assert argv[-2:] == ["--", "10.0.0.2"]
    assert "-t" in argv
