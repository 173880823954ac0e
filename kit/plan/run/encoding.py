"""What the words of a run must be: text, not too long, and no variables of kit.

Bytes that are not UTF-8 are no text, and JSON cannot carry them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.errors import InputError
from kit.model import names
from kit.model.launch import RunRequest
from kit.plan.run import elastic, mpi

# Open MPI gives each rank all words in one variable, OMPI_ARGV. The kernel starts no program with a variable of 128 KiB
# or more. The rest is for the names of the programs around the rank.
_MOST_BYTES = (128 << 10) - (4 << 10)
# No mpirun starts the ranks of an elastic run: kit-elastic, kit-worker and kit-rank have each word for itself. The
# kernel accepts one of less than 128 KiB with its final NUL, and 2 MiB for all words and variables, each with a
# pointer. Half of that is for the variables.
_MOST_OF_WORD = (128 << 10) - 1
_MOST_ELASTIC = 1 << 20
_PER_WORD = 9
_HINT = "write its words to a file of the run's code, and let the program read that"


def check(request: RunRequest, command: Sequence[str]) -> None:
    """Raise InputError for words of a run that are not UTF-8 or too long, and for -x of a variable that kit sets."""
    _check_words(request, command)
    for name, _ in request.env:
        if name == names.CHECKPOINTS_VARIABLE:
            raise InputError(f"-x {name}: kit sets this variable", hint="write: --checkpoint-dir DIR")
    _check_names(request, names.OWN_VARIABLES)


def check_local(request: RunRequest, command: Sequence[str], env: Mapping[str, str], *, code: bool) -> None:
    """Do what `check` does, for `kit local`. `env` are the variables that this machine's engine takes as JSON.

    `code`: the run has code.
    """
    _check_words(request, command)
    # There is no --checkpoint-dir, so -x may choose that folder. The others of a cluster are not set here.
    _check_names(request, ("KIT_RUN", "KIT_OUTPUT_DIR", *([mpi.WORK_VARIABLE] if code else [])))
    for name, value in env.items():
        _check(f"the value of {name}", value, f"leave out -x {name}, or set the variable in a script of the run's code")


def _check_words(request: RunRequest, command: Sequence[str]) -> None:
    if request.launcher == elastic.LAUNCHER:
        _check_elastic(command)
    elif (size := _bytes(" ".join(mpi.words_of(command)))) > _MOST_BYTES:
        raise InputError(
            f"the command is too long: it has {size} bytes, and a run can have at most {_MOST_BYTES >> 10} KiB",
            hint=_HINT,
        )
    for word in command:
        _check("a word of the command", word, "rename the file; or write the word in a script of the run's code")
    _check("--workdir", request.workdir, "rename the folder")
    for name, _ in request.env:
        _check("the name of a variable", name, "use another name; a value may have any bytes")


def _check_elastic(command: Sequence[str]) -> None:
    sizes = [_bytes(word) for word in command]
    if (longest := max(sizes, default=0)) > _MOST_OF_WORD:
        raise InputError(
            f"a word of the command is too long: it has {longest} bytes, and less than 128 KiB are possible",
            hint="write the word to a file of the run's code, and let the program read that",
        )
    if (size := sum(sizes) + _PER_WORD * len(sizes)) > _MOST_ELASTIC:
        raise InputError(
            f"the command is too long: with {_PER_WORD} bytes for the end of each word, it has {size} bytes, and an "
            f"elastic run can have at most {_MOST_ELASTIC >> 20} MiB",
            hint=_HINT,
        )


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _check_names(request: RunRequest, own: Sequence[str]) -> None:
    for name, _ in request.env:
        if name in own:
            raise InputError(f"-x {name}: kit sets this variable", hint=f"remove -x {name}")


def shown(value: object) -> object:
    """Return a value of a record with `\\udce9` in place of each byte that is not UTF-8, such as in a folder's name."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: shown(part) for name, part in value.items()}
    return [shown(part) for part in value] if isinstance(value, (list, tuple)) else value


def _check(what: str, word: str, hint: str) -> None:
    if shown(word) != word:
        raise InputError(f"{what} is not UTF-8: {shown(word)}", hint=hint)
