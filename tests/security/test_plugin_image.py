"""A hostile image in nccl.plugin reaches nothing on the VM: its tar is unpacked by root there, and nodes mount that."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kit.model import names
from kit.model.nccl import LIBRARY
from kit.remote.scripts import plugin, script
from tests.fakes.shell import bare_path

IMAGE = "kit-lab-nccl-plugin:0123456789abcdef"
ID = "sha256:" + "1f" * 32


def member(name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, **more: object) -> tuple[str, bytes]:
    """Return a member's header and content, as tar has them."""
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mode = len(content), kind, 0o644
    for field, value in more.items():
        setattr(info, field, value)
    return name, info.tobuf(tarfile.PAX_FORMAT) + content + b"\0" * (-len(content) % 512)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[str, bytes]:
    return member(name, kind=kind, linkname=target)


def folder(name: str) -> tuple[str, bytes]:
    return member(name, kind=tarfile.DIRTYPE, mode=0o700)


def tar(*members: tuple[str, bytes]) -> bytes:
    return b"".join(data for _, data in members) + b"\0" * 10240


LIB = member("./libnccl-net.so", b"ELF")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    made = tmp_path / "vm" / "plugins" / "new"
    made.mkdir(parents=True)
    return made


def unpacked(data: bytes, target: Path) -> None:
    plugin.unpack(io.BytesIO(data), str(target))


def test_files_folders_and_links_inside(target: Path) -> None:
    data = tar(
        folder("./"),
        link("./libnccl-net.so", "deep/libnccl-net.so.0"),
        folder("./deep"),
        member("./deep/libnccl-net.so.0", b"ELF", mode=0o755),
        link("./deep/up", "../libnccl-net.so"),
        link("./deep/again", "./deep/libnccl-net.so.0", tarfile.LNKTYPE),
        link("./lost", "not/there"),
        link("./deep/top", ".."),
        member("./long/".replace("long/", "x" * 200), b"long"),
    )
    unpacked(data, target)
    assert (target / "libnccl-net.so").read_bytes() == (target / "deep" / "up").read_bytes() == b"ELF"
    assert (target / "deep" / "again").samefile(target / "deep" / "libnccl-net.so.0")
    assert (target / ("x" * 200)).read_bytes() == b"long"
    plugin.check(str(target))


def test_owners_special_bits_and_attributes_do_not_count(target: Path) -> None:
    pax = {"SCHILY.xattr.security.capability": "\x01"}
    data = tar(
        member("sh", b"x", mode=0o6777, uid=4711, gid=4711, pax_headers=pax),
        member("open", b"x", mode=0o666),
        folder("deep"),
    )
    unpacked(data, target)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()}
    assert modes == {"sh": 0o755, "open": 0o644, "deep": 0o755}
    assert {path.stat().st_uid for path in target.iterdir()} == {os.geteuid()}
    assert os.listxattr(target / "sh") == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([member("/etc/evil", b"x")], "leads out of the folder"),
        ([member("../evil", b"x")], "leads out of the folder"),
        ([member("deep/../../evil", b"x")], "leads out of the folder"),
        ([folder("..")], "leads out of the folder"),
        ([link("a", "/etc")], "is not in the folder"),
        ([link("a", "..")], "is not in the folder"),
        ([link("a", "../..//vm")], "is not in the folder"),
        ([link("a", "../plugins/newer")], "is not in the folder"),
        # What leads out only with another link on its way.
        (
            [*map(folder, ("x", "x/y", "x/y/z")), link("x/y/z/d", "../.."), link("e", "x/y/z/d/../..")],
            "the link 'e' to",
        ),
        # Something is to be written through a link.
        ([link("a", ".."), link("a/evil", "x")], "is not in the folder"),
        ([folder("d"), link("a", "d"), link("a/evil", "x")], "is not in the folder"),
        ([link("a", "../evil"), member("a", b"x")], "twice"),
        ([link(".", "/etc")], "is no folder"),
        ([member("dev", kind=tarfile.CHRTYPE, devmajor=1, devminor=3)], "is no file, folder or link"),
        ([member("disk", kind=tarfile.BLKTYPE, devmajor=8)], "is no file, folder or link"),
        ([member("pipe", kind=tarfile.FIFOTYPE)], "is no file, folder or link"),
        ([member("sparse", kind=tarfile.GNUTYPE_SPARSE)], "is no file, folder or link"),
        ([member("/".join("x" * 40))], "too deep"),
        ([member("x" * 256)], "too long"),
    ],
)
def test_what_would_leave_the_folder_or_is_no_file(
    target: Path, members: Sequence[tuple[str, bytes]], message: str
) -> None:
    with pytest.raises(plugin.Refused, match=message):
        unpacked(tar(LIB, *members), target)
    assert not list(target.parent.parent.rglob("*evil*"))
    assert not list(target.parent.parent.parent.rglob("evil"))


@pytest.mark.parametrize(
    "members",
    [
        [link("hard", "/etc/passwd", tarfile.LNKTYPE)],
        [link("hard", "../../secret", tarfile.LNKTYPE)],
        [link("a", "../../secret"), link("hard", "a", tarfile.LNKTYPE)],
        [link("a", "../.."), link("hard", "a/secret", tarfile.LNKTYPE)],
        [link("a", "../.."), member("a/evil", b"x")],
        [LIB],
    ],
)
def test_nothing_outside_is_linked_or_overwritten(target: Path, members: Sequence[tuple[str, bytes]]) -> None:
    secret = target.parent.parent / "secret"
    secret.write_text("s3cret")
    with pytest.raises((plugin.Refused, OSError)):
        unpacked(tar(LIB, *members), target)
    assert secret.stat().st_nlink == 1
    assert not (target.parent.parent / "evil").exists()


def test_a_tar_without_end(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "MOST_BYTES", 100_000)
    monkeypatch.setattr(plugin, "MOST_ENTRIES", 20)
    with pytest.raises(plugin.Refused, match="has more than"):
        unpacked(tar(member("big", b"x" * 200_000)), target)
    with pytest.raises(plugin.Refused, match="has more than 20 files"):
        unpacked(tar(*(member(f"f{number}") for number in range(21))), target)
    with pytest.raises(plugin.Refused, match="has more than"):
        unpacked(tar(LIB) + b"\0" * 300_000, target)


def test_the_program_and_kit_agree() -> None:
    assert (plugin.LIBRARY, plugin.LABEL) == (LIBRARY, names.LABEL_PLUGIN)


@pytest.mark.parametrize(
    ("made", "fits"),
    [(["libnccl-net.so"], True), (["libnccl-net-ofi.so.0"], True), (["libnccl.so.2"], False), ([], False)],
)
def test_the_folder_must_have_a_plugin(target: Path, made: list[str], fits: bool) -> None:
    for name in made:
        (target / name).touch()
    (target / "libnccl-net-folder.so").mkdir()
    (target / "libnccl-net-lost.so").symlink_to("nothing")
    if fits:
        plugin.check(str(target))
    else:
        with pytest.raises(plugin.Refused, match=r"has no libnccl-net\*\.so"):
            plugin.check(str(target))


Copy = Callable[..., "tuple[subprocess.CompletedProcess[bytes], list[str]]"]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Run the program as on a VM, with a client of Docker that gives this tar. Return also what it was asked."""
    tools = bare_path(tmp_path / "bin", ["sh", "cat", "rm"])
    (tools / "python3").symlink_to(sys.executable)
    (tools / "docker").write_text(
        f"""#!{shutil.which("sh")}
echo "$@" >>{tmp_path}/asked
case $1 in
  image) [ "$2" = rm ] || echo {ID} ;;
  ps) cat {tmp_path}/containers 2>/dev/null || true ;;
  create) echo c0ffee >{tmp_path}/containers; echo c0ffee ;;
  rm) rm -f {tmp_path}/containers ;;
  cp) cat {tmp_path}/tar; [ ! -e {tmp_path}/fault ] || {{ cat {tmp_path}/fault >&2; exit 1; }} ;;
esac
"""
    )
    (tools / "docker").chmod(0o755)

    def run(
        data: bytes, *, fault: str = "", image: str = IMAGE
    ) -> tuple[subprocess.CompletedProcess[bytes], list[str]]:
        (tmp_path / "tar").write_bytes(data)
        if fault:
            (tmp_path / "fault").write_text(fault)
        argv = script("copy_plugin", "lab", image, "/opt/lib", f"{tmp_path}/kit/lab/plugins/0123456789abcdef")
        done = subprocess.run(
            [shutil.which("sh") or "sh", *argv[1:]],
            env={"PATH": str(tools)},
            capture_output=True,
            check=False,
            timeout=60,
        )
        return done, (tmp_path / "asked").read_text().splitlines()

    return run


def plugins(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "kit/lab/plugins").iterdir())


def test_nothing_of_the_image_is_run_and_nothing_stays_but_the_folder(tmp_path: Path, copy: Copy) -> None:
    leftover = tmp_path / "kit/lab/plugins/.new-killed"
    leftover.mkdir(parents=True)
    done, asked = copy(tar(LIB))
    assert done.returncode == 0, done.stderr
    assert plugins(tmp_path) == ["0123456789abcdef"]
    assert (tmp_path / "kit/lab/plugins/0123456789abcdef/libnccl-net.so").read_bytes() == b"ELF"
    assert {words.split()[0] for words in asked} == {"image", "ps", "create", "cp", "rm"}
    # By its id, which no engine pulls.
    (create,) = (words for words in asked if words.startswith("create"))
    assert f" --network none --label kit.plugin=lab --entrypoint /never {ID} " in create
    assert asked[-1] == f"image rm {IMAGE}"
    assert not (tmp_path / "containers").exists()
    assert stat.S_IMODE((tmp_path / "kit").stat().st_mode) == 0o700


def test_an_image_that_is_not_kits_name_stays(copy: Copy) -> None:
    _, asked = copy(tar(LIB), image=ID)
    assert not [words for words in asked if words.startswith("image rm")]


@pytest.mark.parametrize(
    ("data", "fault", "message"),
    [
        (tar(member("libnccl.so.2", b"ELF")), "", "/opt/lib has no libnccl-net*.so"),
        (tar(LIB, member("/etc/evil")), "", "/opt/lib has the name '/etc/evil', which leads out of the folder"),
        (b"", "Could not find the file /opt/lib/. in container c0ffee", "/opt/lib is no folder of the image"),
        (b"", "lstat /x/opt/lib/.: not a directory", "/opt/lib is no folder of the image"),
        (tar(LIB)[:700], "unexpected EOF", "/opt/lib cannot be copied: unexpected EOF"),
        (b"\x80" * 2048, "", "/opt/lib cannot be copied: "),
        # Headers that lie about their size.
        (tarfile.TarInfo("x").tobuf().replace(b"00000000000", b"77777777777", 1), "", "/opt/lib cannot be copied: "),
        (member("pax", kind=b"x", size=6 << 30)[1], "", "/opt/lib cannot be copied: "),
        (member("pax", kind=b"x")[1] * 3000, "", "/opt/lib cannot be copied: "),
    ],
)
def test_a_tar_that_cannot_be_used_leaves_nothing(
    tmp_path: Path, copy: Copy, data: bytes, fault: str, message: str
) -> None:
    done, asked = copy(data, fault=fault)
    assert done.returncode == 1
    assert done.stderr.decode().strip().startswith(message)
    assert b"Traceback" not in done.stderr
    assert plugins(tmp_path) == []
    assert asked[-1] == f"image rm {IMAGE}"
    assert not (tmp_path / "containers").exists()
