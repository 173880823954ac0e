"""Plain values → ClusterSpec. kit.config.faults says what is wrong with those that no field accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kit.config import conflicts, data
from kit.config.document import Document, Path
from kit.config.faults import Fault, Override, UnknownKeyError, problems
from kit.config.fields import fields_of
from kit.config.kinds import FieldError, WrongItemsError, WrongKindError
from kit.config.setting import Setting
from kit.errors import InputErrors
from kit.model.spec import (
    ClusterSpec,
    ImageSpec,
    MpiSpec,
    NcclSpec,
    RunsSpec,
    SecuritySpec,
    SetupSpec,
    SshSpec,
    UlimitSpec,
)
from kit.model.values import asdict

_SECTIONS = {
    "image": ImageSpec,
    "ssh": SshSpec,
    "ulimits": UlimitSpec,
    "security": SecuritySpec,
    "mpi": MpiSpec,
    "nccl": NcclSpec,
    "runs": RunsSpec,
    "setup": SetupSpec,
}


def validate(document: Document, overrides: Mapping[str, Override] | None = None) -> ClusterSpec:
    """Return the spec of a document, after replacing values by the overrides (by dotted path). Raises InputErrors."""
    over = overrides or {}
    faults: dict[Path, Fault] = {}
    values = _read_section("", _overridden(document.data, over), faults)
    errors = problems(faults, document, over)
    if errors:
        raise InputErrors(errors)
    sections = {key: _SECTIONS[key](**values[key]) for key in _SECTIONS if key in values}
    return ClusterSpec(**{**values, **sections})


def _check_cluster(values: Mapping[str, Any]) -> None:
    conflicts.cluster(values)
    data.check(values.get("data") or (), values.get("volumes", ()), values.get("env", {}))


_SECTION_RULES = {"": _check_cluster, "image": conflicts.image}


def spec_from(data: Mapping[str, object], *, source: str = "kit.yaml") -> ClusterSpec:
    """Return the spec of values that Python code made, validated as a file is. Raises InputErrors."""
    return validate(Document(source=source, text="", data=dict(data)))


def values_of(spec: ClusterSpec) -> dict[str, Any]:
    """Return the values of a spec as `spec_from` reads them: what a kit.yaml with every setting would have."""
    values = asdict(spec)
    sets = {one.name: {"from": one.source.text, **_without(asdict(one), "name", "source")} for one in spec.data}
    return {**values, "data": sets}


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _overridden(data: Mapping[str, object], over: Mapping[str, Override]) -> dict[str, object]:
    merged: dict[str, object] = {k: dict(v) if isinstance(v, dict) else v for k, v in data.items()}
    for path, override in over.items():
        section, _, key = path.rpartition(".")
        if not section:
            merged[key] = override.value
            continue
        inside = merged.setdefault(section, {})
        if isinstance(inside, dict):
            inside[key] = override.value
    return merged


def _read_section(section: str, data: Mapping[str, object], faults: dict[Path, Fault]) -> dict[str, Any]:
    """Return the valid values by key, in the model's types. Add the others to `faults`, by place."""
    above: Path = (section,) if section else ()
    fields = fields_of(section)
    values: dict[str, Any] = {}
    for key in (*(key for key in fields if key in data), *(key for key in data if key not in fields)):
        value, setting = data[key], fields.get(key)
        if setting is None:
            faults[(*above, key)] = Fault(value=value, error=UnknownKeyError())
        elif setting.kind is None:
            if isinstance(value, Mapping):
                values[key] = _read_section(key, value, faults)
            else:
                faults[(*above, key)] = Fault(value=value, error=WrongKindError())
        else:
            _read_field(setting, value, (*above, key), values, faults)
    try:
        if section in _SECTION_RULES:
            defaults = {key: setting.default for key, setting in fields.items() if key not in data}
            _SECTION_RULES[section](defaults | values)
    except WrongItemsError as error:
        faults.update(_faults_in(above, error))
    except FieldError as error:
        inside = (error.key,) if isinstance(error.key, str) else error.key or ()
        faults[(*above, *inside)] = Fault(value=_value_at(data, inside), error=error)
    return values


def _read_field(
    setting: Setting, value: object, place: Path, values: dict[str, Any], faults: dict[Path, Fault]
) -> None:
    if value is None and (setting.default is None or setting.path == "ulimits.stack"):
        values[setting.key] = None
        return
    try:
        read = setting.kind.read(value) if setting.kind else value
        values[setting.key] = setting.rule(read) if setting.rule else read
    except WrongItemsError as error:
        faults.update(_faults_in(place, error))
    except WrongKindError as error:
        faults[place] = Fault(value=value, error=error)
    except FieldError as error:
        inside = (error.key,) if isinstance(error.key, str) else error.key or ()
        faults[(*place, *inside)] = Fault(value=_value_at(value, inside), error=error)


def _faults_in(place: Path, error: WrongItemsError) -> Iterator[tuple[Path, Fault]]:
    for key, (item, wrong) in error.items.items():
        if isinstance(wrong, WrongItemsError):
            yield from _faults_in((*place, key), wrong)
        else:
            yield (*place, key), Fault(value=item, error=wrong)


def _value_at(value: object, place: Path) -> object:
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
