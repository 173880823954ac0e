"""The settings of a verb: flags win over the environment, which wins over kit.yaml, which wins over the defaults.

Reads the two files only. A path in a file is relative to that file's folder; a path in a flag or a variable is relative
to the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from kit.config.document import Document
from kit.config.faults import Override
from kit.config.fields import settings
from kit.config.hosts import parse_hosts
from kit.config.misplaced import (
    command_in,
    file_above,
    refuse_link_to_nowhere,
    refuse_missing_folder,
    refuse_other_names,
)
from kit.config.paths import CONFIG_VARIABLE, HOSTS_VARIABLE, absolute, expanded, whole
from kit.config.relative import from_here, make_absolute, refuse_relative_volumes, with_written
from kit.config.selection import select_hosts
from kit.config.text import text_of
from kit.config.validate import validate
from kit.config.words import listed, near, plain, shown
from kit.errors import InputError, InputErrors, KitError
from kit.model.host import Inventory
from kit.model.spec import ClusterSpec
from kit.model.values import replace

__all__ = ["Settings", "load", "load_hosts", "load_spec", "passed_over", "select_hosts", "variables"]

# Names that people give these files, and that kit does not read.
_HOSTS_NAMES = ("hosts.txt", "hostfile", "hostfile.txt", "machinefile")
_CONFIG_NAMES = ("kit.yml",)
# What many programs take for standard input.
_STDIN = "-"

_Read = TypeVar("_Read")
# Returns the text of a file, or None if there is no file.
Text = Callable[[Path], "str | None"]


class Settings(Struct, frozen=True, kw_only=True):
    """The values of files, environment and flags together. `folder` is where kit looks for the files."""

    inventory: Inventory
    spec: ClusterSpec
    folder: Path


def load(
    folder: Path,
    *,
    hosts_flag: str | Path | None = None,
    config_flag: str | Path | None = None,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    text_of: Text = text_of,
) -> Settings:
    """Return the settings of a verb that needs hosts.

    `flags` maps a field's dotted path (ssh.user) to its value; None counts as not given. Without a kit.yaml, defaults
    apply; a missing hosts file is an error. Raises InputError, or InputErrors with the problems of both files.
    """
    refuse_missing_folder(folder)
    problems: list[InputError] = []
    inventory = _attempt(problems, lambda: load_hosts(folder, hosts_flag=hosts_flag, environ=environ, text_of=text_of))
    spec = _attempt(
        problems,
        lambda: _load_spec(folder, config_flag, flags=flags, environ=environ, on_vms=True, text_of=text_of),
    )
    if inventory is None or spec is None:
        raise problems[0] if len(problems) == 1 else InputErrors(problems)
    return Settings(inventory=_without_logins(inventory, flags, environ), spec=spec, folder=folder)


def _without_logins(inventory: Inventory, flags: Mapping[str, object], environ: Mapping[str, str]) -> Inventory:
    """Return the hosts without the login values that a flag or a variable sets for all of them."""
    over = _from_environment(environ) | _from_flags(flags)
    if not over.keys() & {"ssh.user", "ssh.port", "ssh.key"}:
        return inventory
    hosts = (
        replace(
            host,
            user=None if "ssh.user" in over else host.user,
            port=None if "ssh.port" in over else host.port,
            key=None if "ssh.key" in over else host.key,
        )
        for host in inventory.hosts
    )
    return replace(inventory, hosts=tuple(hosts))


def load_hosts(
    folder: Path, *, hosts_flag: str | Path | None = None, environ: Mapping[str, str], text_of: Text = text_of
) -> Inventory:
    """Read the hosts file of the flag, KIT_HOSTS or the folder. Raises InputError or InputErrors."""
    named = str(hosts_flag) if hosts_flag else environ.get(HOSTS_VARIABLE, "")
    path = expanded(named) if named else folder / "hosts"
    text = text_of(path)
    if text is None:
        refuse_link_to_nowhere(path)
        if not named:
            refuse_other_names(path, _HOSTS_NAMES)
        hint = "`kit init` writes one for you to fill in; `kit lab up` makes a cluster on this machine to try kit"
        if hosts_flag and _chooses_hosts(folder / "hosts", str(hosts_flag), text_of):
            hint = f"--hosts names a file; to use only some hosts, where the verb can: -H {plain(named)}"
        elif named == _STDIN:
            hint = "to read standard input: --hosts /dev/stdin"
        above = None if named else file_above(folder, path.name)
        raise InputError(
            f"there is no hosts file {shown(str(path))}",
            hint=f"the folder above has one: {command_in(above.parent)}; {hint}" if above else hint,
            file=str(path),
        )
    inventory = parse_hosts(text, source=str(path))
    base = whole(path).parent
    if all(host.key is None for host in inventory.hosts):
        return inventory
    hosts = (host if host.key is None else replace(host, key=absolute(host.key, base)) for host in inventory.hosts)
    return replace(inventory, hosts=tuple(hosts))


def _chooses_hosts(path: Path, words: str, text_of: Text) -> bool:
    """Return whether the words choose hosts of that file. --hosts is easily taken for the plural of --host."""
    try:
        return bool(select_hosts(parse_hosts(text_of(path) or "", source=str(path)), words).hosts)
    except KitError:
        return False


def load_spec(
    folder: Path,
    *,
    config_flag: str | Path | None = None,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    text_of: Text = text_of,
) -> ClusterSpec:
    """Return the spec for a verb that needs no hosts. Parameters and errors are those of `load`."""
    refuse_missing_folder(folder)
    return _load_spec(folder, config_flag, flags=flags, environ=environ, on_vms=False, text_of=text_of)


def passed_over(folder: Path, *, config_flag: str | Path | None = None, environ: Mapping[str, str]) -> str:
    """Return the command that reads the kit.yaml of the folder above, or '' if `folder` needs none.

    It needs one if it seems to be a part of that project: nobody named a kit.yaml, and it has neither of the files.
    """
    if config_flag or environ.get(CONFIG_VARIABLE):
        return ""
    if any(os.path.lexists(folder / name) for name in ("hosts", "kit.yaml")):
        return ""
    above = file_above(folder, "kit.yaml")
    return command_in(above.parent) if above else ""


def _load_spec(
    folder: Path,
    config_flag: str | Path | None,
    *,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    on_vms: bool,
    text_of: Text,
) -> ClusterSpec:
    """Return the spec. `on_vms`: its volumes are mounted on VMs, which do not have the folders of this machine."""
    named = str(config_flag) if config_flag else environ.get(CONFIG_VARIABLE, "")
    path = expanded(named) if named else folder / "kit.yaml"
    text = text_of(path)
    if text is None:
        refuse_link_to_nowhere(path)
    if text is None and named:
        hint = "name an existing file, or none: kit then reads ./kit.yaml if it exists"
        if named == _STDIN:
            hint = "to read standard input: --config /dev/stdin"
        raise InputError(f"there is no file {shown(str(path))}", hint=hint, file=str(path))
    if text is None:
        refuse_other_names(path, _CONFIG_NAMES)
    document = Document(source=str(path), text="") if text is None else _read_yaml(text, str(path))
    if on_vms:
        refuse_relative_volumes(document)
    written = make_absolute(document.data, whole(path).parent)
    over = _from_environment(environ) | _from_flags(flags)
    spec = with_written(validate(document, over), written)
    if on_vms and spec.ssh.known_hosts:
        _check_known_hosts(Path(spec.ssh.known_hosts))
    return spec


def _check_known_hosts(path: Path) -> None:
    """Raise InputError if ssh would wait for a named pipe, or read a device without an end. The file may be missing."""
    if path.exists() and not path.is_file() and str(path) != os.devnull:
        raise InputError(
            f"ssh.known_hosts: {shown(str(path))} is not a file",
            hint="name the file with the host keys of the VMs, or remove the setting",
        )


def variables() -> dict[str, str]:
    """Return the dotted path of the field that each variable sets."""
    return {setting.variable: path for path, setting in settings().items() if setting.variable is not None}


def _read_yaml(text: str, source: str) -> Document:
    from kit.config.yaml import read  # noqa: PLC0415  (YAML: only if there is a kit.yaml)

    return read(text, source=source)


def _attempt(problems: list[InputError], load_one: Callable[[], _Read]) -> _Read | None:
    try:
        return load_one()
    except InputErrors as errors:
        problems.extend(errors.problems)
    except InputError as error:
        problems.append(error)
    return None


def _from_environment(environ: Mapping[str, str]) -> dict[str, Override]:
    """Return the values that variables set, by field. An empty variable counts as not set."""
    overrides = {}
    for variable, path in variables().items():
        value = environ.get(variable)
        if value:
            overrides[path] = Override(value=from_here(path, value), source=variable)
    return overrides


def _from_flags(flags: Mapping[str, object]) -> dict[str, Override]:
    overrides = {}
    for path, value in flags.items():
        setting = settings().get(path)
        if setting is None or setting.is_section:
            similar = near(path, (p for p, s in settings().items() if not s.is_section), most=1)
            raise InputError(
                f"there is no setting {shown(path)}",
                hint=f"did you mean {listed(similar)}?" if similar else "list all settings: kit schema",
            )
        if value is not None:
            overrides[path] = Override(value=from_here(path, value), source=setting.flag)
    return overrides
