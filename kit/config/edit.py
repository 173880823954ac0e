"""Adds settings to the text of a kit.yaml as separate lines, and keeps every other byte.

No YAML library writes it: to kit every plain word is text (010, 1.10), and a library would rewrite such words. kit
reads the result again and refuses it unless it says what it said before, and the new settings.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kit.config.setting import as_yaml
from kit.config.yaml import load_spec, read
from kit.errors import InputError, InputErrors

# kit tune writes this line before each of its settings, and replaces only settings that have it.
MARK = "# kit tune: "
_MORE = "#   "
_WIDTH = 116


class NewSetting(Struct, frozen=True, kw_only=True):
    """`section.key`, its value, and the reason that is written before it. `section` is '' at the top level."""

    section: str
    key: str
    value: str
    reason: str


def tuned(text: str) -> frozenset[str]:
    """Return the settings (env.OMP_NUM_THREADS, network) that kit tune wrote and that still have its line."""
    lines = text.splitlines()
    paths = set()
    section = ""
    for number, line in enumerate(lines):
        if top := re.match(r"([A-Za-z_]+)\s*:", line):
            section = top[1]
            if _comment(lines, number) < number:
                paths.add(section)
        elif (inner := re.match(r"\s+([A-Za-z_][A-Za-z0-9_]*)\s*:", line)) and _comment(lines, number) < number:
            paths.add(f"{section}.{inner[1]}")
    return frozenset(paths)


def value_of(text: str, path: str, *, source: str) -> object:
    """Return the value at a dotted path, or None. Raises InputErrors if the text is not YAML."""
    section, _, key = path.rpartition(".")
    data = read(text, source=source).data
    inside = data.get(section) if section else data
    return inside.get(key) if isinstance(inside, Mapping) else None


def edited(text: str, new: Sequence[NewSetting], *, source: str) -> str:
    """Return the text with the new settings. Raises InputError if the file's style does not allow the addition."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    # In reverse, because each setting goes to the top of its section.
    for setting in reversed(new):
        _put(lines, setting, source)
    changed = newline.join(lines) + newline if lines else ""
    _check(text, changed, new, source)
    return changed


def _put(lines: list[str], new: NewSetting, source: str) -> None:
    if new.section:
        _put_inside(lines, new, source)
    elif not _replaced(lines, new, 0, len(lines), ""):
        lines += ["", *_lines_of(new, "")] if lines and lines[-1].strip() else _lines_of(new, "")


def _put_inside(lines: list[str], new: NewSetting, source: str) -> None:
    """Put the setting at the top of its section. A missing section is added at the end of the file."""
    top = next((n for n, line in enumerate(lines) if re.match(rf"{new.section}\s*:", line)), None)
    if top is None:
        lines += [""] if lines and lines[-1].strip() else []
        lines.append(f"{new.section}:")
        top = len(lines) - 1
    rest = re.sub(r"(^|\s)#.*", "", lines[top].partition(":")[2]).strip()
    if rest in ("{}", "null", "~"):
        lines[top] = f"{new.section}:"
    elif rest:
        settings = _settings_of(rest)
        if not settings:
            raise InputError(
                f"{new.section} is not written as KEY: VALUE lines, and kit tune can only add lines",
                hint=f"write {new.section}: on one line and KEY: VALUE lines below it, and tune again",
                file=source,
                line=top + 1,
            )
        lines[top] = lines[top].replace(rest, "", 1).replace(":  ", ": ", 1).rstrip()
        lines[top + 1 : top + 1] = [f"  {setting}" for setting in settings]
    end = next((n for n in range(top + 1, len(lines)) if re.match(r"[^\s#]", lines[n])), len(lines))
    inner = [line for line in lines[top + 1 : end] if line.strip() and not line.lstrip().startswith("#")]
    indent = re.match(r"\s*", inner[0])[0] if inner else "  "  # type: ignore[index]
    if not _replaced(lines, new, top + 1, end, indent):
        lines[top + 1 : top + 1] = _lines_of(new, indent)


def _settings_of(text: str) -> list[str]:
    """Return the settings of `{KEY: VALUE, …}`, as they are written. The list is empty if the text is anything else."""
    import yaml  # noqa: PLC0415  (only for a section on one line)

    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:
        return []
    if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map" or not text.startswith("{"):
        return []
    return [text[key.start_mark.index : value.end_mark.index] for key, value in node.value]


def _replaced(lines: list[str], new: NewSetting, start: int, end: int, indent: str) -> bool:
    """Replace the value of the key between `start` and `end`. Return False if the key is not there."""
    at = next((n for n in range(start, end) if re.match(rf"{indent}{new.key}\s*:", lines[n])), None)
    if at is None:
        return False
    after = at + 1
    while after < end and re.match(rf"{indent}(\s|- )\s*[^\s#]", lines[after]):
        after += 1
    lines[_comment(lines, at) : after] = _lines_of(new, indent)
    return True


def _lines_of(new: NewSetting, indent: str) -> list[str]:
    """Return the reason as a comment, then the setting."""
    reason = textwrap.wrap(f"{MARK}{new.reason}", _WIDTH, subsequent_indent=_MORE, break_on_hyphens=False)
    return [indent + line for line in reason] + [f"{indent}{new.key}: {as_yaml(new.value)}"]


def _comment(lines: Sequence[str], number: int) -> int:
    """Return where kit tune's comment on the line begins, or the line itself."""
    first = number
    while first and lines[first - 1].lstrip().startswith(_MORE):
        first -= 1
    return first - 1 if first and lines[first - 1].lstrip().startswith(MARK) else number


def _check(before: str, after: str, new: Sequence[NewSetting], source: str) -> None:
    """Refuse a result that is no valid kit.yaml, or that changed anything but the new settings."""
    wanted = {name: dict(v) if isinstance(v, dict) else v for name, v in read(before, source=source).data.items()}
    for setting in new:
        if not setting.section:
            wanted[setting.key] = setting.value
            continue
        section = wanted.get(setting.section) or {}
        wanted[setting.section] = {**section, setting.key: setting.value} if isinstance(section, dict) else section
    try:
        same = read(after, source=source).data == wanted
        if same:
            load_spec(after, source=source)
    except InputErrors:
        load_spec(before, source=source)
        # The errors have lines of `after`, which no file has.
        same = False
    if not same:
        lines = ", ".join(f"{setting.section}.{setting.key}".lstrip(".") + f": {setting.value}" for setting in new)
        raise InputError("kit tune cannot add to this file safely", hint=f"add by hand: {lines}", file=source)
