"""Remotes of the operator's own rclone configuration, with all other remotes that they name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kit.errors import InputError
from kit.model.data import DataSource
from kit.model.secret import Secret
from kit.remote.data.access import Access, Read, certificates, joined, variable

Remotes = dict[str, dict[str, str]]

# Options that name other remotes: `other:path`, several of them, or `folder=other:path`.
_NAMING = ("remote", "upstreams", "fallback_remote", "db_path")
_NAMED = re.compile(r"(?:^|[\s=\",])([\w.+@-][\w.+@ -]*?):")
_ENCRYPTED = "RCLONE_ENCRYPT_V"
# Options whose value is a file of this machine, and the option that takes its content.
_CONTENT = {"service_account_file": "service_account_credentials"}
_FILES = (
    "key_file",
    "pubkey_file",
    "known_hosts_file",
    "shared_credentials_file",
    "client_certificate_path",
    "service_principal_file",
    "config_file",
    "cert_store",
)


def rclone_access(source: DataSource, environ: Mapping[str, str], read: Read) -> Access:
    """Return the access to rclone:REMOTE:path. Obscured passwords stay obscured: the hosts' rclone reads them."""
    remotes, file = configured(environ, read)
    wanted = _with_named(source.place, remotes, environ)
    values: dict[str, Secret] = {}
    for name in wanted:
        options = _options(name, remotes, environ)
        if options["type"] in ("local", "memory"):
            raise InputError(
                f"{source.text} reads files of this machine: the remote {name} is of the type {options['type']}",
                hint="write the folder itself in `from:`",
            )
        for option, value in _portable(name, options, read).items():
            values[variable(name, option)] = Secret(value.encode())
    others = [name for name in wanted if name != source.place]
    by = f"kit reads {source.text} with your rclone remote {source.place}"
    by += f" and the remotes that it names ({', '.join(others)})" if others else ""
    return Access(
        remote=joined("", source.path, source.place),
        settings=values,
        ca=certificates("RCLONE_CA_CERT", environ, read),
        by=f"{by} ({file})." if source.place in remotes else f"{by} (variables {variable(source.place, '')}*).",
    )


def configured(environ: Mapping[str, str], read: Read) -> tuple[Remotes, str]:
    """Return the remotes of rclone's configuration file, and its path."""
    own = environ.get("RCLONE_CONFIG", "")
    folder = environ.get("XDG_CONFIG_HOME") or "~/.config"
    for path in (own,) if own else (f"{folder}/rclone/rclone.conf", "~/.config/rclone/rclone.conf", "~/.rclone.conf"):
        text = read(path)
        if text is not None:
            return parse(text, path), path
    return {}, own or f"{folder}/rclone/rclone.conf"


def parse(text: str, path: str) -> Remotes:
    """Return each remote's options. Raises InputError for an encrypted file."""
    remotes: Remotes = {}
    options: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith(_ENCRYPTED):
            raise InputError(
                f"{path} is encrypted, and kit does not ask for its password",
                hint="write the decrypted remotes into another file, readable by you alone: "
                "rclone config show >FILE, then: export RCLONE_CONFIG=FILE",
            )
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and line[-1] == "]":
            options = remotes.setdefault(line[1:-1].strip(), {})
            continue
        key, _, value = line.partition("=")
        options[key.strip()] = value.strip()
    return remotes


def _options(name: str, remotes: Remotes, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a remote's options: those of the file, over which rclone's variables win."""
    options = dict(remotes.get(name, {}))
    for key in environ:
        prefix = variable(name, "")
        if key.startswith(prefix) and environ[key]:
            options[key.removeprefix(prefix).lower()] = environ[key]
    if "type" not in options:
        known = ", ".join(sorted(remotes)) or "none"
        raise InputError(
            f"your rclone has no remote {name}; it has: {known}",
            hint="correct the name in `from:`, or add the remote: rclone config",
        )
    return options


def _with_named(first: str, remotes: Remotes, environ: Mapping[str, str]) -> list[str]:
    """Return a remote and all that it names, each once, in the order in which they are found."""
    names: list[str] = []
    waiting = [first]
    while waiting:
        name = waiting.pop(0)
        if name in names:
            continue
        names.append(name)
        options = _options(name, remotes, environ)
        for option in _NAMING:
            value = options.get(option, "")
            if value and option != "db_path" and ":" not in value:
                raise InputError(
                    f"the rclone remote {name} reads {value}, a folder of this machine",
                    hint="write the folder itself in `from:`",
                )
            waiting += _NAMED.findall(value)
    clash = [name for name in names if any(name != other and name.upper() == other.upper() for other in names)]
    if clash:
        raise InputError(
            f"the rclone remotes {' and '.join(clash)} differ only in case", hint="rename one of them: rclone config"
        )
    return names


def _portable(name: str, options: Mapping[str, str], read: Read) -> dict[str, str]:
    """Return the options as a host can use them: with the content of a file instead of its name."""
    result = {}
    for option, value in options.items():
        if option in _CONTENT and value:
            text = read(value)
            if text is None:
                raise InputError(
                    f"the rclone remote {name} needs the file {value}, which is missing",
                    hint=f"correct {option}: rclone config",
                )
            result[_CONTENT[option]] = " ".join(text.split("\n"))
        elif option in _FILES and value:
            raise InputError(
                f"the rclone remote {name} needs the file {value} ({option}), which the hosts do not have",
                hint=f"configure {name} without {option}: rclone config",
            )
        else:
            result[option] = value
    return result
