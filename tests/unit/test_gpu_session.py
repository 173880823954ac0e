"""scripts/gpu-session, with a kit that only records its words. No GPU is here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SESSION = ROOT / "scripts/gpu-session"
# What should fail ends with FAILURE, and all else with 0. A sleep of the session takes no time.
KIT = """\
#!/bin/sh
echo "$*" >>"$(dirname "$0")/log"
case "$*" in *fail.py* | *--idle-gpu*) exit "$FAILURE" ;; esac
"""


def play(folder: Path, *words: str, failure: int) -> tuple[int, str, list[str]]:
    for name, text in (("kit", KIT), ("sleep", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "KIT": str(folder / "kit"), "FAILURE": str(failure)}
    done = subprocess.run([SESSION, *words], env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, (folder / "log").read_text().splitlines()


def test_it_deploys_trains_looks_and_fails(tmp_path: Path) -> None:
    code, text, commands = play(tmp_path, "--python", "/opt/py", "-C", "there", failure=1)
    assert code == 0
    assert "WRONG" not in text
    assert all(command.startswith("-C there ") for command in commands)
    verbs = [command.split()[2] for command in commands]
    assert verbs[:3] == ["deploy", "ps", "run"]
    assert {"top", "metrics", "doctor", "wait", "logs"} < set(verbs)
    assert f"-C there run --code {ROOT}/scripts/gpusession --report-bindings -- /opt/py train.py 3" in commands
    # The session shows each command, and how it ended.
    assert text.count("\n$ kit ") == text.count("\n# exit ") == len(commands)


def test_a_failure_that_does_not_fail_is_wrong(tmp_path: Path) -> None:
    code, text, commands = play(tmp_path, failure=0)
    assert code == 1
    assert text.count("# WRONG: it should have ended with an error") == sum("fail.py" in line for line in commands) + 1


def test_the_failures_are_those_of_the_program() -> None:
    """Without PyTorch, the program's table can only be read."""
    program = (ROOT / "scripts/gpusession/fail.py").read_text()
    session = SESSION.read_text()
    ways = session.partition("for way in ")[2].partition(";")[0].split()
    assert all(f'    "{way}": ' in program for way in [*ways, "shared"])
