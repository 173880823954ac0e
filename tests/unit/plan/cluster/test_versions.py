"""What kit says where another kit deployed the cluster."""

from __future__ import annotations

import pytest

from kit import __version__
from kit.plan.cluster.versions import other_defaults, step_back


@pytest.mark.parametrize(
    ("deployed", "text"),
    [
        ("0.2.0", ""),
        ("", "; an older kit deployed, and kit 0.2.0 may have other defaults"),
        ("0.1.0", "; kit 0.1.0 deployed, and kit 0.2.0 may have other defaults"),
        ("0.10.0", "; kit 0.10.0 deployed, and kit 0.2.0 may have other defaults"),
        ("\x1b[2J", "; another kit deployed, and kit 0.2.0 may have other defaults"),
    ],
)
def test_settings_may_differ_because_of_another_kit(deployed: str, text: str) -> None:
    assert other_defaults(deployed, "0.2.0") == text


@pytest.mark.parametrize("deployed", ["", "0.1.9", "0.2.0", "0.2", "odd", "9" * 5000 + ".0.0", "\x1b[2J"])
def test_a_deploy_that_goes_forward(deployed: str) -> None:
    assert step_back(deployed, "0.2.0") is None


@pytest.mark.parametrize("deployed", ["0.2.1", "0.10.0", "1.0.0"])
def test_a_deploy_that_goes_back(deployed: str) -> None:
    text = f"kit {deployed} deployed this cluster, and kit 0.2.0 goes back to its own older image and defaults"
    assert step_back(deployed, "0.2.0") == text


def test_the_version_of_this_kit_is_one_that_can_be_compared() -> None:
    assert step_back("999.0.0") is not None
    assert step_back(__version__) is None
