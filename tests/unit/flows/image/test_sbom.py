"""A bill of materials is a valid CycloneDX document, and the same one for the same image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kit.errors import InputError
from kit.events import Silent
from kit.flows.image import sbom as flow
from kit.flows.image.cyclonedx import document
from kit.model.sbom import Bill, Component
from kit.model.spec import ClusterSpec
from kit.remote.engine.packages import Packages
from tests.unit.plan.test_sbom import TREE

BILL = Bill(
    tag="kit:cpu-0123456789ab",
    image_id="sha256:" + "ab" * 32,
    created=1_795_385_230.0,
    arch="amd64",
    distribution=("debian", "12"),
    bases=("debian:bookworm-slim@sha256:" + "cd" * 32,),
    components=(
        Component(
            kind="deb", name="libstdc++6", version="12.2.0-14", arch="amd64", source="gcc-12", licenses=("a", "b")
        ),
        Component(kind="file", name="/opt/kit/bin/mpi_perf", path="opt/kit/bin/mpi_perf", sha256="ef" * 32, built=True),
        Component(kind="pypi", name="h5py", version="3.16.0", licenses=("BSD-3-Clause",), path="opt/h5py.dist-info"),
    ),
    base_packages="sha256:" + "12" * 32,
    unreadable=("a/b.dist-info/METADATA",),
)


def validated(text: str) -> dict[str, Any]:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    value: dict[str, Any] = json.loads(text)
    return value


def test_the_document_is_valid_and_has_addresses_licenses_and_digests() -> None:
    bom = validated(document(BILL))
    parts = {part["name"]: part for part in bom["components"]}
    assert parts["libstdc++6"]["purl"] == (
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=amd64&distro=debian-12&upstream=gcc-12"
    )
    assert parts["h5py"]["purl"] == "pkg:pypi/h5py@3.16.0"
    assert parts["h5py"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert parts["libstdc++6"]["licenses"] == [{"license": {"name": "a"}}, {"license": {"name": "b"}}]
    assert parts["/opt/kit/bin/mpi_perf"]["hashes"] == [{"alg": "SHA-256", "content": "ef" * 32}]
    image = bom["metadata"]["component"]
    assert (image["name"], image["version"], image["type"]) == ("kit", "cpu-0123456789ab", "container")
    properties = {entry["name"]: entry["value"] for entry in image["properties"]}
    assert properties["kit:base"] == BILL.bases[0]
    assert properties["kit:base-made-from"] == BILL.base_packages
    assert properties["kit:unreadable"] == "a/b.dist-info/METADATA"
    assert bom["metadata"]["timestamp"].startswith("2026-11-22T22:07:10")


def test_the_same_image_has_the_same_document() -> None:
    assert document(BILL) == document(BILL)


class FakeEngine:
    host = None

    def close(self) -> None: ...


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(engine: object, tag: str) -> Packages:
        return Packages(image_id="sha256:" + "01" * 32, created=1.0, arch="amd64", files=dict(TREE))

    monkeypatch.setattr(flow, "read_packages", read)
    monkeypatch.setattr("kit.flows.image.sbom.Engine.connect", FakeEngine)


def test_the_time_is_that_of_the_image_or_the_one_that_you_set(engine: None) -> None:
    times = []
    for epoch in ({}, {"SOURCE_DATE_EPOCH": "1000000000"}, {"SOURCE_DATE_EPOCH": "40960²"}):
        result = flow.sbom(ClusterSpec(), reporter=Silent(), environ=epoch)
        times.append(validated(result.document)["metadata"]["timestamp"][:19])
    assert times == ["1970-01-01T00:00:01", "2001-09-09T01:46:40", "1970-01-01T00:00:01"]
    assert (result.debian, result.python, result.files) == (2, 3, 2)


def test_a_file_that_cannot_be_written_is_an_error_with_its_name(engine: None, tmp_path: Path) -> None:
    result = flow.sbom(ClusterSpec(), reporter=Silent(), environ={})
    flow.save(result, tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text() == result.document
    with pytest.raises(InputError, match="cannot write"):
        flow.save(result, tmp_path / "missing" / "a.json")
