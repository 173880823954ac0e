"""The kit.yaml that kit tune changes: what in it is tune's own, what is a person's, and what it would be."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kit.config import edit
from kit.config.yaml import load_spec
from kit.model.tune import Kept, Setting
from kit.plan.tune import candidates as rules
from kit.plan.tune import network as networks
from kit.remote.tune.wire import read_text


@dataclass(frozen=True, kw_only=True)
class TunedFile:
    """`text` as it was read, `owned` the places that tune wrote, `network` what it says of that, 'auto' for nothing.

    `theirs` are those of mpirun's words that a person chose, here or by a variable. `force`: also what a person has set
    is changed.
    """

    path: Path
    text: str
    owned: frozenset[str]
    theirs: tuple[str, ...]
    network: str
    force: bool

    @classmethod
    def read(cls, path: Path, *, args: tuple[str, ...], force: bool) -> TunedFile:
        """`args` are mpirun's words. Raises InputErrors for a file that is wrong: told now, and not after minutes."""
        text = read_text(path)
        owned = edit.tuned(text)
        return cls(
            path=path,
            text=text,
            owned=owned,
            theirs=() if "mpi.args" in owned else args,
            network=load_spec(text, source=str(path)).network,
            force=force,
        )

    @property
    def source(self) -> str:
        return str(self.path)

    def value(self, path: str) -> str | None:
        """What stands at a place (env.OMP_NUM_THREADS), as text; None for nothing."""
        found = edit.value_of(self.text, path, source=self.source)
        if found is None:
            return None
        text = " ".join(map(str, found)) if isinstance(found, list | tuple) else str(found)
        return networks.canonical(text) if path == "network" else text

    def own(self, path: str) -> str | None:
        """As `value`, where tune wrote it."""
        return self.value(path) if path in self.owned else None

    def sorted_out(self, wanted: Sequence[Setting]) -> tuple[list[Setting], list[Kept]]:
        """What to write, and what a person has set otherwise and keeps."""
        changed, kept = [], []
        for setting in wanted:
            there, value = self.value(setting.path), setting.value
            if setting.path == "mpi.args" and self.theirs:
                added = rules.parameters_of(value.split())
                value = " ".join(rules.with_parameters(self.theirs, list(added.items())))
            if there == value:
                continue
            if there is not None and setting.path not in self.owned and not self.force:
                kept.append(Kept(path=setting.path, value=there, wanted=value, reason=setting.reason))
            else:
                changed.append(replace(setting, value=value))
        return changed, kept

    def changed(self, settings: Sequence[Setting]) -> tuple[str, str]:
        """The text with the settings in it, and how it differs. Raises InputError where they cannot be put in."""
        if not settings:
            return self.text, ""
        after = edit.edited(self.text, [_entry(setting) for setting in settings], source=self.source)
        old, new = (text.replace("\r\n", "\n").splitlines(keepends=True) for text in (self.text, after))
        name = self.path.name
        return after, "".join(difflib.unified_diff(old, new, fromfile=name, tofile=f"{name}, tuned", n=2))


def _entry(setting: Setting) -> edit.Entry:
    section, _, key = setting.path.rpartition(".")
    return edit.Entry(section=section, key=key, value=setting.value, reason=setting.reason)
