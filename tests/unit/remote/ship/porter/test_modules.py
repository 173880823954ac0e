"""Tests which submodules a commit has, and where git fetches them from."""

from __future__ import annotations

import pytest

from kit.remote.ship.porter.modules import Module, modules, resolved


@pytest.mark.parametrize(
    ("base", "url", "expected"),
    [
        ("https://example.com/team/net.git", "../lib.git", "https://example.com/team/lib.git"),
        ("https://me:token@example.com/team/net.git/", "../../other/lib", "https://me:token@example.com/other/lib"),
        ("https://example.com/team/net", "./lib", "https://example.com/team/net/lib"),
        ("git@example.com:team/net.git", "../lib.git", "git@example.com:team/lib.git"),
        ("git@example.com:net.git", "../lib.git", "git@example.com:lib.git"),
        ("git@example.com:team/net.git", "../../other/lib.git", "git@example.com:other/lib.git"),
        ("/srv/net", "../lib", "/srv/lib"),
        ("/srv/net", "https://example.com/lib", "https://example.com/lib"),
        ("/srv/net", "git@example.com:lib", "git@example.com:lib"),
    ],
)
def test_a_url_that_goes_from_the_repository(base: str, url: str, expected: str) -> None:
    assert resolved(base, url) == expected


def test_submodules_by_path() -> None:
    items = ("100644 aa 0\t.gitmodules", "160000 c1 0\tlib", "160000 c2 0\tz", "100644 bb 0\tz.py", "160000 c3 0\tno")
    listed = "".join(f"{item}\0" for item in items)
    settings = (
        "submodule.a.b.path\nlib\0submodule.a.b.url\n../lib\0submodule.z.url\n/z\0submodule.z.path\nz\0"
        "submodule.z.update\nnone\0submodule.half.path\nno\0core.bare\ntrue\0submodule.branch\nx\0"
    )
    assert modules(listed, settings, "/srv/net") == [
        Module(path="lib", commit="c1", url="/srv/lib"),
        Module(path="no", commit="c3", url=None),
        Module(path="z", commit="c2", url=None),
    ]
    assert modules("", "", "/srv/net") == []
