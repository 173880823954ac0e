"""`kit image sbom`: list what the image consists of, as a bill of materials that other tools read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from kit.errors import InputError
from kit.events import HostDone, HostStep, Reporter
from kit.flows.context import Context
from kit.flows.image.build import TASK, head_engine, head_spec
from kit.flows.image.content import content
from kit.flows.image.cyclonedx import document
from kit.model.image import ImageContent
from kit.model.sbom import Bill
from kit.model.spec import ClusterSpec
from kit.plan.image import needed_bases
from kit.plan.sbom import components, distribution
from kit.remote.engine.client import Engine
from kit.remote.engine.packages import read_packages


class SbomResult(Struct, frozen=True, kw_only=True):
    """`document` is CycloneDX in JSON. `debian`, `python` and `files` are the numbers of components."""

    tag: str
    image_id: str
    document: str
    debian: int
    python: int
    files: int
    unreadable: tuple[str, ...]


def sbom(spec: ClusterSpec, *, reporter: Reporter, environ: Mapping[str, str]) -> SbomResult:
    """List the image in this machine's engine. Raises ImageError if it is missing, UnreachableError without an engine.

    `SOURCE_DATE_EPOCH` of `environ` replaces the time at which the image was built, in seconds since 1970.
    """
    with closing(Engine.connect()) as engine:
        return list_image(engine, content(spec), reporter, environ)


def sbom_on_head(context: Context, *, environ: Mapping[str, str]) -> SbomResult:
    """List the image in the head's engine."""
    with head_engine(context) as engine:
        return list_image(engine, content(head_spec(context)), context.reporter, environ)


def save(result: SbomResult, file: Path) -> None:
    """Write the document to `file`. Raises InputError if that is not possible."""
    try:
        file.write_text(result.document, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}", hint="name another file: -o FILE") from error


def list_image(engine: Engine, wanted: ImageContent, reporter: Reporter, environ: Mapping[str, str]) -> SbomResult:
    """List the image of this definition in an engine.

    Raises ImageError if it is missing or cannot be read, and AnswerError for odd answers of the engine.
    """
    task = engine.host or TASK
    reporter.report(HostStep(host=task, text=f"reading the package lists of {wanted.tag}"))
    packages = read_packages(engine, wanted.tag)
    parts, unreadable = components(packages.files)
    epoch = environ.get("SOURCE_DATE_EPOCH", "")
    bill = Bill(
        tag=wanted.tag,
        image_id=packages.image_id,
        created=float(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 12 else packages.created,
        arch=packages.arch,
        distribution=distribution(packages.files),
        bases=needed_bases(wanted),
        components=parts,
        base_packages=packages.base_packages,
        unreadable=unreadable,
    )
    counts = {kind: sum(component.kind == kind for component in parts) for kind in ("deb", "pypi", "file")}
    reporter.report(HostDone(host=task, text=f"{len(parts)} components"))
    return SbomResult(
        tag=bill.tag,
        image_id=bill.image_id,
        document=document(bill),
        debian=counts["deb"],
        python=counts["pypi"],
        files=counts["file"],
        unreadable=unreadable,
    )
