"""The schema, the samples of `kit init` and the reference agree with the code that reads kit.yaml."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.config.data import FIELDS as DATA_FIELDS
from kit.config.fields import settings
from kit.config.hosts import parse_hosts
from kit.config.sample import HOSTS, sample_config
from kit.config.schema import schema_text
from kit.config.setting import Setting, as_yaml
from kit.config.validate import values_of
from kit.config.yaml import load_spec
from kit.errors import InputError
from kit.model.spec import ClusterSpec
from kit.model.values import fields, is_value

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def validator() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        # jsonschema takes this package where it is, for formats that kit's schema does not use. Its import takes
        # seconds, because it builds 38 parsers.
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        jsonschema = importlib.import_module("jsonschema")
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "kit.yaml"
    return jsonschema.Draft202012Validator(schema)


def test_every_field_is_described() -> None:
    schema = json.loads(schema_text())
    for section in (schema, *schema["$defs"].values()):
        for name, field in section["properties"].items():
            assert field["description"], name
    assert '"env": "KIT' not in schema_text()


def uncommented() -> str:
    """The sample with every `#key: value` line taken at its word."""
    return "\n".join(
        line.replace("#", "", 1) if line.lstrip().startswith("#") and line.lstrip()[1:2] != " " else line
        for line in sample_config().split("\n")
    )


def test_the_sample_says_the_defaults_and_where_the_code_is(validator: Any) -> None:
    assert load_spec(sample_config(), source="kit.yaml") == ClusterSpec(code=".")
    validator.validate(yaml.safe_load(sample_config()))
    spec = values_of(load_spec(uncommented(), source="kit.yaml"))
    validator.validate(yaml.safe_load(uncommented()))
    for path, setting in settings().items():
        if setting.is_section:
            continue
        value: Any = spec
        for part in path.split("."):
            value = value[part]
        assert value == (setting.example if setting.default is None else setting.default), path
        # A new kit.yaml sets the code, and nothing else.
        assert f"{'' if path == 'code' else '#'}{setting.key}: " in sample_config()


def test_every_example_of_the_model_is_valid() -> None:
    for path, setting in settings().items():
        section, _, key = path.rpartition(".")
        text = f"{key}: {as_yaml(setting.example)}"
        load_spec(f"{section}:\n  {text}" if section else text, source=path)


@pytest.mark.parametrize(
    "text",
    [
        "env: {A: 1, B: x}",
        "command: python3 x.py",
        "command: [python3, 1]",
        "slots: auto",
        "slots: 3",
        "user: 1000",
        "setup: {driver: 580}",
        "mpi: {yield_when_idle: true}",
        "image:",
        "image: {flavour: auto}",
        "image: {flavour: gpu, frameworks: [pytorch]}",
        "image: {flavour: cuda}",
        "volumes:",
        "data:",
        "data: {}",
        "data: {web: {from: s3://bucket/web, to: /data/web}}",
        "data: {web: {from: ., to: /data/web, stage: ram, size: 2gb, split: hosts, write: true, dir: }}",
    ],
)
def test_what_kit_takes_an_editor_takes(validator: Any, text: str) -> None:
    load_spec(text, source="kit.yaml")
    validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        "nmae: x",
        "ssh: {usr: x}",
        "image: {flavour: cud}",
        "ssh_port: 0",
        "slots: many",
        "env: [a]",
        "name: [a]",
        "data: [a]",
        "data: {web: s3://bucket/web}",
        "data: {web: {from: s3://bucket/web}}",
        "data: {Web: {from: s3://bucket/web, to: /data}}",
        "data: {web: {from: s3://b/web, to: /data, stage: disc}}",
        "data: {web: {from: s3://bucket/web, to: /data, frm: x}}",
    ],
)
def test_what_kit_refuses_an_editor_refuses(validator: Any, text: str) -> None:
    with pytest.raises(InputError):
        load_spec(text, source="kit.yaml")
    assert not validator.is_valid(yaml.safe_load(text))


def test_the_sample_hosts_file_names_no_vm() -> None:
    with pytest.raises(InputError, match="hosts names no VM"):
        parse_hosts(HOSTS, source="hosts")
    lines = [line.removeprefix("#   ") for line in HOSTS.split("\n") if line.startswith("#   ")]
    assert len(parse_hosts("\n".join(lines), source="hosts").hosts) == 8


def test_the_reference_names_every_field_variable_and_default() -> None:
    text = (ROOT / "docs" / "input.md").read_text(encoding="utf-8")
    for row in reference_rows(settings().values()):
        assert row in text


def test_the_page_on_data_names_every_field_of_a_data_set() -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for setting in DATA_FIELDS.values():
        default = "" if setting.default is None else f"`{as_yaml(setting.default)}`"
        assert f"| `{setting.key}` | {default} | {setting.description} |" in text


def reference_rows(table: Iterable[Setting]) -> list[str]:
    rows = []
    for setting in table:
        if setting.is_section:
            continue
        default = "" if setting.default is None else f"`{as_yaml(setting.default)}`"
        variable = f"`{setting.variable}`" if setting.variable else ""
        rows.append(f"| `{setting.path}` | {default} | {variable} | {setting.wants} | {setting.description} |")
    return rows


def test_the_reference_and_the_model_have_the_same_fields() -> None:
    model = set()
    for name in fields(ClusterSpec):
        value = getattr(ClusterSpec(), name)
        model |= {
            name,
            *(f"{name}.{inner}" for inner in (fields(value) if is_value(value) else ())),
        }
    assert set(settings()) == model
