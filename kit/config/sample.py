"""The two files that `kit init` writes. The kit.yaml is made from the model, so that it cannot say other defaults."""

from __future__ import annotations

from collections.abc import Iterator

from kit.config.fields import Setting, as_yaml, settings

HOSTS = """\
# The VMs of the cluster, one a line. The first is the head: it starts the runs.
# Write an IP address or a name, and what differs from ssh's own settings:
#
#   10.0.0.11
#   gpu2.example.com slots=8 user=ubuntu port=2222 key=~/.ssh/gpu name=gpu2 internal=10.0.0.12
#   gpu[03-08] slots=8
#
# An Open MPI hostfile is good as it is. slots= is the number of ranks; not written, it is the number of GPUs.

"""

_HEAD = """\
# Settings of the cluster. Every line that begins with # shows a default: take the # away to change it.
# `kit schema` prints the JSON schema for editors.
"""


def sample_config() -> str:
    """A kit.yaml that says nothing yet: every field with its default, commented."""
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for setting in settings().values():
        inner = "." in setting.path
        if not inner:
            yield "\n"
        if setting.is_section:
            yield f"# {setting.description}\n{setting.key}:\n"
            continue
        indent = "  " if inner else ""
        yield f"{indent}# {setting.description}\n" if not inner else ""
        yield f"{indent}#{_line(setting)}\n"


def _line(setting: Setting) -> str:
    """`key: default`; for a field with no default, an example, said to be one."""
    if setting.default is None:
        return f"{setting.key}: {as_yaml(setting.example)}   # an example; not set by default"
    return f"{setting.key}: {as_yaml(setting.default)}"
