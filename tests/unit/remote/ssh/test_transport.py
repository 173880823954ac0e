"""The text of a command for the login shell of a VM."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest

from kit.remote.results import far
from kit.remote.ssh.transport import BEGUN, CSH, as_root, fenced, quoted

SHELLS = [name for name in ("sh", "dash", "bash", "zsh", "fish") if shutil.which(name)]
WORDS = (
    "plain", "", "two words", "it's", 'a "b"', "\\", "\\\\", "a\\b", "\\'", "'\\", "\\\\'x", "\\n \\t", "end\\",
    "$HOME `id` \\$x",
    "'\\''", "line\nbreak\\\n", "*?[a]{b}~", "é\\é", "-n", "%s\\0", "\\x41", "(id)", "#",
)  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_reads_every_word(shell: str) -> None:
    text = quoted(["printf", "%s\\0", *WORDS])
    done = subprocess.run([shell, "-c", text], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().split("\0")[:-1] == list(WORDS)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_runs_a_program_with_backslashes(shell: str) -> None:
    program = r"""import sys; print('\\', "it's\n\t", r'\x', sys.argv[1:])"""
    argv = ["python3", "-c", program, r"\\a\'b"]
    # Not `as_root`, which needs root or sudo here.
    done = subprocess.run([shell, "-c", quoted(argv)], capture_output=True, check=True)
    assert done.stdout == subprocess.run(argv, capture_output=True, check=True).stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("word", ["two\nlines", "a!b", "a\\b"])
def test_csh_ends_before_it_runs_what_it_reads_differently(shell: str, word: str) -> None:
    """csh sets `shell`, and ends a quoted word at a newline. The other shells run the command."""
    text = fenced(["echo", word])
    for value in (None, "/bin/bash", "/usr/bin/fish"):
        environment = os.environ | ({"shell": value} if value else {})
        begun = subprocess.run([shell, "-c", text], input=b"", capture_output=True, check=False, env=environment)
        assert (begun.returncode, begun.stderr) == (255, BEGUN)
    as_csh = os.environ | {"shell": "/bin/tcsh"}
    ended = subprocess.run([shell, "-c", text], input=b"", capture_output=True, check=False, env=as_csh)
    assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (-9, b"", f"{CSH}\n")


def test_words_without_backslashes_stay_as_they_were() -> None:
    argv = ["a", "it's", "two words", ""]
    assert quoted(argv) == shlex.join(argv)


def test_the_text_of_the_longest_program_is_short_enough() -> None:
    """Linux takes 128 KiB in one argument, and sshd passes the whole text as one."""
    text = as_root(far.argv("list"))
    assert len(text.encode()) < 64 << 10
    # The first line is for csh.
    assert shlex.split(text.partition("\nexec ")[2])[4:] == list(far.argv("list"))
