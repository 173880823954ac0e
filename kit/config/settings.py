"""The settings of a verb: flags win over the environment, which wins over kit.yaml, which wins over the defaults.

Reads the two files only. A path in a file is relative to that file's folder; a path in a flag or a variable is relative
to the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kit.config.datasource import is_here
from kit.config.document import Document
from kit.config.fields import settings
from kit.config.hosts import parse_hosts
from kit.config.paths import absolute, expanded, whole
from kit.config.rules import is_url
from kit.config.selection import select_hosts
from kit.config.text import text_of
from kit.config.validate import Override, validate
from kit.config.words import listed, near, shown
from kit.errors import InputError, InputErrors
from kit.model.host import Inventory
from kit.model.spec import NO_CODE, ClusterSpec
from kit.model.values import replace

__all__ = ["Settings", "load", "load_hosts", "load_spec", "passed_over", "select_hosts", "variables"]

HOSTS_VARIABLE = "KIT_HOSTS"
CONFIG_VARIABLE = "KIT_CONFIG"
# Names that people give these files, and that kit does not read.
_HOSTS_NAMES = ("hosts.txt", "hostfile", "hostfile.txt", "machinefile")
_CONFIG_NAMES = ("kit.yml",)
_PATHS = ("ssh.key", "ssh.known_hosts", "image.wheels", "code", "requirements")

_Read = TypeVar("_Read")
# Returns the text of a file, or None if there is no file.
Text = Callable[[Path], "str | None"]


@dataclass(frozen=True, kw_only=True)
class Settings:
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
        _refuse_link_to_nowhere(path)
        if not named:
            _refuse_other_names(path, _HOSTS_NAMES)
        hint = "`kit init` writes one for you to fill in; `kit lab up` makes a cluster on this machine to try kit"
        above = None if named else _above(folder, path.name)
        raise InputError(
            f"there is no hosts file {shown(str(path))}",
            hint=f"the folder above has one: {_command_in(above.parent)}; {hint}" if above else hint,
            file=str(path),
        )
    inventory = parse_hosts(text, source=str(path))
    base = whole(path).parent
    if all(host.key is None for host in inventory.hosts):
        return inventory
    hosts = (host if host.key is None else replace(host, key=absolute(host.key, base)) for host in inventory.hosts)
    return replace(inventory, hosts=tuple(hosts))


def load_spec(
    folder: Path,
    *,
    config_flag: str | Path | None = None,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    text_of: Text = text_of,
) -> ClusterSpec:
    """Return the spec for a verb that needs no hosts. Parameters and errors are those of `load`."""
    return _load_spec(folder, config_flag, flags=flags, environ=environ, on_vms=False, text_of=text_of)


def passed_over(folder: Path, *, config_flag: str | Path | None = None, environ: Mapping[str, str]) -> str:
    """Return the command that reads the kit.yaml of the folder above, or '' if `folder` needs none.

    It needs one if it seems to be a part of that project: nobody named a kit.yaml, and it has neither of the files.
    """
    if config_flag or environ.get(CONFIG_VARIABLE):
        return ""
    if any(os.path.lexists(folder / name) for name in ("hosts", "kit.yaml")):
        return ""
    above = _above(folder, "kit.yaml")
    return _command_in(above.parent) if above else ""


def _above(folder: Path, name: str) -> Path | None:
    """Return the file of this name in the folder above, or None if it is missing."""
    path = Path(os.pardir, name) if folder == Path() else whole(folder).parent / name
    return path if os.path.isfile(path) else None  # noqa: PTH113  (an unreadable folder is no error here)


def _command_in(folder: Path) -> str:
    import shlex  # noqa: PLC0415  (only for a message)

    return f"kit -C {shlex.quote(str(folder))} …"


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
        _refuse_link_to_nowhere(path)
    if text is None and named:
        raise InputError(
            f"there is no file {shown(str(path))}",
            hint="name an existing file, or none: kit then reads ./kit.yaml if it exists",
            file=str(path),
        )
    if text is None:
        _refuse_other_names(path, _CONFIG_NAMES)
    document = Document(source=str(path), text="") if text is None else _read_yaml(text, str(path))
    if on_vms:
        _refuse_relative_volumes(document)
    written = _make_absolute(document.data, whole(path).parent)
    over = _from_environment(environ) | _from_flags(flags)
    spec = _with_written(validate(document, over), written)
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


def _refuse_link_to_nowhere(path: Path) -> None:
    """Raise InputError for a link whose file is missing. It is no missing file: defaults would be another cluster."""
    if path.is_symlink():
        target = os.readlink(path)  # noqa: PTH115  (the text)
        raise InputError(
            f"is a link to {shown(target)}, which does not exist",
            hint="mount or restore what it leads to, or remove the link",
            file=str(path),
        )


def _refuse_other_names(path: Path, names: Iterable[str]) -> None:
    """Raise InputError if the folder has the file under a name that other tools read. kit would ignore it."""
    other = next((path.with_name(name) for name in names if path.with_name(name).is_file()), None)
    if other is not None:
        import shlex  # noqa: PLC0415  (only for an error)

        raise InputError(
            f"kit reads {path.name}, but this folder has {other.name}",
            hint=f"mv {shlex.quote(str(other))} {shlex.quote(str(path))}",
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


def _make_absolute(data: dict[str, object], base: Path) -> dict[object, str]:
    """Make the paths of a kit.yaml absolute. Return the sources of data sets on this machine as they were, by name.

    Values that are not text stay for validation to refuse.
    """
    for path in _PATHS:
        name, _, key = path.rpartition(".")
        section = data.get(name) if name else data
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(value, str) and _is_path(path, value):
            section[key] = absolute(value, base)
    sets = data.get("data")
    written: dict[object, str] = {}
    for name, one in sets.items() if isinstance(sets, dict) else ():
        source = one.get("from") if isinstance(one, dict) else None
        if isinstance(source, str) and is_here(source):
            written[name] = source
            one["from"] = absolute(source, base)
    volumes = data.get("volumes")
    if isinstance(volumes, list):
        for position, volume in enumerate(volumes):
            if isinstance(volume, str) and _is_relative(volume):
                source, colon, rest = volume.partition(":")
                volumes[position] = absolute(source, base) + colon + rest
    return written


def _with_written(spec: ClusterSpec, written: Mapping[object, str]) -> ClusterSpec:
    """Return the spec with the sources of its data sets as kit.yaml has them, besides their absolute paths."""
    if not written:
        return spec
    sets = (
        replace(one, source=replace(one.source, written=written[one.name])) if one.name in written else one
        for one in spec.data
    )
    return replace(spec, data=tuple(sets))


def _refuse_relative_volumes(document: Document) -> None:
    """Add a problem for each volume whose source is relative. The engine of a VM would create it, empty."""
    volumes = document.data.get("volumes")
    for position, volume in enumerate(volumes if isinstance(volumes, list) else ()):
        if isinstance(volume, str) and _is_relative(volume):
            whole = f"/data:{volume.partition(':')[2] or '/data'}"
            document.problems.append(
                InputError(
                    f"volumes, item {position + 1}: {shown(volume)} starts at a folder of this machine, "
                    "and the VMs do not have it",
                    hint=f"write a whole path of the VMs, such as {whole}; for your own code, write code: . instead",
                    file=document.source,
                    line=document.line_of(("volumes", position)),
                )
            )


def _is_relative(volume: str) -> bool:
    return volume.startswith(("./", "../")) or volume.partition(":")[0] in (".", "..")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Override]:
    """Return the values that variables set, by field. An empty variable counts as not set."""
    overrides = {}
    for variable, path in variables().items():
        value = environ.get(variable)
        if value:
            overrides[path] = Override(value=_from_here(path, value), source=variable)
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
            overrides[path] = Override(value=_from_here(path, value), source=setting.flag)
    return overrides


def _from_here(path: str, value: object) -> object:
    if path in _PATHS and isinstance(value, str) and _is_path(path, value):
        return absolute(value, whole(Path()))
    return value


def _is_path(path: str, value: str) -> bool:
    """Return whether the value of this field is a path. Validation refuses other values, or knows them as words."""
    return bool(value) and (path != "code" or (value != NO_CODE and not is_url(value)))
