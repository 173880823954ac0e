"""The components of an image, from a small tree of package lists."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from kit.plan.sbom import components, distribution

STATUS = """\
Package: openmpi-bin
Status: install ok installed
Architecture: amd64
Source: openmpi (4.1.4-3)
Version: 4.1.4-3+b1
Description: high performance message passing library
 Version: 9 is a line of the description
 .
 Package: none

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: tzdata
Status: install ok installed
Architecture: all
Version: 2026a-0+deb12u1
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files: *
License: BSD-3-clause
Files: debian/*
License: GPL-2+
 This text goes on.
License: BSD-3-clause
"""
SITE = "opt/venv/lib/python3.11/site-packages"
TREE = {
    "usr/lib/os-release": b'PRETTY_NAME="Debian"\nID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status": STATUS.encode(),
    "var/lib/dpkg/info/openmpi-bin.md5sums": b"0  usr/bin/mpirun\n",
    "usr/share/doc/openmpi-bin/copyright": COPYRIGHT.encode(),
    "usr/share/doc/tzdata/copyright": b"This is in the public domain.\nLicense: no\n",
    f"{SITE}/horovod-0.28.1.dist-info/METADATA": b"Name: horovod\nVersion: 0.28.1\nLicense: Apache 2.0\n\nName: no\n",
    f"{SITE}/horovod-0.28.1.dist-info/RECORD": b"horovod/__init__.py,sha256=0,1\n",
    f"{SITE}/h5py-3.16.0.dist-info/METADATA": b"Name: h5py\nVersion: 3.16.0\nLicense-Expression: BSD-3-Clause\n",
    f"{SITE}/Jinja2.egg-info/PKG-INFO": (
        b"Name: Jinja_2\nVersion: 3.1\nClassifier: License :: OSI Approved :: BSD License\nLicense: x\n"
    ),
    "opt/kit/bin/mpi_perf": b"\x7fELF",
    "opt/kit/lib/kitrun/front.py": b"pass\n",
    "opt/kit/lib/kitrun/__pycache__/front.pyc": b"\0",
}


def test_debian_packages_that_are_installed() -> None:
    listed, unreadable = components(TREE)
    debian = [c for c in listed if c.kind == "deb"]
    assert [(c.name, c.version, c.arch, c.source, c.licenses) for c in debian] == [
        ("openmpi-bin", "4.1.4-3+b1", "amd64", "openmpi", ("BSD-3-clause", "GPL-2+")),
        ("tzdata", "2026a-0+deb12u1", "all", "", ()),
    ]
    assert debian[0].installed_sha256 == hashlib.sha256(b"0  usr/bin/mpirun\n").hexdigest()
    assert debian[1].installed_sha256 == ""
    assert unreadable == ()
    assert distribution(TREE) == ("debian", "12")


def test_python_packages_and_what_the_build_compiled() -> None:
    python = {c.name: c for c in components(TREE)[0] if c.kind == "pypi"}
    assert {name: (c.version, c.licenses, c.built) for name, c in python.items()} == {
        "h5py": ("3.16.0", ("BSD-3-Clause",), False),
        "horovod": ("0.28.1", ("Apache 2.0",), True),
        "jinja-2": ("3.1", ("BSD License",), False),
    }
    assert python["horovod"].installed_sha256 == hashlib.sha256(b"horovod/__init__.py,sha256=0,1\n").hexdigest()


def test_the_programs_of_kit() -> None:
    files = [c for c in components(TREE)[0] if c.kind == "file"]
    assert [(c.name, c.sha256[:8], c.built) for c in files] == [
        ("/opt/kit/bin/mpi_perf", hashlib.sha256(b"\x7fELF").hexdigest()[:8], True),
        ("/opt/kit/lib/kitrun/front.py", hashlib.sha256(b"pass\n").hexdigest()[:8], False),
    ]


def test_an_odd_file_is_named_and_ends_nothing() -> None:
    odd = "a/b.dist-info/METADATA"
    listed, unreadable = components(TREE | {odd: b"Name: \x1b]52;c;x\x07\nVersion: 1\n", "c.dist-info/METADATA": b""})
    assert unreadable == (odd, "c.dist-info/METADATA")
    assert listed == components(TREE)[0]
    bad_status = STATUS.replace("Version: 4.1.4-3+b1", "Version: 4?arch=no#x")
    listed, unreadable = components({"var/lib/dpkg/status": bad_status.encode()})
    assert [c.name for c in listed] == ["tzdata"]
    assert unreadable == ("var/lib/dpkg/status",)


def test_a_base_of_rpm_packages_is_not_called_complete() -> None:
    without = {path: content for path, content in TREE.items() if path != "var/lib/dpkg/status"}
    assert components(without)[1] == ("var/lib/dpkg/status",)
    rocky = without | {"usr/lib/os-release": b'ID="rocky"\nVERSION_ID="9.4"\n'}
    assert components(rocky)[1] == ("var/lib/rpm",)


def test_a_path_of_the_image_reaches_no_terminal() -> None:
    paths = ["a\x1b]52;c;x\x07/b.dist-info/METADATA", "opt/kit/bin/\x9b2J\udc80", "c\n.dist-info/METADATA"]
    files = {paths[0]: b"", paths[1]: b"x", paths[2]: b"Name: c\nVersion: 1\n"}
    listed, unreadable = components(files)
    assert unreadable == (r"a\x1b]52;c;x\x07/b.dist-info/METADATA",)
    assert [(c.name, c.path) for c in listed] == [
        (r"/opt/kit/bin/\x9b2J\udc80", r"opt/kit/bin/\x9b2J\udc80"),
        ("c", r"c\n.dist-info"),
    ]


@given(st.binary(max_size=400))
def test_no_list_of_a_strange_image_ends_kit(content: bytes) -> None:
    for path in TREE:
        listed, _ = components({path: content})
        assert all(c.name.isprintable() and c.version.isprintable() for c in listed)
        distribution({path: content})


def test_the_order_of_the_archive_changes_nothing() -> None:
    assert components(dict(reversed(TREE.items()))) == components(TREE)
