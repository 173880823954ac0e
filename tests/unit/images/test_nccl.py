"""Which network NCCL uses (kitrun.nccl): its lines, what a run requires, and how kit-rank ends a rank."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.unit.images.test_kit_rank import lines_of, run

nccl: Any = launcher.load("kitrun.nccl")

CAPTURES = Path(__file__).resolve().parents[2] / "captures" / "nccl"
FILES = sorted(CAPTURES.glob("*.txt"))
NETWORKS = {"IB", "PLUGIN", "Socket"}
# The file of NCCL's lines → the network that NCCL chose, and what fits it.
CHOSEN = {
    "2.16-socket": ("Socket", {"Socket"}),
    "2.18-ibext": ("IBext", {"IB", "PLUGIN"}),
    "2.18-socket": ("Socket", {"Socket"}),
    "2.19-socket": ("Socket", {"Socket"}),
    "2.21-libfabric": ("AWS Libfabric", {"PLUGIN"}),
    "2.26-ib": ("IB", {"IB"}),
    "2.27-disabled": ("Socket", {"Socket"}),
    "2.27-libfabric": ("Libfabric", {"PLUGIN"}),
    "2.27-plugin-failed": ("Socket", {"Socket"}),
    "2.28-socket": ("Socket", {"Socket"}),
    "2.28-plugin": ("FewLines", {"PLUGIN"}),
    "2.28-plugin-missing": ("Socket", {"Socket"}),
    "2.29-socket": ("Socket", {"Socket"}),
    "2.29-plugin": ("FewLines", {"PLUGIN"}),
}
# Without a GPU, NCCL looks for its plugin and goes no further. With a network that it cannot have, it gives up.
BEGUN = ("2.16-no-plugin", "2.16-plugin", "2.28-no-network")


def seen(file: str) -> Any:
    return nccl.look(nccl.Seen(), (CAPTURES / f"{file}.txt").read_text().splitlines())


def test_each_capture_is_read() -> None:
    assert {*CHOSEN, *BEGUN} == {path.stem for path in FILES}
    page = (CAPTURES / "README.md").read_text()
    assert all(f"| `{path.name}` |" in page for path in FILES)


@pytest.mark.parametrize("file", CHOSEN)
def test_the_network_that_nccl_chose(file: str) -> None:
    network, fits = CHOSEN[file]
    assert seen(file).networks == (network,)
    assert {one for one in NETWORKS if not nccl.verdict(one, seen(file))} == fits


@pytest.mark.parametrize(
    ("file", "require", "why"),
    [
        ("2.16-socket", "IB", "NET/IB : No device found."),
        ("2.16-socket", "PLUGIN", "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation"),
        ("2.18-socket", "IB", "Failed to open libibverbs.so[.1]"),
        ("2.18-socket", "PLUGIN", "NET/Plugin : Plugin load (libnccl-net.so) returned 2"),
        ("2.19-socket", "PLUGIN", "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file"),
        ("2.26-ib", "PLUGIN", "NET/Plugin: Could not find: libnccl-net.so."),
        ("2.26-ib", "Socket", "NET/IB : Using [0]mlx5_4:1/RoCE"),
        ("2.27-disabled", "IB", "NCCL_IB_DISABLE set by environment to 1."),
        ("2.27-disabled", "PLUGIN", "WARN NET/OFI Initializing plugin failed"),
        ("2.27-plugin-failed", "IB", "NET/IB : No device found."),
        ("2.27-plugin-failed", "PLUGIN", "Failed to initialize NET plugin SPCX"),
        ("2.27-libfabric", "Socket", "Initialized NET plugin Libfabric"),
        ("2.28-socket", "IB", "NET/IB : No device found."),
        ("2.28-socket", "PLUGIN", "NET/Plugin: Could not find: libnccl-net.so"),
        ("2.28-plugin", "IB", None),
        ("2.28-plugin", "Socket", "NET/Plugin: Loaded net plugin FewLines (v8)"),
        ("2.28-plugin-missing", "PLUGIN", "NET/Plugin: Could not find: nothere libnccl-net-nothere.so"),
        ("2.29-socket", "IB", "NET/IB : No device found."),
        ("2.29-plugin", "IB", "NET/IB : No device found."),
        ("2.21-libfabric", "IB", None),
    ],
)
def test_why_it_is_not_the_one_that_the_run_requires(file: str, require: str, why: str | None) -> None:
    begin = f"NCCL uses the network {CHOSEN[file][0]}, and nccl.require is {require}; NCCL "
    assert nccl.verdict(require, seen(file)).startswith(begin + (f"says: {why}" if why else "did not say why"))


@pytest.mark.parametrize("file", BEGUN)
def test_before_nccl_has_chosen_nothing_is_wrong(file: str) -> None:
    assert {nccl.verdict(require, seen(file)) for require in NETWORKS} == {""}
    # A collective network is another kind of plugin, so its absence is not the reason.
    no_plugin = "No plugin found" in "".join(seen(file).lines)
    assert no_plugin is (file == "2.16-no-plugin")


def test_the_loader_finds_the_plugin_where_nccl_looks(tmp_path: Path) -> None:
    """NCCL opens libnccl-net.so by name and reads ncclNetPlugin_v6, which begins with the plugin's name."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "plugin.c"
    source.write_text('struct { const char *name; void *calls[18]; } ncclNetPlugin_v6 = {"kit-test", {0}};\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "libnccl-net.so", source], check=True)
    look = "import ctypes; p = ctypes.CDLL('libnccl-net.so'); "
    look += "print(ctypes.c_char_p.in_dll(p, 'ncclNetPlugin_v6').value.decode())"
    code, data = run(f'exec {sys.executable} -c "{look}"', KIT_NCCL_FOLDER=str(tmp_path))
    assert (code, lines_of(data)) == (0, [("o", b"kit-test")])


def test_a_second_communicator_over_another_network_is_wrong_too() -> None:
    both = nccl.look(seen("2.26-ib"), ["gpu1:1:1 [0] NCCL INFO Using network Socket"])
    assert "uses the network Socket" in nccl.verdict("IB", both)


def test_what_is_kept_has_a_limit() -> None:
    many = nccl.look(nccl.Seen(), ["NCCL INFO NET/IB : No device found." + "x" * 10_000] * 1000)
    assert len(many.lines) <= 20
    assert max(map(len, many.lines)) <= nccl.LONGEST


@pytest.mark.parametrize(
    ("words", "expected"),
    [("", "INIT,NET"), ("ALL", "ALL"), ("GRAPH", "GRAPH,INIT,NET"), ("init,net", "init,net"), ("^NET", "INIT,NET")],
)
def test_the_subsystems(words: str, expected: str) -> None:
    assert nccl.subsystems(words) == expected


@pytest.mark.parametrize(
    ("files", "before", "name"),
    [
        (["libnccl-net.so"], {}, None),
        (["libnccl-net-ofi.so"], {}, "ofi"),
        (["libnccl-net-ofi.so.0"], {"NCCL_NET_PLUGIN": "mine"}, "mine"),
        (["libnccl-net-a.so", "libnccl-net-b.so"], {}, None),
    ],
    ids=str,
)
def test_the_plugin(tmp_path: Path, files: list[str], before: dict[str, str], name: str | None) -> None:
    for file in files:
        (tmp_path / file).touch()
    environ = {nccl.PLUGIN: str(tmp_path), "LD_LIBRARY_PATH": "/opt/base", **before}
    nccl.take_plugin(environ)
    assert environ["LD_LIBRARY_PATH"] == f"{tmp_path}:/opt/base"
    assert environ.get("NCCL_NET_PLUGIN") == name


def test_a_folder_without_a_plugin_ends_the_rank(tmp_path: Path) -> None:
    code, data = run("echo never", KIT_NCCL_FOLDER=str(tmp_path))
    assert code == 4
    assert b"".join(line for _, line in lines_of(data)).startswith(
        b"kit-rank: gpu7: %s has no libnccl-net*.so: check nccl.plugin" % bytes(tmp_path)
    )


def rank(file: str, require: str, script: str = "", **environ: str) -> tuple[int, list[bytes]]:
    """Run a rank that writes this capture as NCCL does, then the script. Return its exit code and its lines."""
    write = f'cat {CAPTURES}/{file}.txt >"$NCCL_DEBUG_FILE"; ' if file else ""
    # A separate run: another test may run such a rank at the same time, and the file of NCCL's lines is in /tmp.
    code, data = run(write + script, KIT_NCCL_NETWORK=require, KIT_RUN=f"a-run-{uuid.uuid4().hex}", **environ)
    return code, [line for _, line in lines_of(data)]


def test_a_rank_over_another_network_ends_at_once() -> None:
    code, lines = rank("2.19-socket", "IB", "exec sleep 60")
    assert code == 5
    assert lines == [
        b"kit-rank: gpu7: NCCL uses the network Socket, and nccl.require is IB; NCCL says: NET/IB : No device found."
    ]


def test_a_rank_that_ends_before_kit_reads_is_judged_too() -> None:
    assert rank("2.19-socket", "PLUGIN", "exit 0")[0] == 5


@pytest.mark.parametrize("require", ["IB", "PLUGIN"])
def test_the_right_network_changes_nothing(require: str) -> None:
    code, lines = rank("2.18-ibext", require, 'echo "$NCCL_DEBUG $NCCL_DEBUG_SUBSYS"; exit 3')
    assert (code, lines) == (3, [b"INFO INIT,NET"])


def test_the_file_is_gone_afterwards() -> None:
    _, lines = rank("2.18-ibext", "IB", 'echo "$NCCL_DEBUG_FILE"')
    assert lines[0].startswith(b"/tmp/kit-nccl-a-run-")
    assert not Path(os.fsdecode(lines[0].strip())).exists()


def test_rank_0_warns_if_nccl_chose_nothing() -> None:
    code, lines = rank("", "IB", "echo done")
    assert (code, lines) == (0, [b"done"])
    words = {"KIT_NCCL_NETWORK": "IB", "OMPI_COMM_WORLD_RANK": "0", "KIT_RUN": f"a-run-{uuid.uuid4().hex}"}
    code, data = run("echo done", **words)
    assert code == 0
    assert b"kit-rank: NCCL chose no network" in data or b"gpu7: NCCL chose no network in this run" in data


@pytest.mark.parametrize(
    ("level", "shown"),
    [("", 0), ("WARN", 1), ("INFO", len((CAPTURES / "2.27-disabled.txt").read_text().split("\n")) - 1)],
)
def test_you_see_the_lines_that_you_asked_for(level: str, shown: int) -> None:
    code, lines = rank("2.27-disabled", "Socket", **({"NCCL_DEBUG": level} if level else {}))
    assert code == 0
    assert len(lines) == shown
    assert all(b"NCCL" in line for line in lines)


def test_a_file_of_your_own_is_refused() -> None:
    code, lines = rank("", "IB", NCCL_DEBUG_FILE="/tmp/mine")
    assert code == 4
    assert b"NCCL_DEBUG_FILE is set, and nccl.require needs it" in lines[0]
