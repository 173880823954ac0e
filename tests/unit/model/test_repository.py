"""Tests what git+URL@REF means, and that a login in it is neither shown nor stored."""

from __future__ import annotations

import pytest

from kit.model.repository import masked, repository, without_login


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


@pytest.mark.parametrize(
    ("text", "url", "ref"),
    [
        ("git+https://example.com/code.git@v1", "https://example.com/code.git", "v1"),
        ("git+https://example.com/code.git", "https://example.com/code.git", ""),
        ("git+https://me:p@ss@example.com/code", "https://me:p@ss@example.com/code", ""),
        ("git+https://token@example.com/code@feature/x", "https://token@example.com/code", "feature/x"),
        ("git+ssh://git@example.com:22/code@v1", "ssh://git@example.com:22/code", "v1"),
        ("git+git@example.com:team/code.git@v1", "git@example.com:team/code.git", "v1"),
        ("git+git@example.com:team/code.git", "git@example.com:team/code.git", ""),
        ("git+/srv/code@v1", "/srv/code", "v1"),
        ("git+file:///srv/code", "file:///srv/code", ""),
    ],
)
def test_the_parts(text: str, url: str, ref: str) -> None:
    source = repository(text)
    assert (source.url, source.ref) == (url, ref)
    assert source.shown == f"git+{without_login(url)}" + (f"@{ref}" if ref else "")


@pytest.mark.parametrize(
    "text",
    ["git+", "git+code", "git+./code", "git+https://example.com", "git+/a@", "git+/@v1", "git+/a@-x", "git+-a:b",
     "git+ext::sh", "git+/a b", "git+transport::/x"],
)  # fmt: skip
def test_what_is_no_repository(text: str) -> None:
    with pytest.raises(ValueError, match=r"looks like no|has an @"):
        repository(text)


def test_the_login_in_a_message() -> None:
    url = "https://me:secret@example.com/code"
    text = f"fatal: unable to access '{url}/': me:secret@example.com, secret"
    assert masked(text, url) == "fatal: unable to access 'https://example.com/code/': example.com, ***"
    assert masked("no secret", "https://example.com/code") == "no secret"
