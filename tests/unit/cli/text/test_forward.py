"""Forwarded ports as text."""

from __future__ import annotations

import pytest

from kit.cli.text.forward import forwards
from kit.model.forward import Forwarded, Forwards


@pytest.mark.parametrize(
    ("address", "more"),
    [
        ("127.0.0.1", ""),
        ("::1", ""),
        ("localhost", ""),
        ("10.0.0.5", " of 10.0.0.5"),
        ("", ": nothing listens there yet"),
    ],
)
def test_an_address_that_is_no_loopback_is_named(address: str, more: str) -> None:
    value = Forwards(host="gpu1", ports=(Forwarded(local=6006, port=8888, address=address),))
    assert forwards(value) == f"127.0.0.1:6006 → gpu1, port 8888{more}"
