"""`nvidia-smi -q -x` and `-q`: the elements that kit and monitoring read, with the real tool's names. Pure."""

import re
import time
from typing import List, Tuple, Union
from xml.sax.saxutils import escape

from pretended import query
from pretended.machine import Gpu, Machine

_MEASURED = re.compile(r"[0-9.]+ (?:MiB|MHz|[CW%])")
# An element: its name, and its text or its elements.
Element = Tuple[str, Union[str, List["Element"]]]


def xml(machine: Machine) -> str:
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
    lines = [
        "\t<timestamp>%s</timestamp>" % time.strftime("%a %b %e %H:%M:%S %Y"),
        "\t<driver_version>%s</driver_version>" % machine.state.driver,
        "\t<cuda_version>%s</cuda_version>" % machine.cuda,
        "\t<attached_gpus>%d</attached_gpus>" % len(machine.gpus),
    ]
    for gpu in machine.gpus:
        lines += ['\t<gpu id="%s">' % gpu.bus, *_lines(_shown(machine, gpu), 2), "\t</gpu>"]
    return head + "\n".join(lines) + "\n</nvidia_smi_log>\n"


def text(machine: Machine) -> str:
    """Return the same facts indented, under the names of the XML's elements. The real tool has longer names."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        "%-50s: %s" % ("Timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        "%-50s: %s" % ("Driver Version", machine.state.driver),
        "%-50s: %s" % ("CUDA Version", machine.cuda),
        "",
        "%-50s: %d" % ("Attached GPUs", len(machine.gpus)),
    ]
    for gpu in machine.gpus:
        lines += ["GPU %s" % gpu.bus, *_plain(_shown(machine, gpu), 1)]
    return "\n".join(lines) + "\n"


def _lines(elements: List[Element], depth: int) -> List[str]:
    made: List[str] = []
    for name, content in elements:
        tabs = "\t" * depth
        if isinstance(content, str):
            made.append("%s<%s>%s</%s>" % (tabs, name, escape(content), name))
        else:
            made += ["%s<%s>" % (tabs, name), *_lines(content, depth + 1), "%s</%s>" % (tabs, name)]
    return made


def _plain(elements: List[Element], depth: int) -> List[str]:
    made: List[str] = []
    for name, content in elements:
        label = "    " * depth + " ".join(word.capitalize() for word in name.split("_"))
        if isinstance(content, str):
            made.append("%-50s: %s" % (label, content))
        else:
            made += [label, *_plain(content, depth + 1)]
    return made


def _shown(machine: Machine, gpu: Gpu) -> List[Element]:
    elements = _elements(machine, gpu)
    return _without_values(elements) if gpu.failed else elements


def _without_values(elements: List[Element]) -> List[Element]:
    """Return the elements as of a GPU that no longer measures anything."""
    return [
        (name, _MEASURED.sub(query.FAILED, content) if isinstance(content, str) else _without_values(content))
        for name, content in elements
    ]


def _elements(machine: Machine, gpu: Gpu) -> List[Element]:
    mode = query.mig_mode(gpu).strip("[]")
    reasons = "clocks_throttle_reason" if query.older(gpu.driver, 535) else "clocks_event_reason"
    prefix = reasons + "_"
    return [
        ("product_name", gpu.name),
        ("product_brand", gpu.model.brand),
        ("product_architecture", gpu.model.architecture),
        ("display_mode", "Enabled"),
        ("display_active", "Disabled"),
        ("persistence_mode", "Enabled"),
        ("mig_mode", [("current_mig", mode), ("pending_mig", mode)]),
        ("mig_devices", _mig(machine, gpu) or "None"),
        ("serial", "N/A"),
        ("uuid", gpu.uuid),
        ("minor_number", str(gpu.minor)),
        *_recovery(gpu),
        ("pci", _pci(gpu)),
        ("fan_speed", "N/A"),
        ("performance_state", query.level(gpu)),
        (
            reasons + "s",
            [
                (prefix + "gpu_idle", query.active(not gpu.load and not gpu.throttled)),
                (prefix + "applications_clocks_setting", "Not Active"),
                (prefix + "sw_power_cap", "Not Active"),
                (prefix + "hw_slowdown", query.active(gpu.throttled)),
                (prefix + "hw_thermal_slowdown", query.active(gpu.throttled)),
                (prefix + "hw_power_brake_slowdown", "Not Active"),
                (prefix + "sync_boost", "Not Active"),
                (prefix + "sw_thermal_slowdown", "Not Active"),
                (prefix + "display_clocks_setting", "Not Active"),
            ],
        ),
        (
            "fb_memory_usage",
            [
                ("total", "%d MiB" % gpu.model.memory),
                ("reserved", "0 MiB"),
                ("used", "%d MiB" % gpu.used),
                ("free", "%d MiB" % (gpu.model.memory - gpu.used)),
            ],
        ),
        ("compute_mode", "Default"),
        ("utilization", [("gpu_util", "%d %%" % gpu.load), ("memory_util", "%d %%" % (gpu.load // 4))]),
        ("ecc_mode", [("current_ecc", "Enabled"), ("pending_ecc", "Enabled")]),
        ("ecc_errors", [("volatile", _errors(gpu)), ("aggregate", _errors(gpu))]),
        ("retired_pages", _retired(gpu)),
        ("remapped_rows", _remapped(gpu)),
        (
            "temperature",
            [("gpu_temp", "%d C" % query.temperature(gpu)), ("gpu_temp_slow_threshold", "92 C")],
        ),
        (
            "gpu_power_readings",
            [
                ("power_state", query.level(gpu)),
                ("power_draw", "%.2f W" % query.power(gpu)),
                ("current_power_limit", "%.2f W" % gpu.model.power),
                ("max_power_limit", "%.2f W" % gpu.model.power),
            ],
        ),
        ("clocks", _clocks(query.clock(gpu), gpu)),
        ("max_clocks", _clocks(gpu.model.clock, gpu)),
        *_fabric(gpu),
        ("processes", _processes(machine, gpu)),
    ]


def _recovery(gpu: Gpu) -> List[Element]:
    return [] if query.older(gpu.driver, 570) else [("gpu_recovery_action", "Reset" if gpu.failed else "None")]


def _fabric(gpu: Gpu) -> List[Element]:
    """Return the state of NVSwitch, which the models with 18 links have."""
    return [("fabric", [("state", "Completed"), ("status", "Success")])] if gpu.model.link == "NV18" else []


def _mig(machine: Machine, gpu: Gpu) -> List[Element]:
    return [
        (
            "mig_device",
            [
                ("index", str(device)),
                ("gpu_instance_id", str(device + 1)),
                ("compute_instance_id", "0"),
                ("uuid", uuid),
                ("fb_memory_usage", [("total", "%d MiB" % gpu.model.mig_memory), ("used", "1 MiB")]),
            ],
        )
        for device, uuid in query.slices(machine, gpu)
    ]


def _pci(gpu: Gpu) -> List[Element]:
    domain, bus, _ = gpu.bus.split(":")
    links = [("max_link_gen", str(gpu.model.generation)), ("current_link_gen", str(gpu.model.generation))]
    return [
        ("pci_bus", bus),
        ("pci_device", "00"),
        ("pci_domain", domain[-4:]),
        ("pci_device_id", gpu.model.device),
        ("pci_bus_id", gpu.bus),
        (
            "pci_gpu_link_info",
            [
                ("pcie_gen", list(links)),
                ("link_widths", [("max_link_width", "16x"), ("current_link_width", "16x")]),
            ],
        ),
    ]


def _errors(gpu: Gpu) -> List[Element]:
    count = str(query.uncorrectable(gpu))
    if gpu.model.rows:
        return [
            ("sram_correctable", "0"),
            ("sram_uncorrectable_parity", "0"),
            ("sram_uncorrectable_secded", "0"),
            ("dram_correctable", "0"),
            ("dram_uncorrectable", count),
        ]
    return [
        ("single_bit", [("device_memory", "0"), ("total", "0")]),
        ("double_bit", [("device_memory", count), ("total", count)]),
    ]


def _retired(gpu: Gpu) -> List[Element]:
    count = "N/A" if gpu.model.rows else str(query.uncorrectable(gpu))
    state = "N/A" if gpu.model.rows else query.yes(query.pending(gpu))
    return [
        ("multiple_single_bit_retirement", [("retired_count", "N/A" if gpu.model.rows else "0")]),
        ("double_bit_retirement", [("retired_count", count)]),
        ("pending_retirement", state),
    ]


def _remapped(gpu: Gpu) -> Union[str, List[Element]]:
    if not gpu.model.rows:
        return "N/A"
    return [
        ("remapped_row_corr", "0"),
        ("remapped_row_unc", str(query.uncorrectable(gpu))),
        ("remapped_row_pending", query.yes(query.pending(gpu))),
        ("remapped_row_failure", "No"),
    ]


def _clocks(clock: int, gpu: Gpu) -> List[Element]:
    return [
        ("graphics_clock", "%d MHz" % clock),
        ("sm_clock", "%d MHz" % clock),
        ("mem_clock", "%d MHz" % gpu.model.memory_clock),
    ]


def _processes(machine: Machine, gpu: Gpu) -> List[Element]:
    return [
        (
            "process_info",
            [
                ("gpu_instance_id", "N/A"),
                ("compute_instance_id", "N/A"),
                ("pid", str(process.pid)),
                ("type", "C"),
                ("process_name", process.name),
                ("used_memory", "%d MiB" % process.memory),
            ],
        )
        for process in machine.processes
        if gpu.minor in process.minors
    ]
