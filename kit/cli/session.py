"""Session: what a verb's handler is given, with results that print as text or as JSON."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kit.cli.screen.plain import Progress
from kit.cli.screen.terminal import Terminal

if TYPE_CHECKING:
    from kit.config.settings import Settings
    from kit.flows.context import Context
    from kit.model.spec import ClusterSpec
    from kit.remote.run.door import Door

# Flag's attribute → the place in kit.yaml that it goes before.
_OVERRIDES = {
    "name": "name",
    "network": "network",
    "orchestrator": "orchestrator",
    "builder": "builder",
    "registry": "registry",
    "ssh_port": "ssh_port",
    "ssh_user": "ssh.user",
    "ssh_key": "ssh.key",
}


@dataclass(frozen=True, kw_only=True)
class Session:
    args: argparse.Namespace
    terminal: Terminal
    reporter: Progress
    environ: Mapping[str, str]

    @property
    def json(self) -> bool:
        return bool(self.args.output == "json")

    @property
    def folder(self) -> Path:
        return Path(self.args.folder or os.curdir)

    def overrides(self) -> dict[str, object]:
        """What flags say instead of kit.yaml, by dotted place: `ssh.user`."""
        given = vars(self.args)
        return {place: given[flag] for flag, place in _OVERRIDES.items() if given.get(flag) is not None}

    def settings(self) -> Settings:
        from kit.config import settings  # noqa: PLC0415  (YAML: only for verbs that need it)

        return settings.load(
            self.folder,
            hosts_flag=self.args.hosts_file,
            config_flag=self.args.config_file,
            flags=self.overrides(),
            environ=self.environ,
        )

    def context(self) -> Context:
        from kit.flows.context import open_context  # noqa: PLC0415  (fabric)

        found = self.settings()
        return open_context(found.inventory, found.spec, found.folder, self.reporter)

    def dial(self) -> Door | None:
        """The head's launcher, started at a glance at the files, before they are read in full."""
        from kit.flows.run.dial import dial  # noqa: PLC0415

        named = {name: self.args.__dict__.get(name) for name in ("hosts_file", "config_file")}
        flags = self.overrides() | {name: value for name, value in named.items() if value}
        return dial(self.folder, flags=flags, environ=self.environ)

    def spec(self) -> ClusterSpec:
        """kit.yaml with flags and environment laid over it; the hosts file is not asked for."""
        from kit.config import settings  # noqa: PLC0415

        return settings.load_spec(
            self.folder, config_flag=self.args.config_file, flags=self.overrides(), environ=self.environ
        )

    def consent(self, question: str) -> bool:
        """Ask before kit installs something. --yes is a yes; without it and without a terminal, the answer is no."""
        if self.args.yes:
            return True
        self.close()
        return self.terminal.interactive and not self.json and self.terminal.agrees(question)

    def close(self) -> None:
        """The progress is over: take bars off the screen before a result is printed."""
        self.reporter.close()

    def show(self, kind: str, value: Any, text: str) -> None:
        """The result: `value` as one JSON object of this kind, or `text` (nothing when it is empty)."""
        if self.json:
            from kit.cli.screen.jsonout import line  # noqa: PLC0415

            self.terminal.say(line(kind, value))
        elif text:
            self.terminal.say(text)
