"""Parses `nvidia-smi -q -x`: the full state of each GPU, as XML.

Expat reads the XML. A document that defines an entity is refused, so none can grow, and expat loads nothing from the
DOCTYPE's address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from kit.model.answer import OddAnswer
from kit.model.nvidia.listing import MOST_GPUS
from kit.model.nvidia.values import amount, broken, check_size, known, line, name, program_name, whole, yes

# The largest real documents have about 400 elements a GPU, in 7 levels.
MOST_ELEMENTS = 400_000
MOST_DEPTH = 24
_END = "</nvidia_smi_log>"
# Nothing else in the document is longer than a line.
_LONGEST_TEXT = 4096
# Newer drivers say event, older ones throttle.
_REASON = re.compile(r"clocks_(?:throttle|event)_reason_([a-z_]{1,60})")
_VERSION = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,5}){0,3}")


@dataclass(frozen=True)
class Mig:
    """A MIG device of a GPU: its number, its GPU and compute instance, its memory, and its UUID if XML has it."""

    index: int
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class Process:
    """A process on a GPU. `kind` is C for computing, G for graphics, or both."""

    pid: int
    kind: str = ""
    program: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class GpuState:
    """One GPU. None means that the GPU or this driver does not report the value.

    `reasons` are what holds the clocks down now (gpu_idle, sw_power_cap, hw_thermal_slowdown …). `application_mhz` is
    the clock of the SMs that was set for programs. `uncorrected` counts ECC errors since the driver was loaded.
    `reset_pending`: rows or pages wait for a reset, and with `repair_pending` a spare channel or TPC. `unrepairable` is
    memory without spare parts. `sram_exceeded`: NVIDIA counts too many errors of the SRAM. `failed` is what nvidia-smi
    prints in place of the values of a GPU that no longer works, and `recovery` what the driver says that it needs, such
    as Reset. `fabric` is the state of NVSwitch, and `fabric_status` how joining it ended: Success, or an error of NVML.
    """

    index: int
    name: str
    uuid: str = ""
    bus: str = ""
    architecture: str | None = None
    memory_mib: int | None = None
    used_mib: int | None = None
    persistence: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    uncorrected: int | None = None
    reset_pending: bool | None = None
    remapping_failed: bool | None = None
    repair_pending: bool | None = None
    unrepairable: bool | None = None
    sram_exceeded: bool | None = None
    failed: str | None = None
    recovery: str | None = None
    celsius: float | None = None
    watts: float | None = None
    limit_watts: float | None = None
    sm_mhz: float | None = None
    most_sm_mhz: float | None = None
    application_mhz: float | None = None
    memory_mhz: float | None = None
    most_memory_mhz: float | None = None
    link_generation: int | None = None
    most_link_generation: int | None = None
    link_width: int | None = None
    most_link_width: int | None = None
    reasons: tuple[str, ...] = ()
    fabric: str | None = None
    fabric_status: str | None = None
    migs: tuple[Mig, ...] = ()
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True)
class State:
    """All GPUs of a host, the driver's version, and the newest CUDA that this driver supports."""

    driver: str = ""
    cuda: str | None = None
    gpus: tuple[GpuState, ...] = ()


@dataclass
class _Element:
    tag: str
    text: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[_Element] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[_Element]:
        return (child for child in self.children if child.tag == tag)

    def at(self, *paths: str) -> str:
        """Return the text at the first of these paths (`pci/pci_bus_id`) that exists, or ''."""
        for path in paths:
            element: _Element | None = self
            for tag in path.split("/"):
                element = next(element.all(tag), None) if element else None
            if element is not None:
                return element.text
        return ""


def state(text: str) -> State:
    """Return what `nvidia-smi -q -x` printed. Raises OddAnswer."""
    check_size(text)
    log = _tree(text)
    if log.tag != "nvidia_smi_log":
        raise OddAnswer("it is not the state that nvidia-smi prints", log.tag)
    gpus = list(log.all("gpu"))
    if len(gpus) > MOST_GPUS:
        raise OddAnswer(f"it has more than {MOST_GPUS} GPUs")
    driver, cuda = known(log.at("driver_version")) or "", known(log.at("cuda_version"))
    for version in filter(None, (driver, cuda)):
        if not _VERSION.fullmatch(version):
            raise OddAnswer("this is not a version", version)
    return State(driver=driver, cuda=cuda, gpus=tuple(_gpu(index, gpu) for index, gpu in enumerate(gpus)))


def _gpu(index: int, gpu: _Element) -> GpuState:
    power = next((one for tag in ("gpu_power_readings", "power_readings") for one in gpu.all(tag)), _Element(""))
    link = "pci/pci_gpu_link_info"
    return GpuState(
        index=index,
        name=name(gpu.at("product_name")) or "",
        uuid=name(gpu.at("uuid")) or "",
        bus=name(gpu.at("pci/pci_bus_id") or gpu.attributes.get("id", "")) or "",
        architecture=name(gpu.at("product_architecture")),
        memory_mib=whole(gpu.at("fb_memory_usage/total"), "MiB"),
        used_mib=whole(gpu.at("fb_memory_usage/used"), "MiB"),
        persistence=yes(gpu.at("persistence_mode")),
        mig=yes(gpu.at("mig_mode/current_mig")),
        mig_pending=yes(gpu.at("mig_mode/pending_mig")),
        compute_mode=name(gpu.at("compute_mode")),
        ecc=yes(gpu.at("ecc_mode/current_ecc")),
        uncorrected=_uncorrected(gpu),
        reset_pending=_any(
            gpu,
            "remapped_rows/remapped_row_pending",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_retirement",
        ),
        remapping_failed=yes(gpu.at("remapped_rows/remapped_row_failure")),
        repair_pending=_any(gpu, "ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending"),
        unrepairable=yes(gpu.at("ecc_errors/unrepairable_memory")),
        sram_exceeded=yes(gpu.at("ecc_errors/aggregate/sram_threshold_exceeded")),
        failed=broken(
            gpu.at("fb_memory_usage/total"),
            gpu.at("temperature/gpu_temp"),
            gpu.at("clocks/sm_clock"),
            gpu.at("utilization/gpu_util"),
        ),
        recovery=name(gpu.at("gpu_recovery_action")),
        celsius=amount(gpu.at("temperature/gpu_temp"), "C"),
        watts=amount(power.at("power_draw", "instant_power_draw", "average_power_draw"), "W"),
        limit_watts=amount(power.at("current_power_limit", "power_limit", "enforced_power_limit"), "W"),
        sm_mhz=amount(gpu.at("clocks/sm_clock"), "MHz"),
        most_sm_mhz=amount(gpu.at("max_clocks/sm_clock"), "MHz"),
        application_mhz=amount(gpu.at("applications_clocks/graphics_clock"), "MHz"),
        memory_mhz=amount(gpu.at("clocks/mem_clock"), "MHz"),
        most_memory_mhz=amount(gpu.at("max_clocks/mem_clock"), "MHz"),
        link_generation=whole(gpu.at(f"{link}/pcie_gen/current_link_gen")),
        most_link_generation=whole(gpu.at(f"{link}/pcie_gen/max_link_gen")),
        link_width=whole(gpu.at(f"{link}/link_widths/current_link_width"), "x"),
        most_link_width=whole(gpu.at(f"{link}/link_widths/max_link_width"), "x"),
        reasons=_reasons(gpu),
        fabric=name(gpu.at("fabric/state")),
        fabric_status=_fabric_status(gpu),
        migs=tuple(_migs(gpu)),
        processes=tuple(_processes(gpu)),
    )


def _uncorrected(gpu: _Element) -> int | None:
    """Return the uncorrected ECC errors since the driver was loaded. Three generations of names."""
    volatile = next((child for errors in gpu.all("ecc_errors") for child in errors.all("volatile")), None)
    if volatile is None:
        return None
    total = volatile.at("double_bit/total")
    if total:
        return whole(total)
    tags = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
    counts = [count for tag in tags if (count := whole(volatile.at(tag))) is not None]
    return sum(counts) if counts else None


def _fabric_status(gpu: _Element) -> str | None:
    """Return the status of the fabric. Words such as Unknown Error are no missing value here: joining it failed."""
    status = gpu.at("fabric/status")
    return None if status in ("", "N/A") else line(status)


def _any(gpu: _Element, *paths: str) -> bool | None:
    """Return whether one of these states is on, or None if all are unknown."""
    states = {yes(gpu.at(path)) for path in paths}
    return None if states == {None} else True in states


def _reasons(gpu: _Element) -> tuple[str, ...]:
    groups = [group for tag in ("clocks_event_reasons", "clocks_throttle_reasons") for group in gpu.all(tag)]
    matches = ((_REASON.fullmatch(child.tag), child) for group in groups for child in group.children)
    return tuple(match[1] for match, child in matches if match and yes(child.text))


def _migs(gpu: _Element) -> Iterator[Mig]:
    for devices in gpu.all("mig_devices"):
        for number, device in enumerate(devices.all("mig_device")):
            if number == MOST_GPUS:
                raise OddAnswer(f"a GPU has more than {MOST_GPUS} MIG devices")
            index = whole(device.at("index"))
            yield Mig(
                index=number if index is None else index,
                gpu_instance=whole(device.at("gpu_instance_id")),
                compute_instance=whole(device.at("compute_instance_id")),
                memory_mib=whole(device.at("fb_memory_usage/total"), "MiB"),
                uuid=name(device.at("uuid")),
            )


def _processes(gpu: _Element) -> Iterator[Process]:
    for processes in gpu.all("processes"):
        for process in processes.all("process_info"):
            pid = whole(process.at("pid"))
            if pid is not None:
                memory = whole(process.at("used_memory"), "MiB")
                kind, program = name(process.at("type")) or "", program_name(process.at("process_name"))
                yield Process(pid=pid, kind=kind, program=program, memory_mib=memory)


def _tree(text: str) -> _Element:
    """Return the document's root. Raises OddAnswer for other text, an entity, and a document above the limits."""
    root = _Element("")
    path = [root]
    number = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal number
        number += 1
        if number > MOST_ELEMENTS or len(path) > MOST_DEPTH:
            raise OddAnswer(f"it has more than {MOST_ELEMENTS} elements or {MOST_DEPTH} levels")
        element = _Element(tag, attributes=attributes)
        path[-1].children.append(element)
        path.append(element)

    def end(_tag: str) -> None:
        element = path.pop()
        element.text = element.text.strip()

    def data(piece: str) -> None:
        element = path[-1]
        if len(element.text) + len(piece) > _LONGEST_TEXT:
            # Only the space between elements adds up to more.
            if not (element.text + piece).strip():
                return
            if element.tag == "process_name":
                # A program may have a longer command line; program_name cuts it anyway.
                element.text = (element.text + piece)[:_LONGEST_TEXT]
                return
            raise OddAnswer(f"a value has more than {_LONGEST_TEXT} characters", piece)
        element.text += piece

    def entity(*_: object) -> None:
        raise OddAnswer("it defines an entity, which nvidia-smi does not")

    # The encoding is given, so that the document cannot name one. Text is buffered, or each line end would be a piece.
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = data, entity
    try:
        # Complaints of the driver may precede the document, and warnings follow it.
        first, last = max(0, text.find("<?xml")), text.rfind(_END)
        parser.Parse(text[first : last + len(_END) if last > first else None].encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise OddAnswer(f"it is not XML ({error})", text) from None
    return root.children[0]
