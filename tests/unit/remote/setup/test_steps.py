"""What kit setup shows while apt works."""

from __future__ import annotations

from kit.remote.setup.steps import explained


def test_a_module_that_dkms_builds_is_no_installation_that_hangs() -> None:
    for text in ("Configuring nvidia-kernel-dkms (amd64)", "Configuring linux-headers-6.12.118+deb13-amd64 (amd64)"):
        assert explained(text).startswith(f"{text}: dkms may build modules of the kernel")
    for text in ("Configuring dkms (amd64)", "Unpacking nvidia-kernel-dkms (amd64)", "Configuring docker.io (amd64)"):
        assert explained(text) == text
