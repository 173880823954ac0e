"""Every page of help, as it is printed. After a change that is meant: `KIT_UPDATE_GOLDEN=1 pytest tests/unit/cli`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.cli.help import WIDTH
from kit.cli.main import main
from kit.cli.verbs.table import VERBS

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGES = [[], ["bench"], ["data"], ["image"], ["lab"], ["lock"], *([*verb.words] for verb in VERBS)]


@pytest.mark.parametrize("path", PAGES, ids=[" ".join(page) or "kit" for page in PAGES])
def test_help(path: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"], environ={}) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(len(line) for line in out.splitlines()) <= WIDTH
    golden = HERE / "help" / f"{'-'.join(['kit', *path])}.txt"
    if os.environ.get("KIT_UPDATE_GOLDEN"):
        golden.write_text(out)
    assert out == golden.read_text()


def test_every_page_of_help_has_a_verb() -> None:
    pages = {f"{'-'.join(['kit', *page])}.txt" for page in PAGES}
    assert {path.name for path in (HERE / "help").iterdir()} == pages


def test_the_reference_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "docs-cli", "--check"], check=False, timeout=60)
    assert done.returncode == 0, "docs/cli.md is stale: run scripts/docs-cli"
