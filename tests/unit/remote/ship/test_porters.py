"""The connection that carries the bulk of an image or of code."""

from __future__ import annotations

import subprocess

from kit.remote.ship.porters import _CIPHERS


def test_ssh_takes_the_ciphers_the_cheapest_first() -> None:
    # `^` would need OpenSSH 8.1, and RHEL 8 has 8.0.
    assert "^" not in _CIPHERS
    done = subprocess.run(["ssh", "-G", "-o", f"Ciphers={_CIPHERS}", "x"], capture_output=True, text=True, check=True)
    assert f"ciphers {_CIPHERS}" in done.stdout
    assert _CIPHERS.startswith("aes128-gcm@openssh.com,")
