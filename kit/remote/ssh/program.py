"""A program of several modules that runs on a VM's own Python: it comes as one text on standard input."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from kit.errors import StepError
from kit.model.answer import beginning

# The command line only reads the program, and orders may come after it.
BOOTSTRAP = "import sys, zlib; r = sys.stdin.buffer; exec(zlib.decompress(r.read(int(r.readline()))))"
ARGV = ("python3", "-Ic", BOOTSTRAP)
INSTALL_PYTHON = "install Python 3.6 or newer on the VM: sudo apt-get install python3 (or: dnf install python3)"
# The exit code of a shell for a program that it does not find.
_NO_PROGRAM = 127


def package(name: str, folder: Path, modules: Sequence[str]) -> str:
    """Return a text of Python that makes each module of a package from its source.

    `modules` are in the order in which they import each other.
    """
    sources = {module: (folder / f"{module}.py").read_text(encoding="utf-8") for module in modules}
    return (
        "import sys, types\n"
        f"top = sys.modules['{name}'] = types.ModuleType('{name}')\n"
        "top.__path__ = []\n"
        f"for name, source in {sources!r}.items():\n"
        f"    made = sys.modules['{name}.' + name] = types.ModuleType('{name}.' + name)\n"
        # Python 3.15 reads this and no longer __package__. To import importlib.machinery would take longer.
        f"    made.__spec__ = type(sys.__spec__)('{name}.' + name, None)\n"
        "    made.__package__ = made.__spec__.parent\n"
        "    setattr(top, name, made)\n"
        f"    exec(compile(source, '{name}/' + name + '.py', 'exec'), made.__dict__)\n"
    )


def packed(text: str) -> bytes:
    """Return what the command line reads: the length of the program, and the program."""
    data = zlib.compress(text.encode(), 9)
    return b"%d\n" % len(data) + data


def ended(what: str, host: str, *, errors: bytes, code: int) -> StepError:
    """Return the error of a program that ended too early: `what` happened, and the last of its `errors`, or its code.

    `errors` is what it wrote to its standard error. The hint says whether the VM lacks Python.
    """
    last = [line for line in errors.splitlines() if line.strip()][-1:]
    cause = beginning(last[0]) if last else f"exit code {code}"
    # A traceback names the files of python3, too, in the lines before.
    missing = code == _NO_PROGRAM or b"python3" in b"".join(last)
    return StepError(
        f"{what}: {cause}", hint=INSTALL_PYTHON if missing else f"look at the host: kit ssh {host}", host=host
    )
