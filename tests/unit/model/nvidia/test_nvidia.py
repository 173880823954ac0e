"""The parsers of nvidia-smi's output, on the captures of several machines and drivers, and on odd text."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kit.model.nvidia
from kit import errors
from kit.model import answer
from kit.model.answer import OddAnswer
from kit.model.nvidia import values
from kit.model.nvidia.listing import MOST_GPUS, ListedMig, listed
from kit.model.nvidia.state import MOST_DEPTH, GpuState, Mig, Process, State, state
from kit.model.nvidia.tables import ComputeApp, Sample, compute_apps, rows, samples
from kit.model.nvidia.topology import topology
from tests.unit.remote.ship.porter.test_language import newer

ROOT = Path(__file__).parents[4]
CAPTURES = ROOT / "tests/captures/nvidia-smi"
MACHINES = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir() and path.name != "failures")
MODULES = [*sorted(Path(kit.model.nvidia.__file__).parent.glob("*.py")), Path(answer.__file__), Path(errors.__file__)]

machines = pytest.mark.parametrize("machine", MACHINES)


def text(machine: str, file: str) -> str:
    return (CAPTURES / machine / file).read_text()


def full(machine: str) -> State:
    return state(text(machine, "state.xml"))


def first(machine: str) -> GpuState:
    return full(machine).gpus[0]


@machines
def test_all_formats_name_the_same_gpus(machine: str) -> None:
    gpus = [(gpu.index, gpu.name, gpu.uuid) for gpu in full(machine).gpus]
    assert gpus
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in listed(text(machine, "list.txt"))] == gpus
    table = rows(text(machine, "query.csv"), ("index", "name", "uuid", "driver_version", "rest"))
    assert [(int(row["index"] or -1), row["name"], row["uuid"]) for row in table] == gpus
    assert len(topology(text(machine, "topology.txt")).gpus) == len(gpus)
    assert [sample.gpu for sample in samples(text(machine, "samples.txt"))] == [gpu[0] for gpu in gpus]
    assert {app.gpu for app in compute_apps(text(machine, "apps.csv"))} <= {uuid for _, _, uuid in gpus}


@machines
def test_the_state_and_the_list_of_processes_agree(machine: str) -> None:
    computing = [
        (gpu.uuid, process.pid, process.memory_mib)
        for gpu in full(machine).gpus
        for process in gpu.processes
        if "C" in process.kind
    ]
    apps = compute_apps(text(machine, "apps.csv"))
    assert [(app.gpu, app.pid, app.memory_mib) for app in apps] == computing


@pytest.mark.parametrize(
    ("machine", "driver", "cuda"),
    [
        ("a100-mig-470", "470.57.02", "11.4"),
        ("h200x2-570", "570.124.06", "12.8"),
        ("p100x2-418", "418.87.00", "10.1"),
        ("rtx3060-laptop-580", "580.65.06", "13.0"),
        ("t4-450", "450.80.02", "11.0"),
    ],
)
def test_the_driver_and_its_cuda(machine: str, driver: str, cuda: str) -> None:
    assert (full(machine).driver, full(machine).cuda) == (driver, cuda)


def test_a_busy_h200() -> None:
    gpu = first("h200x2-570")
    assert (gpu.architecture, gpu.bus, gpu.memory_mib, gpu.used_mib) == ("Hopper", "00000000:19:00.0", 143771, 90210)
    assert (gpu.mig, gpu.ecc, gpu.uncorrected) == (False, True, 0)
    assert (gpu.reset_pending, gpu.remapping_failed) == (False, False)
    assert (gpu.watts, gpu.limit_watts, gpu.celsius) == (694.12, 700.0, 61.0)
    assert (gpu.sm_mhz, gpu.most_sm_mhz, gpu.memory_mhz, gpu.most_memory_mhz) == (1755, 1980, 3201, 3201)
    assert (gpu.link_generation, gpu.most_link_generation, gpu.link_width, gpu.most_link_width) == (5, 5, 16, 16)
    assert gpu.reasons == ("sw_power_cap",)
    assert gpu.fabric == "Completed"
    assert gpu.processes == (Process(pid=41210, kind="C", program="/usr/bin/python3", memory_mib=90200),)


def test_the_clock_for_programs_is_read_if_the_driver_reports_it() -> None:
    clock = "<applications_clocks><graphics_clock>1095 MHz</graphics_clock></applications_clocks>"
    document = text("h200x2-570", "state.xml")
    assert state(document).gpus[0].application_mhz is None
    assert state(document.replace("<max_clocks>", f"{clock}<max_clocks>")).gpus[0].application_mhz == 1095


def test_throttle_reasons_of_older_drivers_have_the_same_names() -> None:
    assert first("t4-450").reasons == ("gpu_idle", "hw_thermal_slowdown")
    assert first("p100x2-418").reasons == ()


def test_mig_devices() -> None:
    gpu = first("a100-mig-470")
    assert (gpu.mig, gpu.mig_pending) == (True, True)
    assert gpu.migs == (
        Mig(index=0, gpu_instance=1, compute_instance=0, memory_mib=19968),
        Mig(index=1, gpu_instance=2, compute_instance=0, memory_mib=19968),
    )
    (one,) = listed(text("a100-mig-470", "list.txt"))
    uuids = [f"MIG-0a0a0a0a-1111-5222-8333-00000000000{number}" for number in (1, 2)]
    assert one.migs == tuple(ListedMig(profile="3g.20gb", index=at, uuid=uuid) for at, uuid in enumerate(uuids))


def test_the_mig_uuid_of_an_older_driver_names_its_gpu() -> None:
    lines = "GPU 0: A100-SXM4-40GB (UUID: GPU-5c3b)\n  MIG 1g.5gb Device 0: (UUID: MIG-GPU-5c3b/7/0)\n"
    assert listed(lines)[0].migs == (ListedMig(profile="1g.5gb", index=0, uuid="MIG-GPU-5c3b/7/0"),)


def test_ecc_errors_and_what_waits_for_a_reset() -> None:
    broken, old = first("a100-mig-470"), first("p100x2-418")
    assert (broken.uncorrected, broken.reset_pending, broken.remapping_failed) == (2, True, False)
    assert (old.uncorrected, old.reset_pending, old.remapping_failed) == (0, False, None)
    double = text("p100x2-418", "state.xml").replace("<total>0</total>", "<total>7</total>", 2)
    assert state(double).gpus[0].uncorrected == 7


def test_a_consumer_card_does_not_report_much() -> None:
    gpu = first("rtx3060-laptop-580")
    missing = (gpu.ecc, gpu.uncorrected, gpu.limit_watts, gpu.mig, gpu.reset_pending, gpu.fabric)
    assert missing == (None,) * len(missing)
    assert [(process.kind, process.program, process.memory_mib) for process in gpu.processes] == [
        ("G", "/usr/lib/xorg/Xorg", 217),
        ("C+G", None, None),
    ]


def test_the_average_power_is_used_where_it_is_the_only_one() -> None:
    both = text("h200x2-570", "state.xml")
    one = both.replace("<instant_power_draw>694.12 W</instant_power_draw>", "")
    assert state(one).gpus[0].watts == 694.12


@pytest.mark.parametrize(
    "word", ["N/A", "[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "[GPU is lost]", "", " - ", "ERR!"]
)
def test_the_words_for_a_missing_value(word: str) -> None:
    assert values.known(word) is values.amount(word, "MiB") is values.whole(word) is values.name(word) is None


def test_amounts() -> None:
    assert values.amount("97.31 W", "W") == 97.31
    assert values.whole("81559 MiB", "MiB") == values.whole("81559", "MiB") == 81559
    assert values.whole("16x", "x") == 16
    assert values.amount("-2 C", "C") == -2
    for word in ("81559 GiB", "12a", "1e9", "9" * 30, "0x10", "1.2.3", "１"):
        with pytest.raises(OddAnswer):
            values.amount(word, "MiB")


def test_a_program_may_have_commas_in_its_name() -> None:
    apps = compute_apps(text("h200x2-570", "apps.csv"))
    assert apps[1] == ComputeApp(
        gpu="GPU-000000a2-1111-2222-3333-0000000000a2",
        pid=41211,
        program="python3 train.py --tags a, b",
        memory_mib=90208,
    )


# Some programs replace their name by their command line, as browsers do: seen with driver 525 in the tests of telegraf.
LONG = "/opt/a/a --type=gpu-process --preferences=" + "WAAAAAAAAAAg" * 500


@pytest.mark.parametrize(
    ("said", "shown"),
    [(LONG, LONG[:200] + "…"), ("a\tb\u202ec", "a?b?c"), ("x" * 200, "x" * 200), ("[Not Found]", None)],
)
def test_a_program_may_call_itself_anything(said: str, shown: str | None) -> None:
    before = "<process_name>python3 train.py --tags a, b</process_name>"
    document = text("h200x2-570", "state.xml")
    assert document.count(before) == 1
    gpus = state(document.replace(before, f"<process_name>{said}</process_name>")).gpus
    assert [process.program for process in gpus[1].processes if process.pid == 41211] == [shown]
    (app,) = compute_apps(f"gpu_uuid, pid, used_gpu_memory [MiB], process_name\n{gpus[1].uuid}, 41211, 5 MiB, {said}\n")
    assert app.program == shown


def test_a_program_that_may_not_be_seen_is_still_a_process() -> None:
    (app,) = compute_apps(text("a100-mig-470", "apps.csv"))
    assert (app.pid, app.program, app.memory_mib) == (7120, None, 1190)


def test_a_table_without_a_header_and_units() -> None:
    line = "NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b\nTesla T4, [N/A], GPU-77aa\n"
    table = list(rows(line, ("name", "memory.total", "uuid")))
    assert [row["memory.total"] for row in table] == ["40960", None]


def test_dmon_of_several_drivers() -> None:
    assert samples(text("h200x2-570", "samples.txt"))[1] == Sample(
        gpu=1, watts=688, celsius=60, busy_percent=98, memory_mhz=3201, sm_mhz=1770
    )
    assert samples(text("a100-mig-470", "samples.txt"))[0].busy_percent is None
    assert samples(text("t4-450", "samples.txt")) == (
        Sample(gpu=0, watts=9, celsius=89, busy_percent=0, memory_mhz=405, sm_mhz=300),
    )
    older = "# gpu   pwr  temp    sm  mclk  pclk\n# Idx     W     C     %   MHz   MHz\n"
    assert samples(older + "    0    43    35     0  3004   810\n")[0].celsius == 35
    again = text("p100x2-418", "samples.txt")
    assert len(samples(again * 3)) == 6


def test_the_matrix() -> None:
    matrix = topology(text("h200x2-570", "topology.txt"))
    assert (matrix.gpus, matrix.nics) == (("GPU0", "GPU1"), ("mlx5_0", "mlx5_1"))
    assert matrix.between_gpus() == ("NV18",)
    assert (matrix.nearest_nics("GPU0"), matrix.nearest_nics("GPU1")) == (("mlx5_0",), ("mlx5_1",))
    assert matrix.cpus["GPU1"] == "48-95,144-191"
    assert matrix.numa == {"GPU0": "0", "GPU1": "1"}


def test_the_matrix_of_older_drivers() -> None:
    matrix = topology(text("p100x2-418", "topology.txt"))
    assert (matrix.between_gpus(), matrix.cpus["GPU0"], matrix.numa) == (("SYS",), "0-13,28-41", {})
    assert topology(text("t4-450", "topology.txt")).numa == {}
    assert topology(text("a100-mig-470", "topology.txt")).nearest_nics("GPU0") == ("mlx5_0",)


def test_a_link_to_a_nic_is_none_between_gpus() -> None:
    matrix = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nmlx5_0\tSYS\tSYS\t X \n"
    assert topology(matrix).between_gpus() == ("NV4",)


def test_all_nics_are_equally_far() -> None:
    matrix = "\tGPU0\tmlx5_0\tmlx5_1\nGPU0\t X \tSYS\tSYS\n"
    assert topology(matrix).nearest_nics("GPU0") == ()
    assert topology("no matrix").gpus == ()


@pytest.mark.parametrize("name", [path.stem for path in (CAPTURES / "failures").iterdir()])
def test_a_failure_of_nvidia_smi_is_its_sentence(name: str) -> None:
    said = (CAPTURES / f"failures/{name}.txt").read_text()
    assert values.failure(said) == said.splitlines()[0]
    assert listed(said) == samples(said) == compute_apps(said) == ()
    with pytest.raises(OddAnswer):
        state(said)


@machines
@pytest.mark.parametrize("file", ["list.txt", "query.csv", "apps.csv", "samples.txt"])
def test_no_other_output_is_a_failure(machine: str, file: str) -> None:
    assert values.failure(text(machine, file)) is None


DOCUMENT = '<?xml version="1.0"?>\n<!DOCTYPE nvidia_smi_log {}>\n<nvidia_smi_log>{}</nvidia_smi_log>'


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (DOCUMENT.format('[<!ENTITY a "b">]', "<driver_version>&a;</driver_version>"), "defines an entity"),
        (DOCUMENT.format('[<!ENTITY % a SYSTEM "file:///etc/passwd">]', ""), "defines an entity"),
        (DOCUMENT.format('[<!ENTITY a "x"><!ENTITY b "&a;&a;">]', "&b;"), "defines an entity"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', "<a>" * MOST_DEPTH + "</a>" * MOST_DEPTH), "levels"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', "<gpu/>" * (MOST_GPUS + 1)), "GPUs"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', f"<driver_version>{'x' * 5000}</driver_version>"), "characters"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', "<driver_version>\x1b]0;a\x07</driver_version>"), "not XML"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', "<driver_version>5&#x9;70</driver_version>"), "not a version"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', "<gpu><uuid>GPU-&#x202e;</uuid></gpu>"), "not a name"),
        (DOCUMENT.format('SYSTEM "v12.dtd"', "<gpu><pci>"), "not XML"),
        ("<html></html>", "not the state"),
        ("", "not XML"),
        ('<?xml version="1.0" encoding="zlib"?><nvidia_smi_log/>', None),
    ],
)
def test_an_odd_document_is_refused(document: str, why: str | None) -> None:
    if why is None:
        assert state(document) == State()
        return
    with pytest.raises(OddAnswer, match=why):
        state(document)


def test_nothing_is_loaded_for_the_doctype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.open", None)
    monkeypatch.setattr("socket.socket", None)
    assert state(DOCUMENT.format('SYSTEM "http://192.0.2.1/nvsmi_device_v12.dtd"', "")) == State()


def test_odd_lists_and_tables_are_refused() -> None:
    with pytest.raises(OddAnswer, match="more than 256 GPUs"):
        listed("".join(f"GPU {number}: x (UUID: GPU-{number})\n" for number in range(300)))
    with pytest.raises(OddAnswer, match="not the name"):
        listed("GPU 0: \x1b]0;x (UUID: GPU-1)")
    with pytest.raises(OddAnswer, match="rows"):
        list(rows("a,b\n" * 20_001, ("x", "y")))
    for read in (listed, samples, topology):
        with pytest.raises(OddAnswer, match="200000 lines"):
            read("\n" * 200_001)
    with pytest.raises(OddAnswer, match="header"):
        topology("\tGPU0\tGPU0\nGPU0\tX\tX\n")
    with pytest.raises(OddAnswer, match="row"):
        topology("\tGPU0\tGPU1\nGPU0\tX\n")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_each_module_is_python_3_8(path: Path) -> None:
    """gpu-check runs them where only the standard library is."""
    ast.parse(path.read_text(), str(path), feature_version=(3, 8))
    old = {"dataclasses.", "dataclasses", "__future__.annotations", ":=", "frozen"}
    # `answer` uses it only for negative numbers, which no caller here asks for.
    allowed = old | ({"removeprefix"} if path.stem == "answer" else set())
    assert set(newer(path)) <= allowed
    assert "kw_only" not in path.read_text()
