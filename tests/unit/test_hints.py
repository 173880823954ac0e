"""Commands that hints give: they work for each login that kit supports, and do what the hint says."""

from __future__ import annotations

import re
from pathlib import Path

from kit.plan.doctor.checks import CHECKS, gpu_versions

ROOT = Path(__file__).parents[2]
NEEDS_ROOT = re.compile(r"kit ssh \S+ -- (?:docker|apt-get|snap|dpkg)\b")
# A machine without GPUs builds the image for CPUs, and no host with GPUs uses it.
BUILDS_FIRST = re.compile(r"kit image build(?: &&|, then:?) kit deploy")
# --hosts names a file. -H lists hosts.
LISTS_HOSTS = re.compile(r"kit (?!lab)[a-z -]*--hosts (?!FILE\b|<)\S+")
# Without a number, here or in kit.yaml, kit setup does nothing about these.
NO_NUMBER = re.compile(r"kit setup --only (hugepages(?! --hugepages)|mtu(?! --mtu))\b")


def _in_texts(pattern: re.Pattern[str]) -> list[str]:
    """Return where kit's sources and documents match."""
    files = [*ROOT.glob("kit/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    texts = {file.relative_to(ROOT): file.read_text("utf-8") for file in files}
    return [f"{file}: {hit[0]}" for file, text in texts.items() for hit in pattern.finditer(text)]


def test_commands_that_need_root_have_sudo() -> None:
    """kit becomes root for its own steps. `kit ssh` does not, and the user is often in no group docker."""
    assert _in_texts(NEEDS_ROOT) == []


def test_no_hint_builds_an_image_that_the_hosts_may_not_need() -> None:
    assert _in_texts(BUILDS_FIRST) == []


def test_hosts_are_listed_by_their_own_option() -> None:
    assert _in_texts(LISTS_HOSTS) == []


def test_fixes_of_the_doctor_that_use_kit_setup_change_something() -> None:
    assert [check.id for check in CHECKS if NO_NUMBER.search(check.fix)] == []
    # It keeps each driver that works.
    assert "kit setup --only driver" not in gpu_versions.CHECK.fix
