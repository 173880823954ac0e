"""The kit.yaml that kit tune changes: which settings are tune's, which are the user's, and the new text."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from kit.config import edit, settings
from kit.config.yaml import load_spec
from kit.model.spec import ClusterSpec
from kit.model.tune import Kept, Setting
from kit.model.values import replace
from kit.plan.tune import candidates as rules
from kit.plan.tune import network as networks
from kit.remote.tune.wire import read_text


class TunedFile(Struct, frozen=True, kw_only=True):
    """`text` is the file's content, `owned` the settings that tune wrote, `network` its value ('auto' if missing).

    `theirs` are mpirun's arguments that the user chose, here or by a variable. `force` also changes the user's
    settings. `overridden` has the values of variables that the next run uses in place of the file's.
    """

    path: Path
    text: str
    owned: frozenset[str]
    theirs: tuple[str, ...]
    network: str
    force: bool
    overridden: Mapping[str, str]

    @classmethod
    def read(cls, path: Path, *, spec: ClusterSpec, force: bool) -> TunedFile:
        """Read the file. `spec` is in force. Raises InputErrors now, not after minutes of measuring."""
        text = read_text(path)
        owned = edit.tuned(text)
        args, in_file = spec.mpi.args, load_spec(text, source=str(path))
        overridden = {
            **({"mpi.args": shlex.join(args)} if args != in_file.mpi.args else {}),
            **({"mpi.bind_to": spec.mpi.bind_to} if spec.mpi.bind_to != in_file.mpi.bind_to else {}),
        }
        return cls(
            path=path,
            text=text,
            owned=owned,
            # Under tune's mark are also the words that --force has kept.
            theirs=rules.without_candidates(args) if "mpi.args" in owned and "mpi.args" not in overridden else args,
            network=in_file.network,
            force=force,
            overridden=overridden,
        )

    @property
    def source(self) -> str:
        return str(self.path)

    def value(self, path: str) -> str | None:
        """Return the value of a setting (env.OMP_NUM_THREADS) as text, or None if it is missing."""
        value = edit.value_of(self.text, path, source=self.source)
        if value is None:
            return None
        text = shlex.join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        return networks.canonical(text) if path == "network" else text

    def own(self, path: str) -> str | None:
        """Return the value of a setting if tune wrote it, else None."""
        return self.value(path) if path in self.owned else None

    def effective(self, wanted: Sequence[Setting]) -> tuple[list[Setting], list[str]]:
        """Return the settings that the next run would use, and advice for those that a variable overrides."""
        ignored = [one for one in wanted if self.overridden.get(one.path, one.value) != one.value]
        variables = {path: variable for variable, path in settings.variables().items()}
        advice = [
            f"{variables[one.path]} is '{self.overridden[one.path]}' and overrides {one.path} of kit.yaml, so kit does "
            f"not change that. It would write {one.value}: {one.reason}. Remove the variable and run kit tune again"
            for one in ignored
        ]
        return [one for one in wanted if one not in ignored], advice

    def split(self, wanted: Sequence[Setting]) -> tuple[list[Setting], list[Kept]]:
        """Split the wanted settings into those to write and those where the user's own value stays."""
        changed, kept = [], []
        for setting in wanted:
            current, value = self.value(setting.path), setting.value
            if setting.path == "mpi.args" and self.theirs:
                added = rules.parameters_of(value.split())
                value = shlex.join(rules.with_parameters(self.theirs, list(added.items())))
            if current == value:
                continue
            if current is not None and setting.path not in self.owned and not self.force:
                kept.append(Kept(path=setting.path, value=current, wanted=value, reason=setting.reason))
            else:
                changed.append(replace(setting, value=value))
        return changed, kept

    def changed(self, chosen: Sequence[Setting]) -> tuple[str, str]:
        """Return the text with the settings in it, and a diff. Raises InputError if they do not fit into the file."""
        if not chosen:
            return self.text, ""
        after = edit.edited(self.text, [_entry(setting) for setting in chosen], source=self.source)
        old, new = (text.replace("\r\n", "\n").splitlines(keepends=True) for text in (self.text, after))
        name = self.path.name
        return after, "".join(difflib.unified_diff(old, new, fromfile=name, tofile=f"{name}, tuned", n=2))


def _entry(setting: Setting) -> edit.NewSetting:
    section, _, key = setting.path.rpartition(".")
    return edit.NewSetting(section=section, key=key, value=setting.value, reason=setting.reason)
