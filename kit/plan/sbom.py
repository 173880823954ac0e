"""The components of an image, from the files in which its package managers keep their lists. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from kit.model.sbom import Component
from kit.model.text import printable

STATUS = "var/lib/dpkg/status"
RPM = "var/lib/rpm"
OS_RELEASE = "usr/lib/os-release"
PROGRAMS = ("opt/kit/bin/", "opt/kit/lib/")
# The build compiles this package, and installs its result.
_COMPILED = frozenset({"horovod"})
# The program that the build compiles from images/src.
_COMPILED_FILES = frozenset({"opt/kit/bin/kit-fork", "opt/kit/bin/mpi_perf"})

# The image is not trusted: a name goes into an address of a package, and onto a terminal.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:!_-]{0,199}", re.ASCII)
_ARCH = re.compile(r"[a-z0-9-]{0,40}", re.ASCII)
_LICENSE = re.compile(r"[ -~]{1,100}", re.ASCII)
_METADATA = re.compile(r"(?:.*/)?[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO)")
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)")
_CLASSIFIER = "License :: OSI Approved :: "


def components(files: Mapping[str, bytes]) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    """Return the components, sorted, and the paths of files that name none. `files` maps paths to bytes."""
    # A path of the image gets into the document and onto a terminal.
    files = {printable(path): content for path, content in files.items()}
    unreadable: set[str] = set()
    if OS_RELEASE in files and STATUS not in files:
        # kit reads no database of RPM.
        unreadable.add(STATUS if distribution(files)[0] in ("debian", "ubuntu") else RPM)
    listed = [*_debian(files, unreadable), *_python(files, unreadable), *_programs(files)]
    return tuple(sorted(listed, key=_order)), tuple(sorted(unreadable))


def distribution(files: Mapping[str, bytes]) -> tuple[str, str]:
    """Return the distribution's name and version, as in ("debian", "12"). Either is '' if the image does not say."""
    text = files.get(OS_RELEASE, b"").decode("utf-8", "replace")
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name, version = (values.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    return (name if _NAME.fullmatch(name) else "", version if _VERSION.fullmatch(version) else "")


def _order(component: Component) -> tuple[str, str, str, str, str]:
    return (component.kind, component.name, component.version, component.arch, component.path)


def _debian(files: Mapping[str, bytes], unreadable: set[str]) -> Iterator[Component]:
    for stanza in files.get(STATUS, b"").decode("utf-8", "replace").split("\n\n"):
        fields = _fields(stanza)
        if not fields.get("Status", [""])[0].endswith(" installed"):
            continue
        name, version, arch = (fields.get(key, [""])[0] for key in ("Package", "Version", "Architecture"))
        if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version) and _ARCH.fullmatch(arch)):
            unreadable.add(STATUS)
            continue
        source = fields.get("Source", [""])[0].split(" ")[0]
        lists = (f"var/lib/dpkg/info/{name}:{arch}.md5sums", f"var/lib/dpkg/info/{name}.md5sums")
        yield Component(
            kind="deb",
            name=name,
            version=version,
            arch=arch,
            source=source if _NAME.fullmatch(source) and source != name else "",
            licenses=_debian_licenses(files.get(f"usr/share/doc/{name}/copyright", b"")),
            path=STATUS,
            installed_sha256=next((_sha256(files[path]) for path in lists if path in files), ""),
        )


def _debian_licenses(text: bytes) -> tuple[str, ...]:
    """Return the short names in a copyright file that programs can read. Others begin without `Format:`."""
    if not text.startswith(b"Format:"):
        return ()
    lines = text.decode("utf-8", "replace").splitlines()
    values = [match[2] for line in lines if (match := _FIELD.fullmatch(line)) and match[1] == "License"]
    return tuple(sorted({value.strip() for value in values if _LICENSE.fullmatch(value.strip())}))


def _python(files: Mapping[str, bytes], unreadable: set[str]) -> Iterator[Component]:
    for path, text in files.items():
        if not _METADATA.fullmatch(path):
            continue
        fields = _fields(text.decode("utf-8", "replace").split("\n\n", 1)[0])
        name, version = (fields.get(key, [""])[0] for key in ("Name", "Version"))
        if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version)):
            unreadable.add(path)
            continue
        folder = path.rpartition("/")[0]
        record = files.get(f"{folder}/RECORD")
        yield Component(
            kind="pypi",
            name=re.sub(r"[-_.]+", "-", name).lower(),
            version=version,
            licenses=_python_licenses(fields),
            path=folder,
            installed_sha256=_sha256(record) if record is not None else "",
            built=name.lower() in _COMPILED,
        )


def _python_licenses(fields: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return the license expression, or else the classifiers, or else the first line of the license field."""
    expression = fields.get("License-Expression", [])
    classes = [line.removeprefix(_CLASSIFIER) for line in fields.get("Classifier", []) if line.startswith(_CLASSIFIER)]
    texts = expression[:1] or classes or fields.get("License", [])[:1]
    return tuple(sorted({text for text in texts if _LICENSE.fullmatch(text) and text != "UNKNOWN"}))


def _programs(files: Mapping[str, bytes]) -> Iterator[Component]:
    for path, content in files.items():
        if path.startswith(PROGRAMS) and not _METADATA.fullmatch(path) and "/__pycache__/" not in path:
            yield Component(
                kind="file", name=f"/{path}", path=path, sha256=_sha256(content), built=path in _COMPILED_FILES
            )


def _fields(text: str) -> dict[str, list[str]]:
    """Return the values of each field, without continued lines, which only descriptions and file lists have."""
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        if match := _FIELD.fullmatch(line):
            fields.setdefault(match[1], []).append(match[2].strip())
    return fields


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
