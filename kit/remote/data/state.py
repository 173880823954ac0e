"""Asks a host which data sets it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kit.errors import StepError
from kit.model.answer import OddAnswer, answer_of, number
from kit.model.data import is_data_folder
from kit.model.datasets import HostData, HostSet
from kit.model.spec import NAME
from kit.model.staging import read_summary
from kit.model.values import replace
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

_STATE_S, _REMOVE_S = 60.0, 3600.0
_MOST_SETS = 1000
# Seconds since 1970.
_LATEST = 2**36
# Lines of one word, and the fields of HostSet.
_FLAGS = ("coming", "running", "dead")
_MODES = ("ro", "rw")
# The kernel's list of mounts has a space, a tab, a newline, a backslash and a # as numbers.
_ESCAPED = re.compile(r"\\(0[0-7]{2}|1[0-7]{2})")


def host_data(transport: Transport, cluster: str, folders: Sequence[str]) -> HostData:
    """Return what a host has in these folders, in the usual places, and on disks that kit.yaml named earlier.

    Raises the error of the host.
    """
    done = transport.run(script("data_state", cluster, *folders), timeout_s=_STATE_S)
    name = transport.host.name
    if done.code != 0:
        raise StepError(
            f"its data sets could not be read: {done.error_text or f'exit {done.code}'}",
            hint=f"look at the host: kit ssh {name}",
            host=name,
        )
    with answer_of(name, "its list of data sets"):
        return parse(done.text, cluster)


def parse(text: str, cluster: str) -> HostData:
    """Return what data_state.sh printed. Raises OddAnswer.

    kit data rm deletes such a folder on all hosts, so a host cannot name any other one.
    """
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise OddAnswer("it has no end", text)
    record, sets, now = "", [], None
    for line in lines[:-1]:
        word, _, rest = line.partition(" ")
        if word == "record":
            record = rest
        elif word == "now":
            now = float(number(rest, most=_LATEST))
        elif word == "set":
            if not is_data_folder(cluster, rest):
                raise OddAnswer("it has a folder that is not of a data set", line)
            sets.append(HostSet(folder=rest))
        elif not sets:
            raise OddAnswer("it begins with no folder", line)
        elif (more := _with(sets[-1], word, rest)) is not None:
            sets[-1] = more
        else:
            raise OddAnswer("it has an unknown line", line)
        if len(sets) > _MOST_SETS:
            raise OddAnswer(f"it has more than {_MOST_SETS} data sets")
    # A folder with a name that kit.yaml cannot have is not kit's.
    return HostData(record=record, sets=tuple(one for one in sets if NAME.fullmatch(one.name)), now=now)


def _with(one: HostSet, word: str, rest: str) -> HostSet | None:
    """Return a data set with what a line says of it, or None for an unknown line."""
    if word == "staged":
        return replace(one, summary=read_summary(rest))
    if word == "mounted":
        mode, _, source = rest.partition(" ")
        source = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), source)
        return replace(one, mounted=True, source=source, write=mode == "rw") if mode in _MODES else None
    flags: dict[str, Any] = {word: True}
    return replace(one, **flags) if word in _FLAGS else None


def remove(transport: Transport, cluster: str, name: str, folders: Sequence[str]) -> bool:
    """Remove a data set from a host. Return False, with nothing removed, if it is being staged."""
    done = transport.run(script("data_remove", cluster, name, *folders), timeout_s=_REMOVE_S)
    if done.code != 0:
        host = transport.host.name
        *_, last = done.error_text.splitlines() or [f"exit {done.code}"]
        raise StepError(f"{name} could not be removed: {last}", hint=f"look at it: kit ssh {host}", host=host)
    return "staging" not in done.text.splitlines()
