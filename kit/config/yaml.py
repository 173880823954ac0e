"""Reads the YAML of a kit.yaml into plain values, and records the place of each one.

Every plain scalar except true, false and null stays text, so that 1.10, 010 and 1:30 mean what you see; validation
turns text into numbers. Aliases, tags, deep nesting and large files are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import yaml

from kit.config.data import FIELDS as DATA_FIELDS
from kit.config.document import Document, Path
from kit.config.fields import keys_of, settings
from kit.config.validate import validate
from kit.config.words import plain, shown, spaced, variable_name
from kit.config.yamlfault import NO_SPACE, fault_of
from kit.errors import InputErrors
from kit.model.spec import ClusterSpec

MOST_BYTES = 256 * 1024
_DEEPEST = 12
_TAG = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _TAG + kind for kind in ("null", "bool", "int", "float", "timestamp", "str", "seq", "map", "merge", "value")
)
# PyYAML has no types for it.
_RESOLVER: Any = yaml.resolver.Resolver()
_LOADER: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_spec(text: str, *, source: str) -> ClusterSpec:
    """Return the spec of a kit.yaml's text, with defaults. `source` is its path, for messages.

    Raises InputErrors with every problem, each with its line and a hint.
    """
    return validate(read(text, source=source))


def read(text: str, *, source: str) -> Document:
    """Return the values, with minor problems in `problems`. Raises InputErrors if the YAML cannot be read."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    document = Document(source=source, text=text)
    _check_size(document)
    try:
        _check_events(document)
        root = yaml.compose(text, Loader=_LOADER) if not document.problems else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        index, message, hint = fault_of(error, text)
        document.add_problem(index, message, hint)
        root = None
    if document.problems:
        raise InputErrors(document.problems)
    if root is not None and root.tag != _TAG + "null":
        right = spaced(root.value, keys_of("")) if isinstance(root, yaml.ScalarNode) and not root.style else ""
        if right:
            document.add_problem(root.start_mark.index, NO_SPACE, f"write {right}")
            raise InputErrors(document.problems)
        if not isinstance(root, yaml.MappingNode):
            document.add_problem(
                root.start_mark.index,
                "a kit.yaml consists of KEY: VALUE lines, but this is something else",
                "start, for example, with: name: kit",
            )
            raise InputErrors(document.problems)
        data = _value(root, (), document)
        document.data = data if isinstance(data, dict) else {}
    return document


def _check_size(document: Document) -> None:
    if len(document.text) > MOST_BYTES:
        document.add_problem(
            0,
            f"the file has {len(document.text) // 1024} KiB, but kit reads at most {MOST_BYTES // 1024}",
            "is this the right file? A kit.yaml is short",
        )
    strange = next((i for i, c in enumerate(document.text) if "\ud800" <= c <= "\udfff"), None)
    if strange is not None:
        document.add_problem(strange, "a character here is not valid text", "save the file as UTF-8")
    if document.problems:
        raise InputErrors(document.problems)


def _check_events(document: Document) -> None:
    """Refuse text that could grow without bound, before building values from it."""
    depth = documents = 0
    for event in yaml.parse(document.text, Loader=_LOADER):
        index = event.start_mark.index if event.start_mark is not None else 0
        if isinstance(event, yaml.AliasEvent):
            document.add_problem(
                index,
                # Not with its name: a password may start with * as well.
                "a word that starts with * is an alias, which kit.yaml does not allow",
                "write the value itself; put it in quotes if it starts with *",
            )
            return
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                document.add_problem(index, "this is nested too deeply for a kit.yaml", "look for an extra bracket")
                return
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                document.add_problem(index, "a second document starts here, after ---", "keep one document in the file")
                return


def _known_keys(path: Path) -> Collection[str] | None:
    """Return the keys that may be there without a value, or None if all need one. Others are reported later."""
    if path == ("data",):
        return ()
    if path[:1] == ("data",) and len(path) == 2:
        return DATA_FIELDS
    inside = ".".join(str(part) for part in path)
    return keys_of(inside) if not path or (inside in settings() and settings()[inside].is_section) else None


def _value(node: yaml.Node, path: Path, document: Document) -> object:
    index = node.start_mark.index
    if node.tag not in _TAGS:
        # A value of env may be a secret, and YAML takes one that starts with ! for a tag.
        tag = "a tag, a word that starts with !," if _in_env(path) else f"the tag {shown(node.tag)}"
        document.add_problem(index, f"{tag} is not allowed here", "remove the word with the !, or put it in quotes")
        return ""
    if isinstance(node, yaml.MappingNode):
        document.written[path] = "a group of KEY: VALUE" if node.value else "{}"
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        document.written[path] = "a list" if node.value else "[]"
        for position, item in enumerate(node.value):
            document.places[(*path, position)] = item.start_mark.index
        return [_item(item, (*path, position), document) for position, item in enumerate(node.value)]
    document.written[path] = shown(node.value)
    return _scalar(node, path, document)


def _in_env(path: Path) -> bool:
    """Return whether this is a variable of env, whose value may be a secret."""
    return path[:1] == ("env",)


def _scalar(node: yaml.Node, path: Path, document: Document) -> object:
    """Return text, true, false or None. A tag cannot make one of the last three of other text, as in !!bool 1."""
    if node.tag not in (_TAG + "null", _TAG + "bool"):
        return node.value
    if _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False)) != node.tag:
        message = f"{'this value' if _in_env(path) else shown(node.value)} is not what its tag says"
        document.add_problem(node.start_mark.index, message, "remove the word with the !!")
        return ""
    return node.value.lower() in ("yes", "true", "on") if node.tag == _TAG + "bool" else None


def _item(node: yaml.Node, path: Path, document: Document) -> object:
    value = _value(node, path, document)
    if value is None:
        document.add_problem(node.start_mark.index, "an item of the list is empty", 'write a value after the -, or ""')
    return value


def _mapping(node: yaml.MappingNode, path: Path, document: Document) -> dict[str, object]:
    values: dict[str, object] = {}
    known = _known_keys(path)
    for key_node, value_node in node.value:
        index = key_node.start_mark.index
        if not isinstance(key_node, yaml.ScalarNode):
            document.add_problem(index, "a key here is a list or a group", "write KEY: VALUE")
            continue
        key = key_node.value
        here = (*path, key)
        name = variable_name(key) if _in_env(path) else plain(key)
        if key in values or here in document.places:
            first = document.line_of(here)
            document.add_problem(
                index, f"'{name}' is here a second time; it is already on line {first}", "keep one of the two"
            )
            continue
        document.places[here] = index
        value = _value(value_node, here, document)
        if value is not None:
            values[key] = value
        elif known is None:
            empty = f'write {name}: "" for an empty one'
            hint = empty if name == plain(key) else "write NAME: VALUE, with a space after the colon"
            document.add_problem(index, f"'{name}' has no value", hint)
        elif key not in known:
            values[key] = None  # so that an unknown key is reported even without a value
    return values
