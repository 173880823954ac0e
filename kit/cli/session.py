"""Session: what a verb's handler gets. It opens contexts, prints results as text or JSON, and asks for confirmation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import SimpleNamespace

    from kit.cli.screen.plain import Progress
    from kit.cli.screen.terminal import Terminal
    from kit.config.settings import Settings
    from kit.flows.context import Context
    from kit.model.spec import ClusterSpec

# The attribute of a flag → the setting of kit.yaml that it replaces.
_OVERRIDES = {
    "name": "name",
    "network": "network",
    "orchestrator": "orchestrator",
    "builder": "builder",
    "registry": "registry",
    "ssh_port": "ssh_port",
    "ssh_user": "ssh.user",
    "ssh_key": "ssh.key",
    "code": "code",
    "mtu": "setup.mtu",
    "hugepages": "setup.hugepages",
}


class Session(Struct, frozen=True, kw_only=True):
    args: SimpleNamespace
    terminal: Terminal
    reporter: Progress
    environ: Mapping[str, str]
    # By path. A pipe such as that of kit --hosts <(COMMAND) is empty when it is read again.
    _texts: dict[Path, str | None] = {}
    _warnings: set[str] = set()

    @property
    def json(self) -> bool:
        return bool(self.args.output == "json")

    @property
    def folder(self) -> Path:
        from kit.config.misplaced import refuse_file  # noqa: PLC0415
        from kit.config.paths import expanded, whole  # noqa: PLC0415

        # A shell leaves the ~ of --folder=~/x alone.
        folder = expanded(self.args.folder or os.curdir)
        whole(folder)
        refuse_file(folder)
        return folder

    @property
    def environ_of_files(self) -> Mapping[str, str]:
        """Return the environment for reading both files: with -C, without KIT_HOSTS and KIT_CONFIG."""
        from kit.config.paths import environ_of_files  # noqa: PLC0415

        return environ_of_files(self.args.folder, self.environ)

    def overrides(self) -> dict[str, object]:
        """Return the values of flags by the setting that they replace: `ssh.user`."""
        given = vars(self.args)
        values = {place: given[flag] for flag, place in _OVERRIDES.items() if given.get(flag) is not None}
        return values | ({"ssh.keep": False} if given.get("no_keep") else {})

    def settings(self, fixed: Mapping[str, object] | None = None) -> Settings:
        """Read both files. `fixed` are settings that this verb needs, whatever flags and kit.yaml say."""
        from kit.config import settings  # noqa: PLC0415  (YAML: only for verbs that need it)

        values = settings.load(
            self.folder,
            hosts_flag=self.args.hosts_file,
            config_flag=self.args.config_file,
            flags=self.overrides() | dict(fixed or {}),
            environ=self.environ_of_files,
            text_of=self._text_of,
        )
        self._warn_of_kit_yaml_above()
        return values

    def context(self, fixed: Mapping[str, object] | None = None) -> Context:
        from kit.flows.context import open_context  # noqa: PLC0415  (fabric)

        settings = self.settings(fixed)
        return open_context(settings.inventory, settings.spec, settings.folder, self.reporter)

    def spec(self) -> ClusterSpec:
        """Return kit.yaml with flags and environment applied, without reading the hosts file."""
        from kit.config import settings  # noqa: PLC0415

        spec = settings.load_spec(
            self.folder,
            config_flag=self.args.config_file,
            flags=self.overrides(),
            environ=self.environ_of_files,
            text_of=self._text_of,
        )
        self._warn_of_kit_yaml_above()
        return spec

    def _text_of(self, path: Path) -> str | None:
        """Return the text of a file as it was when this command first read it, or None if it was missing."""
        from kit.config.text import text_of  # noqa: PLC0415

        if path not in self._texts:
            self._texts[path] = text_of(path)
        return self._texts[path]

    def _warn_of_kit_yaml_above(self) -> None:
        """Warn once if kit uses the defaults in a folder of a project."""
        from kit.config import settings  # noqa: PLC0415
        from kit.events import Warned  # noqa: PLC0415

        command = settings.passed_over(self.folder, config_flag=self.args.config_file, environ=self.environ_of_files)
        if command and command not in self._warnings:
            self._warnings.add(command)
            text = "there is no kit.yaml in this folder, so kit uses the defaults; the folder above has one"
            self.reporter.report(Warned(text=text, hint=f"to use it: {command}"))

    def confirms(self, question: str | Callable[[], str]) -> bool:
        """Return whether you agree. --yes and --json agree, and so does a kit without a terminal."""
        if self.args.yes or self.json:
            return True
        self.close()
        return self.terminal.agrees(question if isinstance(question, str) else question())

    def needs_yes(self) -> None:
        """Raise InputError if kit could not ask, and --yes is missing."""
        if not self.args.yes and (self.json or not self.terminal.interactive):
            why = "with --json" if self.json else "without a terminal"
            raise InputError(
                f"kit removes nothing {why} unless you add --yes", hint="see first what it would do: --dry-run"
            )

    def consent(self, question: str) -> bool:
        """Ask before kit installs something. --yes agrees; without it and without a terminal, the answer is no."""
        if self.args.yes:
            return True
        self.close()
        return self.terminal.interactive and not self.json and self.terminal.agrees(question)

    def remember(self, runs: Iterable[str]) -> None:
        """Keep these ids of runs for completion."""
        from kit.cli import recent  # noqa: PLC0415

        recent.remember(runs, self.folder, self.environ)

    def close(self) -> None:
        """End the progress: remove bars from the screen."""
        self.reporter.close()

    def show(self, kind: str, value: Any, text: str | Callable[[Any], str] = "") -> None:
        """End the progress, and print the result: `value` as a JSON object of this kind, `text`, or `text(value)`."""
        self.close()
        if self.json:
            self.emit(kind, value)
            return
        shown = text if isinstance(text, str) else text(value)
        if shown:
            self.terminal.say(shown)

    def fitted(self, text: Callable[..., str]) -> Callable[[Any], str]:
        """Return `text` with the terminal's width as its `width`, for `show`.

        The width is None, and `text` cuts nothing, if stdout is no terminal, and with --verbose.
        """
        return lambda value: text(value, width=self.width)

    @property
    def width(self) -> int | None:
        """The columns that a table may take, or None for any number."""
        return None if self.args.verbose else self.terminal.width

    @property
    def told_width(self) -> int | None:
        """The same for what is printed on stderr."""
        return None if self.args.verbose else self.terminal.told_width

    def emit(self, kind: str, value: Any) -> None:
        """Print one JSON object while the work continues. Without --json, print nothing."""
        if self.json:
            from kit.cli.screen.jsonout import line  # noqa: PLC0415

            self.terminal.say(line(kind, value, escaped=not self.terminal.writes_unicode))
