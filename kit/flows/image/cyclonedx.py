"""Writes a bill of materials as CycloneDX 1.6 in JSON. Equal images have equal documents."""

from __future__ import annotations

import datetime
import uuid
import warnings
from collections.abc import Iterator

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as Part
from cyclonedx.model.component import ComponentType
from cyclonedx.model.tool import Tool
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from kit import __version__
from kit.model.sbom import Bill, Component

# The names of the properties that only kit writes.
_OWN = "kit:"
# Serial numbers follow from the image's ID and this. It was drawn once, and is the same for all kits.
_NAMESPACE = uuid.UUID("6d0a0cc6-6f0c-5e8e-9a44-6c8e2c8f6f0b")


def document(bill: Bill) -> str:
    """Return the document, which ends with a newline."""
    root = _image(bill)
    parts = [_part(component, bill) for component in bill.components]
    bom = Bom(components=parts, serial_number=uuid.uuid5(_NAMESPACE, bill.image_id), version=1)
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(bill.created, datetime.UTC)
    bom.metadata.component = root
    bom.metadata.tools.tools.add(Tool(name="kit", version=__version__))
    bom.register_dependency(root, parts)
    with warnings.catch_warnings():
        # The list says what is in the image, and not what needs what.
        warnings.simplefilter("ignore")
        return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _image(bill: Bill) -> Part:
    repository, _, version = bill.tag.partition(":")
    digest = bill.image_id.removeprefix("sha256:")
    return Part(
        type=ComponentType.CONTAINER,
        name=repository,
        version=version,
        bom_ref="image",
        # An address of OCI has no place for the ID of an image that no registry has.
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        properties=[
            Property(name=f"{_OWN}image-id", value=bill.image_id),
            Property(name=f"{_OWN}architecture", value=bill.arch),
            *(Property(name=f"{_OWN}base", value=base) for base in bill.bases),
            *([Property(name=f"{_OWN}base-made-from", value=bill.base_packages)] if bill.base_packages else []),
            *(Property(name=f"{_OWN}unreadable", value=path) for path in bill.unreadable),
        ],
    )


def _part(component: Component, bill: Bill) -> Part:
    licenses = LicenseFactory()
    texts = component.licenses
    if len(texts) == 1:
        known = [licenses.make_from_string(texts[0])]
    else:
        # Several names have no stated relation, so each is only a name.
        known = [licenses.make_with_name(text) for text in texts]
    is_file = component.kind == "file"
    return Part(
        type=ComponentType.FILE if is_file else ComponentType.LIBRARY,
        name=component.name,
        version=component.version or None,
        bom_ref="|".join((component.kind, component.name, component.version, component.arch, component.path)),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=component.sha256)] if component.sha256 else (),
        licenses=known,
        purl=None if is_file else _address(component, bill),
        properties=list(_properties(component)),
    )


def _address(component: Component, bill: Bill) -> PackageURL:
    """Return the package's address, by which scanners look up its vulnerabilities."""
    if component.kind == "pypi":
        return PackageURL(type="pypi", name=component.name, version=component.version)
    name, version = bill.distribution
    qualifiers = {
        "arch": component.arch,
        "distro": f"{name}-{version}" if name and version else "",
        "upstream": component.source,
    }
    return PackageURL(
        type="deb",
        namespace=name or "debian",
        name=component.name,
        version=component.version,
        qualifiers={key: value for key, value in qualifiers.items() if value},
    )


def _properties(component: Component) -> Iterator[Property]:
    if component.kind == "pypi":
        yield Property(name=f"{_OWN}path", value=f"/{component.path}")
    if component.installed_sha256:
        yield Property(name=f"{_OWN}installed-files-sha256", value=component.installed_sha256)
    if component.built:
        yield Property(name=f"{_OWN}built", value="from source, with the image")
