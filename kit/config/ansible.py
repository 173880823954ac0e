"""Recognizes lines of an Ansible inventory in a hosts file, and says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kit.config.hostaddress import LineError
from kit.config.words import plain, shown

# A variable of Ansible, and the setting of the hosts file that means the same.
_SETTINGS = {
    "ansible_user": "user",
    "ansible_ssh_user": "user",
    "ansible_port": "port",
    "ansible_ssh_port": "port",
    "ansible_ssh_private_key_file": "key",
    "ansible_private_key_file": "key",
}
_ADDRESSES = ("ansible_host", "ansible_ssh_host")
_IN_YAML = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*:", re.ASCII)


def refuse_ansible(words: Sequence[str]) -> None:
    """Raise LineError if these words of a line are a group, a host or a variable of an Ansible inventory."""
    first = words[0]
    if first.startswith("[") and first.endswith("]") and len(words) == 1 and not first[1:2].isdigit():
        raise LineError(f"{shown(first)} is a group of an Ansible inventory, and kit has no groups", "delete this line")
    if first.startswith("ansible_") and first[-1] != ":":
        raise _variable_of_group(first)
    if _IN_YAML.fullmatch(first):
        raise LineError(
            f"{shown(first)} looks like an inventory in YAML; a hosts file has one VM on each line",
            "write the VM's address, and its name if you like: 10.0.0.11 name=gpu1",
        )
    if any(word.startswith("ansible_") for word in words):
        raise LineError("this is a line of an Ansible inventory", f"write: {_as_host(words)}")


def _variable_of_group(word: str) -> LineError:
    key, _, value = word.partition("=")
    message = f"{shown(word)} sets a variable for a group of an Ansible inventory, and kit has no groups"
    setting = _SETTINGS.get(key)
    if setting is None or not value:
        return LineError(message, "delete this line")
    return LineError(
        message,
        f"write {setting}={plain(value)} on the line of each VM, or in kit.yaml: ssh: {{{setting}: {plain(value)}}}",
    )


def _as_host(words: Sequence[str]) -> str:
    """Return the line in kit's syntax. What only Ansible knows is left out."""
    given = dict(word.partition("=")[::2] for word in words[1:])
    address = next((given[key] for key in _ADDRESSES if given.get(key)), "")
    line = [plain(address), f"name={plain(words[0])}"] if address and address != words[0] else [plain(words[0])]
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key in _SETTINGS:
            key = _SETTINGS[key]
        if value and not key.startswith("ansible_"):
            line.append(f"{plain(key)}={plain(value)}")
    return " ".join(line)
