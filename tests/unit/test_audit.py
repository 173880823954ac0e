"""scripts/audit: which packages it asks for, and what it does with the answers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator
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


@pytest.mark.parametrize(
    ("canary", "rest", "code", "printed"),
    [
        ([], [], 0, "SKIPPED"),
        ([CLEAN], [], 0, "SKIPPED"),
        ([answer()], [CLEAN] * 4, 0, ""),
        ([answer()], [answer("rich", "15.0.0"), CLEAN], 1, "rich 15.0.0: PYSEC-2099-1 (fixed in: 3.1.6 or 4.0)"),
        ([answer()], [CLEAN], 0, "were not audited within 10 s"),
    ],
    ids=["no network", "an index that knows none", "clean", "a finding", "half of the answers"],
)
def test_the_exit_code(  # noqa: PLR0917
    audit: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    canary: list[Any],
    rest: list[Any],
    code: int,
    printed: str,
) -> None:
    monkeypatch.setattr(audit, "ask", lambda lists, service, deadline: canary if lists == [[audit.CANARY]] else rest)
    assert audit.main() == code
    assert printed in capsys.readouterr().err
