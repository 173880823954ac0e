"""The faults of lab hosts: which there are, how a host gets one, and how it goes without a trace."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kit.plan.doctor.checks import CHECKS
from kit.remote.doctor.reader import main as reader
from kit.remote.lab import fault
from tests.fuse import mountable

__all__ = ["mountable"]

LIBRARY = Path(fault.__file__).with_name("fault.sh")
COMMAND = re.compile(r"kit lab fault HOST ([a-z-]+)")


def test_every_fault_is_of_a_check_and_every_check_that_names_one_has_it() -> None:
    assert set(fault.names()) <= {check.id for check in CHECKS}
    named = {match[1] for check in CHECKS for match in COMMAND.finditer(check.lab)}
    assert named
    assert named <= set(fault.names())


@pytest.mark.parametrize("name", fault.names())
def test_each_fault_is_a_program_with_a_purpose(name: str) -> None:
    assert fault.purpose(name).endswith(".")
    _, _, program, *_ = fault.argv("inject", name)
    assert subprocess.run(["bash", "-n"], input=program, text=True, check=False).returncode == 0
    assert "\ninject() {" in program


def test_the_guide_has_every_fault() -> None:
    guide = (Path(__file__).parents[4] / "docs/lab.md").read_text().partition("## Faults")[2].partition("\n## ")[0]
    assert {*re.findall(r"`([a-z-]+)`", guide)} >= {*fault.names()}


def test_values_are_words_of_the_command_and_no_part_of_the_program() -> None:
    argv = fault.argv("inject", "mtu-differs", "1400; reboot")
    assert argv[3:] == ["kit-lab-fault", "inject", "mtu-differs", "1400; reboot"]
    assert argv[2] == fault.argv("mend", "mtu-differs")[2]


def test_a_machine_that_is_no_lab_host_is_left_alone() -> None:
    done = subprocess.run(fault.argv("inject", "machine-id"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "this is no host of a lab\n")


def shell(folder: Path, *lines: str) -> str:
    """Run lines after the functions of fault.sh, with all that they write below `folder`."""
    start = (
        f"KIT={folder}/kit",
        f"RUN={folder}/run",
        f"SBIN={folder}/bin",
        f"PATH={folder}/bin:$PATH",
        "shopt -s nullglob",
    )
    text = "\n".join((LIBRARY.read_text(), *start, f"mkdir -p {folder}/kit/faults {folder}/bin", *lines))
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def begin(name: str) -> str:
    return f'FAULT={name}; mkdir -p "$KIT/faults/{name}"'


def test_a_line_comes_first_and_goes_again_with_its_inode_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n\n10.0.0.1 gpu1\n")
    inode = file.stat().st_ino
    shell(
        tmp_path,
        begin("own-name"),
        f"first_line {file} '127.0.1.1 gpu1'",
        begin("name-differs"),
        f"first_line {file} x",
    )
    assert file.read_text().splitlines()[:2] == ["x # kit-lab name-differs", "127.0.1.1 gpu1 # kit-lab own-name"]
    shell(tmp_path, "FAULT=own-name; repair")
    assert file.read_text().splitlines()[:2] == ["x # kit-lab name-differs", "127.0.0.1 localhost"]
    shell(tmp_path, "FAULT=name-differs; repair")
    assert (file.read_text(), file.stat().st_ino) == ("127.0.0.1 localhost\n\n10.0.0.1 gpu1\n", inode)


def test_two_faults_of_one_program_are_independent(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "smi").write_text("#!/bin/sh\necho mode=Default width=16x; exit 3\n")
    (real / "smi").chmod(0o755)
    path = f"PATH={tmp_path}/bin:{real}:$PATH"
    one = (begin("gpu-mode"), "echo 'edit+=(-e s/Default/Exclusive/)' | program smi")
    two = (begin("gpu-pcie"), "echo 'edit+=(-e s/16x/4x/)' | program smi")
    call = "code=0; smi || code=$?; echo $code"
    assert shell(tmp_path, path, *one, *two, call) == "mode=Exclusive width=4x\n3\n"
    assert shell(tmp_path, path, "FAULT=gpu-mode; repair", call) == "mode=Default width=4x\n3\n"
    assert shell(tmp_path, path, "FAULT=gpu-pcie; repair", call) == "mode=Default width=16x\n3\n"
    assert not list((tmp_path / "bin").iterdir())


def test_faults_of_one_host_are_changed_one_after_the_other(tmp_path: Path) -> None:
    """Also after one that left a process behind."""
    prepare, order = tmp_path / "prepare", tmp_path / "order"
    prepare.touch()
    library = LIBRARY.read_text().replace("/usr/lib/kit-lab/prepare", str(prepare))
    slow = 'inject() { background sleep 600; echo "begin $FAULT" >>$ORDER; sleep 0.2; echo "end $FAULT" >>$ORDER; }'
    begun = [
        subprocess.Popen(["bash", "-c", f"{library}\nKIT={tmp_path}/kit ORDER={order}\n{slow}\nmain inject {name}"])
        for name in ("one", "two", "three")
    ]
    assert [process.wait(60) for process in begun] == [0, 0, 0]
    lines = order.read_text().splitlines()
    assert sorted(lines[::2]) == ["begin one", "begin three", "begin two"]
    assert [line.replace("begin", "end") for line in lines[::2]] == lines[1::2]
    for name in ("one", "two", "three"):
        shell(tmp_path, f"FAULT={name}; repair")


def test_a_program_that_the_host_lacks_is_gone_again(tmp_path: Path) -> None:
    lines = (begin("clock-service"), "echo 'echo NTP=no; exit 0' | program kit-no-such", "kit-no-such")
    assert shell(tmp_path, *lines) == "NTP=no\n"
    shell(tmp_path, "FAULT=clock-service; repair")
    assert not list((tmp_path / "bin").iterdir())


def test_new_files_go_with_the_folders_made_for_them(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    shell(
        tmp_path, begin("gpu-next-kernel"), f"make_file {tmp_path}/boot/a/b/c <<<x", f"make_file {tmp_path}/boot/d <<<y"
    )
    assert (tmp_path / "boot/a/b/c").read_text() == "x\n"
    shell(tmp_path, "FAULT=gpu-next-kernel; repair")
    assert not list((tmp_path / "boot").iterdir())


def test_a_fault_that_fails_halfway_is_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "made"
    lines = (f"inject() {{ make_file {file} <<<x; fail no; }}", f"mkdir -p {tmp_path}/lib; : >{tmp_path}/lib/prepare")
    text = "\n".join(
        (
            LIBRARY.read_text().replace("/usr/lib/kit-lab/prepare", f"{tmp_path}/lib/prepare"),
            f"KIT={tmp_path}",
            *lines,
            "main inject disk",
        )
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "no\n")
    assert not file.exists()
    assert not list((tmp_path / "faults").iterdir())


def test_a_host_says_how_fast_its_far_end_should_be_until_that_is_done(tmp_path: Path) -> None:
    """An answer can be lost, so each one may be requested again."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/prepare").touch()
    start = LIBRARY.read_text().replace("/usr/lib/kit-lab/prepare", f"{tmp_path}/lib/prepare")
    shaper = "tc() { echo qdisc tbf rate 1Gbit burst 1; }"
    slow = LIBRARY.with_name("faults").joinpath("slow-link.sh").read_text()

    def main(*words: str) -> list[str]:
        own = start.replace("/usr/local/sbin/link-rate", f"echo >>{tmp_path}/rates")
        lines = (own, f"KIT={tmp_path}", shaper, slow, f"main {' '.join(words)}")
        done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    for rate in ("100mbit", "1Gbit"):
        word = "inject" if rate == "100mbit" else "mend"
        assert [main(word, "slow-link") for _ in range(2)] == [[fault.END]] * 2
        present = ["slow-link"] if word == "inject" else []
        assert main("list") == [*present, f"far-end {rate}", fault.END]
        assert main("shaped") == [fault.END]
        assert main("list") == [*present, fault.END]
    assert (tmp_path / "rates").read_text().splitlines()[-1] == "1Gbit eth0"


@pytest.mark.usefixtures("mountable")
@pytest.mark.parametrize("argument", ["", "silent"])
@pytest.mark.parametrize("name", ["store-mount", "fuse-mount"])
def test_a_mount_that_has_ended_or_is_silent(tmp_path: Path, name: str, argument: str) -> None:
    """Tests of kit doctor look at it in the lab. Here it is below another folder."""
    kind, top, folder = {
        "store-mount": ("fuse.rclone", "/opt/kit", "/opt/kit/.data/kit-lab/store/mount"),
        "fuse-mount": ("fuse.", "/mnt", "/mnt/kit-lab-fuse/files"),
    }[name]
    store = LIBRARY.with_name("faults").joinpath(f"{name}.sh").read_text()
    lines = (f"ARG={argument}", store.replace(f"{top}/", f"{tmp_path}{top}/"))
    point = f"{tmp_path}{folder}"

    def fault_there() -> object:
        reading = reader.Reading({"reads": [["mounts", kind, 5.0 if not argument else 0.5]], "look": None})
        reading.work()
        rows = reading.answer()["reads"][0]
        return rows[point][1] if point in rows else "nothing"

    try:
        shell(tmp_path, *lines, begin(name), "inject")
        assert fault_there() == (None if argument else "ENOTCONN")
    finally:
        shell(tmp_path, *lines, f"FAULT={name}", "repair")
    assert fault_there() == "nothing"
    assert not (tmp_path / top[1:]).exists()
    assert not list((tmp_path / "kit/faults").iterdir())


@pytest.mark.usefixtures("mountable")
def test_data_that_came_beside_the_mount_of_a_store_stays(tmp_path: Path) -> None:
    store = LIBRARY.with_name("faults").joinpath("store-mount.sh").read_text()
    lines = ("ARG=", store.replace("/opt/kit/", f"{tmp_path}/opt/kit/"))
    other = tmp_path / "opt/kit/.data/lab"
    shell(tmp_path, *lines, begin("store-mount"), "inject")
    other.mkdir()
    shell(tmp_path, *lines, "FAULT=store-mount", "repair")
    assert [path.name for path in other.parent.iterdir()] == ["lab"]


SMI = """<?xml version="1.0" ?>
<nvidia_smi_log>
\t<driver_version>550.54.15</driver_version>
\t<attached_gpus>2</attached_gpus>
GPUS</nvidia_smi_log>
"""
GPU = """\t<gpu id="00000000:NUMBER:00.0">
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<link_widths>
\t\t\t<max_link_width>16x</max_link_width>
\t\t\t<current_link_width>16x</current_link_width>
\t\t</link_widths>
\t\t<compute_mode>Default</compute_mode>
\t\t<max_clocks>
\t\t\t<graphics_clock>1980 MHz</graphics_clock>
\t\t</max_clocks>
\t\t<fabric>
\t\t\t<state>Completed</state>
\t\t</fabric>
\t</gpu>
"""


@pytest.mark.parametrize(
    ("name", "path", "before", "after"),
    [
        ("gpu-persistence", "gpu/persistence_mode", ["Enabled"] * 2, ["Disabled"] * 2),
        ("gpu-mode", "gpu/compute_mode", ["Default"] * 2, ["Exclusive_Process"] * 2),
        ("gpu-fabric", "gpu/fabric/state", ["Completed"] * 2, ["In Progress"] * 2),
        ("gpu-pcie", "gpu/link_widths/current_link_width", ["16x"] * 2, ["4x"] * 2),
        ("gpu-versions", "driver_version", ["550.54.15"], ["535.104.05"]),
        ("gpu-clocks", "gpu/applications_clocks/graphics_clock", [], ["900 MHz"] * 2),
        ("gpu-count", "gpu/compute_mode", ["Default"] * 2, ["Default"]),
    ],
)
def test_what_nvidia_smi_prints_changes(
    name: str, path: str, before: list[str], after: list[str], *, tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    text = SMI.replace("GPUS", GPU.replace("NUMBER", "19") + GPU.replace("NUMBER", "3B"))
    (real / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    (real / "nvidia-smi").chmod(0o755)
    lines = (f"PATH={tmp_path}/bin:{real}:$PATH", LIBRARY.with_name("faults").joinpath(f"{name}.sh").read_text())
    values = []
    for doing in ("", f"{begin(name)}; inject"):
        log = ElementTree.fromstring(shell(tmp_path, *lines, doing, "nvidia-smi -q -x"))  # noqa: S314  (written above)
        values.append([element.text for element in log.iterfind(path)])
    assert values == [before, after]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("", ["engine"]),
        # The host has restarted: /run is new, and its engine has not started yet, or has.
        ("rm $SOCKET.kit-lab-fault", []),
        ("rm $SOCKET.kit-lab-fault; echo new >$SOCKET", ["new"]),
        # Only its engine has restarted.
        ("echo new >$SOCKET", ["new"]),
    ],
)
def test_a_hidden_engine_is_mended_also_after_a_restart(tmp_path: Path, after: str, expected: list[str]) -> None:
    socket = tmp_path / "docker.sock"
    socket.write_text("engine\n")
    program = (LIBRARY.with_name("faults") / "engine.sh").read_text()
    shell(tmp_path, program, f"SOCKET={socket}", begin("engine"), "inject", after, "FAULT=engine; repair")
    files = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert files == dict.fromkeys(["docker.sock"] if expected else [], "".join(f"{line}\n" for line in expected))
    assert not list((tmp_path / "kit/faults").iterdir())
