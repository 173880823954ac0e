"""What kit setup shows while apt works, and how long it waits."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.model.setup.paths import DOCKER_KEY, NVIDIA_KEY
from kit.remote.setup.programs import program
from kit.remote.setup.steps import explained

# Two public keys of OpenPGP, made for these tests by gpg --quick-gen-key, and the fingerprint of the first.
GOOD = base64.b64decode(
    "mDMEawrO8BYJKwYBBAHaRw8BAQdAhuclCCk1Ws/md7d1gjW2Em9lwO8+SukVbfCOtoEOLJW0Bmdvb2RAeIiQBBMWCAA4FiEEVFbs"
    "/sd6RxMqxQhUlYJjBZp9yFEFAmsKzvACGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQlYJjBZp9yFG/EwD+PGAPfstHiAXz"
    "/6BDmrrye3y72VexnD8k26lRWC0Y8qUBAIhW2CQl5SJJldclGW1keQjeCtoNhJWwCGAOtS5+ZgkO"
)
OTHER = base64.b64decode(
    "mDMEawrO8BYJKwYBBAHaRw8BAQdAEU9Yz+gWn1E0X2hU781/NRIbOOBcYl59vZsWVXFDGUG0BmV2aWxAeIiQBBMWCAA4FiEEHc9F"
    "adv19kvtsDFAFbykqNJYRMAFAmsKzvACGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQFbykqNJYRMDX6gEAy/vde37pb7e1"
    "8Ngr5xUWzMmR9rXR6jHMBz/o7Lx/JjEA/j4pJNYrfZMDCFAdLkgIe+B3VdzpSycxfrM94fxZuK8B"
)
# The other key in forms of which gpg shows no public key: a secret key (of 1), and a version that gpg 2 does not know.
SECRET = bytes([0x94, OTHER[1] + 6]) + OTHER[2:53] + b"\0\0\1\1\0\2" + OTHER[53:]
NEWER = OTHER[:2] + b"\6" + OTHER[3:]
PRINT = "5456ECFEC77A47132AC50854958263059A7DC851"


def test_a_module_that_dkms_builds_is_no_installation_that_hangs() -> None:
    for text in ("Configuring nvidia-kernel-dkms (amd64)", "Configuring linux-headers-6.12.118+deb13-amd64 (amd64)"):
        assert explained(text).startswith(f"{text}: dkms may build modules of the kernel")
    for text in ("Configuring dkms (amd64)", "Unpacking nvidia-kernel-dkms (amd64)", "Configuring docker.io (amd64)"):
        assert explained(text) == text


def test_the_engine_has_as_long_to_answer_whatever_the_clock_says(tmp_path: Path) -> None:
    """kit setup may have just installed the service that sets a clock that is wrong by hours: here at each look."""
    asked = tmp_path / "asked"
    stubs = {
        "docker": f"echo x >>{asked}; [ $(wc -l <{asked}) = 3 ]",
        "date": f"echo x >>{tmp_path}/looks; echo $(($(wc -l <{tmp_path}/looks) * 7200))",
        "cut": "echo 5",
        "sleep": ":",
        "start": ":",
    }
    for name, text in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    # A host without systemd, and with a script that starts the engine.
    (tmp_path / "etc" / "init.d").mkdir(parents=True)
    (tmp_path / "start").rename(tmp_path / "etc" / "init.d" / "docker")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KIT_SETUP_ROOT": str(tmp_path)}
    done = subprocess.run(program("start_engine", "start"), env=env, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert asked.read_text() == "x\n" * 3


def test_a_folder_that_kit_made_for_two_files_goes_with_the_last(tmp_path: Path) -> None:
    """Ubuntu 20.04 has no folder for the keys of repositories, and kit may bring two. One file alone has the mark."""

    def run(name: str, *words: str) -> None:
        env = {**os.environ, "KIT_SETUP_ROOT": str(tmp_path)}
        done = subprocess.run(program(name, *words), input=b"x", env=env, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")

    folder = tmp_path / "etc" / "apt" / "keyrings"
    folder.parent.mkdir(parents=True)
    for area, file in (("docker", DOCKER_KEY), ("toolkit", NVIDIA_KEY)):
        run("write", area, file, "644", "1")
    run("restore", DOCKER_KEY)
    assert [path.name for path in folder.iterdir()] == [Path(NVIDIA_KEY).name]
    run("restore", NVIDIA_KEY)
    assert not folder.exists()
    assert folder.parent.exists()


@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
@pytest.mark.parametrize(
    ("keys", "refused"),
    [(GOOD, ""), (OTHER, "1DCF4569DBF5F64BEDB0314015BCA4A8D25844C0"), (GOOD + OTHER, f"{PRINT} and 1DCF4569"),
     (OTHER + GOOD, f"and {PRINT}"), (b"text", "of nothing"), (GOOD + SECRET, f"another key beside {PRINT}"),
     (NEWER + GOOD, f"another key beside {PRINT}")],
    ids=["alone", "another", "before another", "after another", "none", "secret", "version 6"],
)  # fmt: skip
def test_the_wanted_key_of_a_repository_is_alone_in_its_file(tmp_path: Path, keys: bytes, refused: str) -> None:
    """A server that somebody broke into sends the right key, and beside it one that signs other packages."""
    (tmp_path / "served").write_bytes(keys)
    helper = tmp_path / "usr" / "lib" / "apt" / "apt-helper"
    helper.parent.mkdir(parents=True)
    helper.write_text(f'#!/bin/sh\ncp {tmp_path}/served "$5"\n')
    helper.chmod(0o755)
    env = {**os.environ, "KIT_SETUP_ROOT": str(tmp_path)}
    argv = program("key", "docker", "https://example.com/gpg", DOCKER_KEY, PRINT)
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, refused in done.stderr) == (1 if refused else 0, True)
    assert (tmp_path / DOCKER_KEY[1:]).exists() is not bool(refused)
