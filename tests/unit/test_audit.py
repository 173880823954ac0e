"""scripts/audit: which packages it asks for, and what it does with the answers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TODAY = date(2026, 11, 22)
VULNERABILITY = {"id": "PYSEC-2099-1", "fix_versions": ["3.1.6", "4.0"], "aliases": ["CVE-2099-1"], "description": "x"}
CLEAN = {"dependencies": [{"name": "rich", "version": "15.0.0", "vulns": []}]}


def answer(name: str = "jinja2", version: str = "2.10") -> dict[str, Any]:
    entries = [
        {"name": name, "version": version, "vulns": [VULNERABILITY]},
        {"name": "kit", "skip_reason": "Dependency not found on PyPI"},
    ]
    return {"dependencies": entries, "fixes": []}


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    loader = importlib.machinery.SourceFileLoader("kit_audit", str(ROOT / "scripts" / "audit"))
    spec = importlib.util.spec_from_loader("kit_audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look up their module.
    monkeypatch.setitem(sys.modules, "kit_audit", module)
    loader.exec_module(module)
    return module


def test_it_audits_every_lock(audit: Any) -> None:
    names = {path.relative_to(ROOT).as_posix() for path in audit.LOCKS}
    assert {"requirements/run.txt", "requirements/dev.txt", "images/requirements/tensorflow.txt"} <= names
    assert "requirements/ignored.txt" not in names
    listed = audit.packages(path.read_text() for path in audit.LOCKS)
    assert {("tensorflow-cpu", "2.15.1"), ("torch", "2.13.0"), ("horovod", "0.28.1")} <= set(listed)
    assert len([version for name, version in listed if name == "numpy"]) > 1


def test_each_package_is_in_one_part_and_no_part_has_two_versions(audit: Any) -> None:
    listed = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1")]
    for count in (1, 2, 5):
        lists = audit.parts(listed, count)
        assert sorted(package for part in lists for package in part) == listed
        assert all(len({name for name, _ in part}) == len(part) for part in lists)


def test_a_finding_names_the_versions_that_fix_it(audit: Any) -> None:
    (finding,) = audit.findings(answer())
    assert str(finding) == "jinja2 2.10: PYSEC-2099-1 (fixed in: 3.1.6 or 4.0)"
    odd = answer(name="a\x1b]0;x\x07")
    assert str(audit.findings(odd)[0]).isprintable()


@pytest.mark.parametrize(
    ("line", "ignored"),
    [
        ("PYSEC-2099-1 jinja2 2026-11-22 only in templates that strangers write", True),
        ("CVE-2099-1 jinja2 2026-12-31 the same by its other name", True),
        ("PYSEC-2099-1 jinja2 2026-11-21 it was ignored until yesterday", False),
        ("PYSEC-2099-1 rich 2026-12-31 another package", False),
        ("PYSEC-2099-2 jinja2 2026-12-31 another vulnerability", False),
    ],
)
def test_a_finding_is_ignored_until_a_day(audit: Any, line: str, ignored: bool) -> None:
    left = audit.open_findings(audit.findings(answer()), audit.ignored(f"# why\n\n{line}\n"), TODAY)
    assert (left == []) is ignored


@pytest.mark.parametrize("line", ["PYSEC-2099-1", "PYSEC-2099-1 jinja2 2026-12-31", "PYSEC-2099-1 jinja2 soon because"])
def test_nothing_is_ignored_without_a_day_and_a_reason(audit: Any, line: str) -> None:
    with pytest.raises(ValueError, match=r"write ID PACKAGE|Invalid isoformat"):
        audit.ignored(line)


def test_the_list_of_the_repository_has_a_reason_for_each(audit: Any) -> None:
    assert all(entry.reason for entry in audit.ignored(audit.IGNORED.read_text()))


LISTED = (("a", "1"), ("b", "2"), ("rich", "15.0.0"))


def part(*names: str, vulns: Any = (), skipped: Sequence[str] = ()) -> dict[str, Any]:
    """Return pip-audit's answer about packages."""
    entries: list[dict[str, Any]] = [{"name": name, "version": "1", "vulns": [*vulns]} for name in names]
    return {"dependencies": [*entries, *({"name": name, "skip_reason": "not on PyPI"} for name in skipped)]}


@pytest.mark.parametrize(
    ("canary", "rest", "code", "last"),
    [
        ([], [], (0, 1), "SKIPPED: 0 of 3 locked packages were audited: neither PyPI nor osv.dev answers with known"),
        ([CLEAN], [], (0, 1), "SKIPPED: 0 of 3 locked packages were audited: neither PyPI nor osv.dev answers"),
        ([answer()], [], (0, 1), "SKIPPED: pypi audited 0 of 3 locked packages: no answer within 10 s for 3"),
        ([answer()], [part("a"), part("b", "rich")], (0, 0), "COMPLETE: pypi audited all 3 locked packages"),
        ([answer()], [part("a")], (0, 1), "INCOMPLETE: pypi audited 1 of 3 locked packages: no answer within 10 s for"),
        (
            [answer()],
            [part("a", skipped=["b\x1b]0;x\x07"])],
            (0, 1),
            "INCOMPLETE: pypi audited 1 of 3 locked packages: no answer within 10 s for 1; pypi does not know b]0;x",
        ),
        ([answer()], [part("a", "b", "rich", vulns=[VULNERABILITY])], (1, 1), "COMPLETE: pypi audited all 3"),
        ([answer()], [part("a", vulns=[VULNERABILITY])], (1, 1), "INCOMPLETE: pypi audited 1 of 3 locked packages"),
    ],
    ids=[
        "no network", "an index that knows none", "no part", "clean", "a part", "a package that is not there",
        "a finding", "a finding in a part",
    ],
)  # fmt: skip
def test_the_exit_code_and_the_last_line(  # noqa: PLR0917
    audit: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    canary: list[Any],
    rest: list[Any],
    code: tuple[int, int],
    last: str,
) -> None:
    monkeypatch.setattr(audit, "packages", lambda locks: LISTED)
    monkeypatch.setattr(audit, "ask", lambda lists, service, deadline: canary if lists == [[audit.CANARY]] else rest)
    for argv, expected in zip(([], ["--require"]), code, strict=True):
        assert audit.main(argv) == expected
        printed = capsys.readouterr().err.splitlines()
        assert printed[-1].startswith(f"audit: {last}")
        assert any("PYSEC-2099-1 (fixed in: 3.1.6 or 4.0)" in line for line in printed) is (code[0] == 1)


def test_the_help_says_what_is_required(audit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        audit.main(["--help"])
    printed = capsys.readouterr().out
    assert "--require" in printed
    assert "exit with 1 if any package was not audited" in printed
