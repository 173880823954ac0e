"""`data` of kit.yaml: the fields of a data set, what fits together, and what its folders may hide."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from msgspec import Struct

from kit.config import datafolders as folders
from kit.config import datasource, rules
from kit.config.kinds import Choice, FieldError, Kind, Shape, Text, Truth, WrongItemsError, WrongKindError
from kit.config.setting import Setting
from kit.config.words import listed, near, plain, shown
from kit.model import names
from kit.model.data import DataSpec, Split, Stage
from kit.model.spec import NAME
from kit.model.values import defaults

EXAMPLE: Mapping[str, object] = {"imagenet": {"from": "s3://bucket/imagenet", "to": "/data/imagenet"}}
# What engines mount, and what rclone mounts.
_SERVERS = ("nfs", "lustre")
_STORES = ("store", "http")
_STAGES = {
    **dict.fromkeys(("memory", "shm", "tmpfs"), "write ram, with size: for the most memory on each host"),
    **dict.fromkeys(("mount", "mounted"), "write none"),
    **dict.fromkeys(("nvme", "ssd", "copy"), "write disk; dir: names another folder of the VMs"),
}


class DataSets(Struct, frozen=True):
    """A mapping from the names of data sets to their fields."""

    wants: str = "NAME: sections, indented, each with from and to"
    choices: tuple[str, ...] = ()
    is_word: bool = False

    def read(self, value: object) -> tuple[DataSpec, ...]:
        """Return the data sets in the order of the file. Raises WrongKindError or WrongItemsError."""
        if not isinstance(value, Mapping):
            raise WrongKindError
        wrong: dict[int | str, tuple[object, ValueError]] = {}
        sets = []
        for name, section in value.items():
            try:
                sets.append(_read_one(name, section))
            except (FieldError, WrongItemsError) as error:
                wrong[name] = (section, error)
        if wrong:
            raise WrongItemsError(wrong)
        return tuple(sets)

    def shapes(self) -> list[Shape]:
        """Return the schema of the mapping."""
        one = {
            "type": "object",
            "additionalProperties": False,
            "required": ["from", "to"],
            "properties": {key: setting.shape() for key, setting in FIELDS.items()},
        }
        pattern = "^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
        return [{"type": "object", "propertyNames": {"pattern": pattern}, "additionalProperties": one}]


def separate(sets: tuple[DataSpec, ...]) -> tuple[DataSpec, ...]:
    """Refuse data sets that would hide each other in the nodes, or share a variable. Raises WrongItemsError."""
    taken = {names.data_split_variable(one.name): f"how {one.name} is split" for one in sets if one.split != "none"}
    taken |= {names.data_write_variable(one.name): f"that ranks write to {one.name}" for one in sets if one.stores}
    for one in sets:
        variable = names.data_variable(one.name)
        if variable in taken:
            error = FieldError(
                f"{variable} would be the folder of {one.name}, and says {taken[variable]}",
                write="give this data set another name",
            )
            raise WrongItemsError({one.name: (None, error)})
    for position, later in enumerate(sets):
        for earlier in sets[:position]:
            if folders.overlap(later.to, earlier.to):
                where = f"{later.to} overlaps with {earlier.to} of the data set {earlier.name}"
                raise _at(later, "to", FieldError(where, write="give each data set a folder for itself"))
    return sets


def check(sets: tuple[DataSpec, ...], volumes: tuple[str, ...], env: Mapping[str, str]) -> None:
    """Refuse data sets that do not fit the rest of kit.yaml. Raises WrongItemsError for `data`, or FieldError."""
    targets = {posixpath.normpath(volume.split(":")[1]): volume for volume in volumes}
    for one in sets:
        for variable in (
            names.data_variable(one.name),
            names.data_split_variable(one.name),
            names.data_write_variable(one.name),
        ):
            if variable in env:
                raise FieldError(
                    f"kit sets {variable} itself, for the data set {one.name}",
                    write="remove it here, or give the variable another name",
                    key=("env", variable),
                )
        for target, volume in targets.items():
            if folders.overlap(one.to, target):
                where = f"{one.to} overlaps with {shown(volume)} of volumes:"
                raise FieldError(where, write="give each mount a folder for itself", key=("data", one.name, "to"))


def _at(one: DataSpec, key: str, error: FieldError) -> WrongItemsError:
    return WrongItemsError({one.name: (None, WrongItemsError({key: (getattr(one, key), error)}))})


def _read_one(name: object, section: object) -> DataSpec:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise FieldError(
            f"{shown(str(name))} is not a name of a data set",
            write="use at most 40 lower-case letters and digits, with dashes between them",
        )
    if name in (names.HEAD, names.NODE):
        raise FieldError(f"{name} is the name of a service of kit", write="give the data set another name")
    if not isinstance(section, Mapping):
        only = isinstance(section, str) and section
        raise FieldError(
            f"the data set {name} needs from and to",
            write=f"{name}: {{from: {plain(str(section)) if only else 's3://bucket/' + name}, to: /data/{name}}}",
        )
    values, wrong = _read_fields(section)
    if not wrong:
        try:
            _check_fields(name, values)
        except FieldError as error:
            if error.key is None:
                raise
            wrong[str(error.key)] = (section.get(error.key), error)
    if wrong:
        raise WrongItemsError(wrong)
    return DataSpec(name=name, source=values.pop("from"), **values)


def _read_fields(section: Mapping[str, object]) -> tuple[dict[str, Any], dict[int | str, tuple[object, ValueError]]]:
    """Return the values that are right, and the others with what is wrong."""
    values: dict[str, Any] = {}
    wrong: dict[int | str, tuple[object, ValueError]] = {}
    for key, value in section.items():
        setting = FIELDS.get(key)
        try:
            if setting is None or setting.kind is None:
                raise _unknown_key(str(key))
            if value is not None:
                read = setting.kind.read(value)
                values[key] = setting.rule(read) if setting.rule else read
        except (FieldError, WrongKindError) as error:
            wrong[key] = (value, error)
    return values, wrong


def _unknown_key(key: str) -> FieldError:
    similar = near(key, FIELDS, most=1)
    write = f"did you mean {listed(similar)}?" if similar else f"known settings: {', '.join(FIELDS)}"
    return FieldError(f"there is no setting {shown(key)} of a data set", write=write)


def _check_fields(name: str, values: Mapping[str, Any]) -> None:
    """Refuse fields that do not fit each other. Raises FieldError with the key at fault."""
    for key in ("from", "to"):
        if key not in values:
            setting = FIELDS[key]
            raise FieldError(f"the data set {name} has no {key}", write=f"write {key}: {setting.example}")
    stage, source = values.get("stage", "disk"), values["from"]
    if stage == "ram" and not values.get("size"):
        raise FieldError(
            "ram needs size: the most memory that the data may use on each host",
            write="add a line such as size: 60gb, or write stage: disk",
            key="stage",
        )
    for key, of in (("size", "ram"), ("dir", "disk")):
        if values.get(key) and stage != of:
            raise FieldError(
                f"{key} belongs to stage: {of}, and this is stage: {stage}", write=f"remove {key}:", key=key
            )
    if values.get("options") and source.kind not in _SERVERS:
        raise FieldError(
            f"only nfs:// and lustre:// have options, and not {plain(source.text)}",
            write="remove options:",
            key="options",
        )
    if stage == "none":
        _check_mounted(values)


def _check_mounted(values: Mapping[str, Any]) -> None:
    """Refuse fields that do not fit a data set that is mounted in place. Raises FieldError with the key at fault."""
    source = values["from"]
    if source.kind not in (*_SERVERS, *_STORES):
        raise FieldError(
            f"none mounts file servers and stores only, and not {plain(source.text)}",
            write="write stage: disk, or stage: ram with size:; kit data stage then copies it to the hosts",
            key="stage",
        )
    if values.get("write") and source.kind == "http":
        raise FieldError(
            f"nothing can be written to {plain(source.text)}",
            write="remove write:; ranks write to $KIT_OUTPUT_DIR, and kit pull brings that home",
            key="write",
        )
    if values.get("split") == "hosts":
        raise FieldError(
            "hosts needs a copy on each host, and stage: none has no copies",
            write="remove split:, or write stage: disk",
            key="split",
        )


def _fields() -> Iterator[Setting]:
    values = defaults(DataSpec)

    def field(
        key: str, kind: Kind, description: str, *, example: object = None, rule: Callable[[Any], object] | None = None
    ) -> Setting:
        default = values.get(key)
        return Setting(
            path=f"data.NAME.{key}",
            description=description,
            default=default,
            example=default if example is None else example,
            variable=None,
            kind=kind,
            rule=rule,
        )

    yield field(
        "from",
        Text(),
        "Where the data is: s3://BUCKET/FOLDER, oss://, gs://, azure://CONTAINER/FOLDER, rclone:REMOTE:FOLDER, "
        "https://…, nfs://SERVER/EXPORT, lustre://MGS@tcp/FSNAME, a folder of this machine (relative to this file) or "
        "HOST:/FOLDER of a host.",
        example="s3://bucket/imagenet",
        rule=datasource.source,
    )
    yield field("to", Text(), "Folder of the nodes that has the data.", example="/data/imagenet", rule=folders.to)
    yield field(
        "stage",
        Choice(get_args(Stage), instead=_STAGES),
        "disk: copied to each VM's disk. ram: copied to its memory. none: mounted in place; not for folders.",
    )
    yield field(
        "dir",
        Text(),
        f"With stage: disk, the folder of the VMs for the copy. Default: {names.DATA_DISK}.",
        example="/nvme",
        rule=folders.on_vms,
    )
    yield field(
        "size",
        Text(),
        "With stage: ram, the most memory that the data may use on each host. Required there.",
        example="60gb",
        rule=rules.size,
    )
    yield field(
        "split",
        Choice(get_args(Split)),
        "none: each host has all files. hosts: each host has its own part, of about the same size.",
    )
    yield field(
        "write", Truth(), "Let nodes write: with stage: none to the source, else to their own host's copy alone."
    )
    yield field(
        "options",
        Text(),
        "With nfs:// or lustre://, the options of the mount, in place of those that the vendors advise.",
        example="nfsvers=3,nolock,hard",
        rule=folders.mount_options,
    )


FIELDS: Mapping[str, Setting] = {setting.key: setting for setting in _fields()}
