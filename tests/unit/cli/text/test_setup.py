"""The last line of kit setup: what came of it, and what to type next."""

from __future__ import annotations

import pytest

from kit.cli.text.setup import setup
from kit.cli.verbs.values import areas
from kit.model.setup.result import SetupHost, SetupResult


def result(*, changed: bool, undo: bool = False, waiting: tuple[str, ...] = (), compose: str = "2") -> SetupResult:
    hosts = tuple(
        SetupHost(host=f"gpu{n}", status="ok", steps=3 if changed else 0, engine="26", compose=compose, waiting=waiting)
        for n in (1, 2)
    )
    return SetupResult(hosts=hosts, changed=changed, undo=undo, seconds=12.34)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (result(changed=True), "Set up 2 hosts: gpu[1-2] (12.3 s). Next: kit deploy"),
        (result(changed=False), "Nothing to do: 2 hosts: gpu[1-2] are ready for kit deploy."),
        (
            result(changed=True, compose=""),
            "Set up 2 hosts: gpu[1-2] (12.3 s). "
            "Next: kit setup --only docker (gpu[1-2] have no engine with Compose v2)",
        ),
        (
            result(changed=False, compose=""),
            "Nothing to do in these areas. Next: kit setup --only docker (gpu[1-2] have no engine with Compose v2)",
        ),
        (
            result(changed=True, waiting=("the driver",)),
            "Set up 2 hosts: gpu[1-2] (12.3 s). Some need a reboot: kit setup --allow-reboot",
        ),
        (
            result(changed=False, waiting=("the driver",)),
            "Nothing to do without a reboot, which 2 hosts need: kit setup --allow-reboot",
        ),
        (result(changed=True, undo=True), "Undid kit setup on 2 hosts: gpu[1-2] (12.3 s)."),
        (result(changed=False, undo=True), "Nothing to undo on 2 hosts: gpu[1-2]."),
    ],
)
def test_the_last_line(value: SetupResult, text: str) -> None:
    assert setup(value) == text


def test_parts_are_listed_once_and_unknown_ones_refused() -> None:
    assert areas("docker, mtu,docker") == ("docker", "mtu")
    with pytest.raises(ValueError, match="'clock' is not something that kit sets up: write one of docker, driver"):
        areas("docker,clock")
