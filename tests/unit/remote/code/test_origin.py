"""The address of a repository is shown and stored, and a login in it is not."""

from __future__ import annotations

import pytest

from kit.remote.code.origin import without_login


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://example.com/team/code.git", "https://example.com/team/code.git"),
        ("https://token@example.com/code", "https://example.com/code"),
        ("https://me:to%40ken@example.com/code", "https://example.com/code"),
        ("https://me:p@ss@example.com/code@v1", "https://example.com/code@v1"),
        ("HTTP://me@example.com", "HTTP://example.com"),
        ("ssh://git@example.com:22/code", "ssh://git@example.com:22/code"),
        ("ssh://git:secret@example.com/code", "ssh://git@example.com/code"),
        ("git@example.com:team/code.git", "git@example.com:team/code.git"),
        ("/srv/code@home.git", "/srv/code@home.git"),
        ("https://example.com/code@v1", "https://example.com/code@v1"),
        ("", ""),
    ],
)
def test_a_login_is_removed(url: str, kept: str) -> None:
    assert without_login(url) == kept
