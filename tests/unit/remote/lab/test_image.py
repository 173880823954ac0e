"""The images of the lab's hosts."""

from __future__ import annotations

import pytest

from kit.plan import lab as plan
from kit.remote.lab import image


@pytest.mark.parametrize("system", plan.SYSTEMS)
def test_a_bare_host_starts_from_its_system_and_shares_what_others_do_first(system: str) -> None:
    content = image.bare_content(system, plan.SYSTEMS[system])
    assert f"\nFROM {plan.SYSTEMS[system]}\n" in content.files["Dockerfile"].decode()
    assert content.files["prepare"] == image.content().files["prepare"]
    assert {"boot", "link-rate"} <= content.executables & content.files.keys()
    assert "docker.io" not in content.files["Dockerfile"].decode()
    assert content.tag.startswith(f"kit-lab:bare-{system}-")
