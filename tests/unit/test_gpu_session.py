"""scripts/gpu-session, with a kit that only records its words. No GPU is here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kit.plan.run.causes import RULES

ROOT = Path(__file__).parents[2]
SESSION = ROOT / "scripts/gpu-session"
PROGRAM = ROOT / "scripts/gpusession/fail.py"
# What a way to fail should print, by the session's own list.
WAYS = re.findall(r"^fails (\w+) '([^']+)'", SESSION.read_text(), re.MULTILINE)
# What should fail prints SAYS and ends with FAILURE, and all else ends with 0. A sleep of the session takes no time.
KIT = """\
#!/bin/sh
echo "$*" >>"$(dirname "$0")/log"
case "$*" in *fail.py* | *--idle-gpu*) echo "$SAYS" && exit "$FAILURE" ;; esac
"""
EVERYTHING = "; ".join(["its GPUs were idle", *(sentence for _, sentence in WAYS)])


def play(folder: Path, *words: str, failure: int, says: str) -> tuple[int, str, list[str]]:
    for name, text in (("kit", KIT), ("sleep", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    given = {"KIT": str(folder / "kit"), "FAILURE": str(failure), "SAYS": says}
    env = {"PATH": f"{folder}:{os.environ['PATH']}", **given}
    done = subprocess.run([SESSION, *words], env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, (folder / "log").read_text().splitlines()


def test_it_deploys_trains_looks_and_fails(tmp_path: Path) -> None:
    code, text, commands = play(tmp_path, "--python", "/opt/py", "-C", "there", failure=1, says=EVERYTHING)
    assert "WRONG" not in text
    assert code == 0
    assert all(command.startswith("-C there ") for command in commands)
    verbs = [command.split()[2] for command in commands]
    assert verbs[:3] == ["deploy", "ps", "run"]
    assert {"top", "metrics", "doctor", "wait", "logs"} < set(verbs)
    assert f"-C there run --code {ROOT}/scripts/gpusession --report-bindings -- /opt/py train.py 3" in commands
    # The session shows each command, and how it ended.
    assert text.count("\n$ kit ") == text.count("\n# exit ") == len(commands)


@pytest.mark.parametrize(("failure", "says"), [(0, EVERYTHING), (1, "No module named 'torch'")])
def test_what_does_not_fail_as_it_should_is_wrong(failure: int, says: str, tmp_path: Path) -> None:
    code, text, _ = play(tmp_path, failure=failure, says=says)
    assert code == 1
    assert text.count("# WRONG: it should have failed with: ") == len(WAYS) + 1


@pytest.mark.parametrize(("way", "sentence"), WAYS)
def test_a_way_to_fail_is_in_the_program_and_has_a_cause_of_kit(way: str, sentence: str) -> None:
    """Without PyTorch, the program can only be read."""
    assert f'    "{way}": ' in PROGRAM.read_text()
    assert any(sentence in rule.text for rule in RULES)
