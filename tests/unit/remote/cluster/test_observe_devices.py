"""RDMA and huge pages of a host: what both programs print about trees as the kernel has them, and what kit reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kit.model.observed import RdmaGid, RdmaPort
from kit.remote import scripts
from kit.remote.cluster.rdma import devices_of, ports_of
from kit.remote.scripts import kernel

SCRIPTS = Path(scripts.__file__).parent
LINK = "fe80:0000:0000:0000:0e42:a1ff:fe12:3456"
OWN = "0000:0000:0000:0000:0000:ffff:0a00:0005"


def port(folder: Path, adapter: str, state: str, layer: str, gids: dict[int, tuple[str, str, str]]) -> None:
    """Make a port as /sys/class/infiniband has it. A GID without a kind is an unused entry."""
    place = folder / "class" / adapter / "ports" / "1"
    for name in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (place / name).mkdir(parents=True)
    (place / "state").write_text(f"{state}\n")
    (place / "link_layer").write_text(f"{layer}\n")
    for index, (gid, kind, interface) in gids.items():
        (place / "gids" / str(index)).write_text(f"{gid}\n")
        if kind:
            (place / "gid_attrs/types" / str(index)).write_text(f"{kind}\n")
        if interface:
            (place / "gid_attrs/ndevs" / str(index)).write_text(f"{interface}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    for name in ("uverbs0", "uverbs1", "rdma_cm"):
        (tmp_path / "dev" / name).touch()
    empty = "0000:0000:0000:0000:0000:0000:0000:0000"
    table = {
        0: (LINK, "IB/RoCE v1", "eth1"), 1: (LINK, "RoCE v2", "eth1"),
        2: (OWN, "IB/RoCE v1", "eth1"), 3: (OWN, "RoCE v2", "eth1"),
        10: (OWN, "RoCE v2", ""), 11: (empty, "", ""), 40: (OWN, "RoCE v2", "eth1"),
    }  # fmt: skip
    port(tmp_path, "mlx5_0", "4: ACTIVE", "InfiniBand", {0: (LINK, "IB/RoCE v1", "")})
    port(tmp_path, "mlx5_1", "4: ACTIVE", "Ethernet", table)
    port(tmp_path, "mlx5_10", "1: DOWN", "Ethernet", {})
    return tmp_path


def by_python(tree: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(kernel, "RDMA_DEVICES", str(tree / "dev"))
    monkeypatch.setattr(kernel, "RDMA_CLASS", str(tree / "class"))
    return kernel.rdma()


def by_shell(tree: Path) -> list[str]:
    text = (SCRIPTS / "observe.sh").read_text()
    part = text[text.index("  if [ -d /dev/infiniband ]") : text.index("  section gpus\n")]
    part = part.replace("/dev/infiniband", f"{tree}/dev").replace("/sys/class/infiniband", f"{tree}/class")
    done = subprocess.run(
        ["sh", "-c", 'section() { echo "@@ $1"; }\n' + part], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_both_programs_print_the_same(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = by_python(tree, monkeypatch)
    assert by_shell(tree) == ["@@ rdma", *lines]
    assert devices_of(lines) == ("rdma_cm", "uverbs0", "uverbs1")
    gids = tuple(
        RdmaGid(index=index, kind=kind, interface=interface, address=address)
        for index, kind, interface, address in (
            (0, "IB/RoCE v1", "eth1", ""), (1, "RoCE v2", "eth1", ""), (2, "IB/RoCE v1", "eth1", "10.0.0.5"),
            (3, "RoCE v2", "eth1", "10.0.0.5"), (10, "RoCE v2", "", "10.0.0.5"),
        )
    )  # fmt: skip
    assert ports_of(lines) == (
        RdmaPort(adapter="mlx5_0", number=1, state="ACTIVE", layer="InfiniBand"),
        RdmaPort(adapter="mlx5_1", number=1, state="ACTIVE", layer="Ethernet", gids=gids),
        RdmaPort(adapter="mlx5_10", number=1, state="DOWN", layer="Ethernet"),
    )


def test_a_host_without_rdma_prints_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_python(tmp_path, monkeypatch) == []
    assert by_shell(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "port mlx5_0 1 4: ACTIVE|Infini\x1b[1mBand", "port ../x 1 4: ACTIVE|Ethernet|more", "port mlx5_0 1 |",
        "port mlx5_0 9999 4: ACTIVE|Ethernet", f"gid mlx5_0 1 99999 eth0|RoCE v2|{OWN}",
        "gid mlx5_0 1 0 eth0|RoCE v2|zzzz", "device a b", "device \x1b[1m", "device " + "x" * 65,
    ],
)  # fmt: skip
def test_odd_lines_are_ignored(line: str) -> None:
    assert (devices_of([line]), ports_of([line])) == ((), ())


def test_no_more_lines_are_read_than_a_host_has() -> None:
    assert len(devices_of(["device x"] * 100_000)) == 4096


def test_huge_pages_of_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, total, free in ((2048, 512, 100), (1048576, 4, 3)):
        folder = tmp_path / f"hugepages-{size}kB"
        folder.mkdir()
        (folder / "nr_hugepages").write_text(f"{total}\n")
        (folder / "free_hugepages").write_text(f"{free}\n")
    monkeypatch.setattr(kernel, "HUGE_PAGES", str(tmp_path))
    lines = kernel.huge_pages()
    assert lines == ["hugepages_kib 5242880", "hugepages_free_kib 3350528"]
    text = (SCRIPTS / "observe.sh").read_text()
    part = text[text.index("  huge=0\n") : text.index("  if [ -r /etc/os-release ]")]
    part = part.replace("/sys/kernel/mm/hugepages", str(tmp_path))
    done = subprocess.run(["sh", "-c", part], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (lines, "")
    monkeypatch.setattr(kernel, "HUGE_PAGES", str(tmp_path / "none"))
    assert kernel.huge_pages() == []
    empty = subprocess.run(
        ["sh", "-c", part.replace(str(tmp_path), "/none")], capture_output=True, text=True, check=True
    )
    assert (empty.stdout, empty.stderr) == ("", "")
