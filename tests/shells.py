"""Real shells on a pseudo-terminal, with kit's completion loaded: type a line, press Tab and Enter, see the words."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ARGV = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "fish": ("fish", "--no-config", "-i"),
}
LOAD = {
    "bash": 'eval "$(kit completion bash)"',
    "zsh": 'autoload -U compinit; compinit -u; eval "$(kit completion zsh)"',
    "fish": "kit completion fish | source",
}
# Completion is kit's own; any other verb prints its words instead of running.
KIT = """#!/bin/sh
case $1 in
  completion | __complete) exec {python} -m kit.cli.main "$@" ;;
esac
printf '<%s>' "$@"
echo '<end>'
"""


def typed(shell: str, line: str, folder: Path, *, patience_s: float = 60.0) -> list[str]:
    """Type the line in `folder`, then Tab and Enter. Return the words that kit gets."""
    home = folder / "home"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    kit = home / "bin" / "kit"
    kit.write_text(KIT.format(python=sys.executable))
    kit.chmod(0o755)
    environ = {
        "HOME": str(home),
        "PATH": f"{kit.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "PS1": "> ",
    }
    number, terminal = pty.fork()
    if number == 0:
        try:
            os.chdir(folder)
            os.execvpe(ARGV[shell][0], ARGV[shell], environ)  # noqa: S606  (it is the shell)
        finally:
            os._exit(127)
    try:
        # In two words, so that the echo of this line is not the answer to it.
        os.write(terminal, f'{LOAD[shell]}; echo loa""ded\n'.encode())
        _read(terminal, r"loaded", patience_s)
        os.write(terminal, f"{line}\t\n".encode())
        return re.findall(r"<([^<>]*)>", _read(terminal, r"(?:<[^<>]*>)+<end>", patience_s))[:-1]
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        os.close(terminal)


def _read(terminal: int, pattern: str, patience_s: float) -> str:
    """Read until the pattern comes, and return its text."""
    text, end = "", time.monotonic() + patience_s
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        text += os.read(terminal, 65536).decode(errors="replace")
        match = re.search(pattern, text)
        if match:
            return match[0]
    raise AssertionError(f"no {pattern} within {patience_s} s: {text!r}")


def cases(folder: Path) -> Sequence[tuple[str, list[str]]]:
    """Write a hosts file, and return lines with the words that they become."""
    (folder / "hosts").write_text("10.0.0.1 name=alpha1\n10.0.0.2 name=beta1\n")
    (folder / "train.py").write_text("")
    for other in (folder / "my vms", folder / "home" / "vms"):
        other.mkdir(parents=True)
        (other / "hosts").write_text("10.0.0.3 name=gamma1\n")
    return [
        ("kit depl", ["deploy"]),
        ("kit run --over", ["run", "--oversubscribe"]),
        ("kit run --retry-on l", ["run", "--retry-on", "lost-host"]),
        ("kit run --retry-on=l", ["run", "--retry-on=lost-host"]),
        ("kit run -x A=1 --over", ["run", "-x", "A=1", "--oversubscribe"]),
        ("kit run -x A= -H alpha1,", ["run", "-x", "A=", "-H", "alpha1,beta1"]),
        (
            "kit run --code git+https://example.com/a:b -H be",
            ["run", "--code", "git+https://example.com/a:b", "-H", "beta1"],
        ),
        ("kit ssh be", ["ssh", "beta1"]),
        ("kit run -H alpha1,", ["run", "-H", "alpha1,beta1"]),
        ("kit run python tr", ["run", "python", "train.py"]),
        ("kit --hosts=tr", ["--hosts=train.py"]),
        ("kit -C 'my vms' ssh ga", ["-C", "my vms", "ssh", "gamma1"]),
        ("kit -C my\\ vms ssh ga", ["-C", "my vms", "ssh", "gamma1"]),
        ("kit -C $HOME/vms ssh ga", ["-C", f"{folder}/home/vms", "ssh", "gamma1"]),
        ("~/bin/kit ssh be", ["ssh", "beta1"]),
        ("kit bench --preset kv", ["bench", "--preset", "kvstore"]),
    ]
