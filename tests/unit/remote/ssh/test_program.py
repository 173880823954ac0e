"""A program of several modules arrives as one text, and reads what comes after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kit.remote.ssh import program


def test_modules_import_each_other_and_orders_follow_the_program(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("GREETING = 'it\\'s \"there\" \\\\ ü'\n", encoding="utf-8")
    (tmp_path / "main.py").write_text(
        "import sys\nfrom . import words\nfrom .words import GREETING\n"
        "def main():\n"
        "    assert words.GREETING is GREETING\n"
        "    sys.stdout.buffer.write((GREETING + sys.stdin.readline()).encode())\n"
    )
    text = program.package("one", tmp_path, ("words", "main")) + "sys.modules['one.main'].main()\n"
    done = subprocess.run(
        [sys.executable, *program.ARGV[1:]],
        input=program.packed(text) + b" and an order\n",
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == 'it\'s "there" \\ ü and an order\n'


def test_modules_import_each_other_without_package_as_in_python_3_15(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("GREETING = 'hello'\n")
    (tmp_path / "main.py").write_text("del __package__\nfrom .words import GREETING\n")
    text = program.package("one", tmp_path, ("words", "main"))
    command = [sys.executable, "-W", "error", *program.ARGV[1:]]
    done = subprocess.run(command, input=program.packed(text), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_error_names_the_module(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("def main():\n    raise ValueError\n")
    text = program.package("one", tmp_path, ("main",)) + "sys.modules['one.main'].main()\n"
    done = subprocess.run(
        [sys.executable, *program.ARGV[1:]], input=program.packed(text), capture_output=True, check=False
    )
    assert b'File "one/main.py", line 2, in main' in done.stderr


LOOK = "look at the host: kit ssh gpu1"


@pytest.mark.parametrize(
    ("errors", "code", "message", "hint"),
    [
        (b"", 3, "the probe ended early: exit code 3", LOOK),
        (b"Traceback:\nMemoryError\n \n", 1, "the probe ended early: 'MemoryError'", LOOK),
        (b"", 127, "the probe ended early: exit code 127", program.INSTALL_PYTHON),
        (b"sudo: python3: command not found\n", 1, "python3: command not found", program.INSTALL_PYTHON),
        (b'  File "/usr/lib/python3.8/socket.py", line 9\nMemoryError\n', 1, "ended early: 'MemoryError'", LOOK),
    ],
)
def test_a_program_that_ends_too_early_is_an_error_of_its_host(
    errors: bytes, code: int, message: str, hint: str
) -> None:
    error = program.ended("the probe ended early", "gpu1", errors=errors, code=code)
    assert message in str(error)
    assert (error.host, error.hint) == ("gpu1", hint)
