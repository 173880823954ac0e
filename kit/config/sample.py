"""The two files that `kit init` writes. The kit.yaml comes from the table of fields, so its defaults are right."""

from __future__ import annotations

from collections.abc import Iterator

from kit.config.fields import settings
from kit.config.setting import Setting, as_yaml

HOSTS = """\
# The VMs of the cluster, one on each line. The first one is the head, which starts the runs.
# Write an IP address or a name, then what differs from your ssh settings:
#
#   10.0.0.11
#   gpu2.example.com slots=8 user=ubuntu port=2222 key=~/.ssh/gpu name=gpu2 internal=10.0.0.12
#   gpu[03-08] slots=8
#
# An Open MPI hostfile works unchanged. slots= is the number of ranks that fit on a host. Default: its number of GPUs.

"""

# What a new kit.yaml sets, beside the defaults.
_SET = {"code": "."}

_HEAD = """\
# Settings of the cluster. Each line that starts with # shows a default. To change it, remove the # and edit the value.
# `kit schema` prints a JSON schema for editors.
"""


def sample_config(*, code: bool = True) -> str:
    """Return a kit.yaml with every field and its default, commented out, and `code: .` for the code beside it.

    Without `code`, the folder is one that a run does not take along, and the line is a comment, too.
    """
    return _HEAD + "".join(_lines(code=code))


def _lines(*, code: bool) -> Iterator[str]:
    for setting in settings().values():
        inner = "." in setting.path
        if not inner:
            yield "\n"
        if setting.is_section:
            yield f"# {setting.description}\n{setting.key}:\n"
            continue
        indent = "  " if inner else ""
        yield f"{indent}# {setting.description}\n" if not inner else ""
        if setting.path == "code" and not code:
            yield "#code: FOLDER   # not . here: this folder surely holds more than code\n"
        elif setting.path in _SET:
            yield f"{setting.key}: {as_yaml(_SET[setting.path])}\n"
        else:
            yield f"{indent}#{_line(setting)}\n"


def _line(setting: Setting) -> str:
    """Return `key: default`, or an example for a field without a default."""
    if setting.default is None:
        return f"{setting.key}: {as_yaml(setting.example)}   # an example; not set by default"
    return f"{setting.key}: {as_yaml(setting.default)}"
