"""`nvidia-smi --query-gpu=… --format=csv` and `--query-compute-apps`. Pure."""

import time
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from pretended.machine import Failed, Gpu, Machine
from pretended.state import MIG_DEVICES

_NONE = "[N/A]"
# What a GPU that must be reset has for all that it would measure now.
FAILED = "GPU requires reset"


class Field(NamedTuple):
    """A field of a query: its name in the header, its value, and its unit."""

    name: str
    value: Callable[[Gpu], str]
    unit: str = ""


def temperature(gpu: Gpu) -> int:
    return 93 if gpu.throttled else 27 + gpu.load // 3


def power(gpu: Gpu) -> float:
    return gpu.model.idle + (gpu.model.power - gpu.model.idle) * gpu.load / 100


def clock(gpu: Gpu) -> int:
    """Return the clock of the multiprocessors. Heat lowers it to a sixth, and an idle GPU saves power."""
    if gpu.throttled:
        return gpu.model.clock // 6
    return gpu.model.clock if gpu.load else 345


def level(gpu: Gpu) -> str:
    return "P0" if gpu.load or gpu.model.rows else "P8"


def mig_mode(gpu: Gpu) -> str:
    if not gpu.model.mig:
        return _NONE
    return "Enabled" if gpu.mig else "Disabled"


def uncorrectable(gpu: Gpu) -> int:
    return 3 if "ecc" in gpu.faults or "xid:48" in gpu.faults else 0


def pending(gpu: Gpu) -> bool:
    """Return whether the GPU waits for a reset, which takes bad memory out of use."""
    return uncorrectable(gpu) > 0


def active(condition: bool) -> str:
    return "Active" if condition else "Not Active"


def yes(condition: bool) -> str:
    return "Yes" if condition else "No"


def reasons(gpu: Gpu) -> int:
    """Return the reasons for the clock as a bit mask, as NVML defines it."""
    return 0x48 if gpu.throttled else 0 if gpu.load else 1


def _const(text: str) -> Callable[[Gpu], str]:
    return lambda _: text


_PREFIX = "clocks_event_reasons."
_FIELDS = [
    Field("timestamp", lambda _: time.strftime("%Y/%m/%d %H:%M:%S.000")),
    Field("driver_version", lambda g: g.driver),
    Field("count", lambda g: str(g.total)),
    Field("index", lambda g: str(g.number)),
    Field("name", lambda g: g.name),
    Field("serial", _const(_NONE)),
    Field("uuid", lambda g: g.uuid),
    Field("pci.bus_id", lambda g: g.bus),
    Field("pci.domain", lambda g: "0x%s" % g.bus.split(":")[0][-4:]),
    Field("pci.bus", lambda g: "0x%s" % g.bus.split(":")[1]),
    Field("pci.device", _const("0x00")),
    Field("pci.device_id", lambda g: g.model.device),
    Field("pcie.link.gen.current", lambda g: str(g.model.generation)),
    Field("pcie.link.gen.max", lambda g: str(g.model.generation)),
    Field("pcie.link.width.current", _const("16")),
    Field("pcie.link.width.max", _const("16")),
    Field("display_mode", _const("Enabled")),
    Field("display_active", _const("Disabled")),
    Field("persistence_mode", _const("Enabled")),
    Field("compute_mode", _const("Default")),
    Field("compute_cap", lambda g: g.model.capability),
    Field("mig.mode.current", mig_mode),
    Field("mig.mode.pending", mig_mode),
    Field("fan.speed", _const(_NONE)),
    Field("pstate", level),
    Field(_PREFIX + "supported", _const("0x00000000000001FF")),
    Field(_PREFIX + "active", lambda g: "0x%016X" % reasons(g)),
    Field(_PREFIX + "gpu_idle", lambda g: active(not g.load and not g.throttled)),
    Field(_PREFIX + "applications_clocks_setting", _const("Not Active")),
    Field(_PREFIX + "sw_power_cap", _const("Not Active")),
    Field(_PREFIX + "hw_slowdown", lambda g: active(g.throttled)),
    Field(_PREFIX + "hw_thermal_slowdown", lambda g: active(g.throttled)),
    Field(_PREFIX + "hw_power_brake_slowdown", _const("Not Active")),
    Field(_PREFIX + "sw_thermal_slowdown", _const("Not Active")),
    Field(_PREFIX + "sync_boost", _const("Not Active")),
    Field("memory.total", lambda g: str(g.model.memory), "MiB"),
    Field("memory.used", lambda g: str(g.used), "MiB"),
    Field("memory.free", lambda g: str(g.model.memory - g.used), "MiB"),
    Field("utilization.gpu", lambda g: str(g.load), "%"),
    Field("utilization.memory", lambda g: str(g.load // 4), "%"),
    Field("temperature.gpu", lambda g: str(temperature(g))),
    Field("temperature.memory", lambda g: str(temperature(g) + 6) if g.model.rows else "N/A"),
    Field("power.draw", lambda g: "%.2f" % power(g), "W"),
    Field("power.limit", lambda g: "%.2f" % g.model.power, "W"),
    Field("power.max_limit", lambda g: "%.2f" % g.model.power, "W"),
    Field("enforced.power.limit", lambda g: "%.2f" % g.model.power, "W"),
    Field("clocks.current.graphics", lambda g: str(clock(g)), "MHz"),
    Field("clocks.current.sm", lambda g: str(clock(g)), "MHz"),
    Field("clocks.current.memory", lambda g: str(g.model.memory_clock), "MHz"),
    Field("clocks.max.graphics", lambda g: str(g.model.clock), "MHz"),
    Field("clocks.max.sm", lambda g: str(g.model.clock), "MHz"),
    Field("clocks.max.memory", lambda g: str(g.model.memory_clock), "MHz"),
    Field("ecc.mode.current", _const("Enabled")),
    Field("ecc.mode.pending", _const("Enabled")),
    Field("ecc.errors.corrected.volatile.total", _const("0")),
    Field("ecc.errors.corrected.aggregate.total", _const("0")),
    Field("ecc.errors.uncorrected.volatile.total", lambda g: str(uncorrectable(g))),
    Field("ecc.errors.uncorrected.aggregate.total", lambda g: str(uncorrectable(g))),
    Field("retired_pages.pending", lambda g: _NONE if g.model.rows else yes(pending(g))),
]
_BY_NAME = {field.name: field for field in _FIELDS}
# --query-remapped-rows has these, and --query-gpu has not.
_ROWS = [
    Field("gpu_name", lambda g: g.name),
    Field("gpu_bus_id", lambda g: g.bus),
    Field("gpu_uuid", lambda g: g.uuid),
    Field("remapped_rows.correctable", lambda g: "0" if g.model.rows else _NONE),
    Field("remapped_rows.uncorrectable", lambda g: str(uncorrectable(g)) if g.model.rows else _NONE),
    Field("remapped_rows.pending", lambda g: yes(pending(g)) if g.model.rows else _NONE),
    Field("remapped_rows.failure", lambda g: "No" if g.model.rows else _NONE),
]
_ROWS_BY_NAME = {field.name: field for field in _ROWS}
# Other spellings of the same fields. The header shows the first one.
_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
}
# Before the driver 535, the reasons had another name. Later drivers know both.
_OLD_PREFIX = "clocks_throttle_reasons."
# The first branch of the driver that knows a field.
_SINCE = ((_PREFIX, 535), ("compute_cap", 510), ("mig.mode.", 450))
_APPS = {
    "timestamp": "timestamp",
    "gpu_name": "gpu_name",
    "name": "process_name",
    "process_name": "process_name",
    "pid": "pid",
    "gpu_uuid": "gpu_uuid",
    "gpu_bus_id": "gpu_bus_id",
    "used_memory": "used_gpu_memory",
    "used_gpu_memory": "used_gpu_memory",
}


class Form(NamedTuple):
    """The words of --format."""

    header: bool
    units: bool


def form(text: str) -> Form:
    words = [word.strip() for word in text.split(",")]
    if "csv" not in words or set(words) - {"csv", "noheader", "nounits"}:
        raise Failed('"--format=%s" is not a valid format. Use csv, with noheader and nounits.' % text, 2)
    return Form(header="noheader" not in words, units="nounits" not in words)


def older(driver: str, branch: int) -> bool:
    """Return whether a driver is older than this branch."""
    return int(driver.split(".", maxsplit=1)[0]) < branch


def fields(text: str, driver: str) -> List[Field]:
    """Return the fields of a query. Raise Failed if this driver knows no such field."""
    chosen = []
    for word in (part.strip() for part in text.split(",")):
        name = _ALIASES.get(word, word)
        if any(name.startswith(start) and older(driver, branch) for start, branch in _SINCE):
            raise Failed('Field "%s" is not a valid field to query.\n' % word, 2)
        if name.startswith(_OLD_PREFIX):
            name = _PREFIX + name[len(_OLD_PREFIX) :]
        if name not in _BY_NAME:
            raise Failed('Field "%s" is not a valid field to query.\n' % word, 2)
        field = _BY_NAME[name]
        chosen.append(field._replace(name=word) if word.startswith(_OLD_PREFIX) else field)
    return chosen


def rows(text: str) -> List[Field]:
    """Return the fields of --query-remapped-rows."""
    words = [part.strip() for part in text.split(",")]
    for word in words:
        if word not in _ROWS_BY_NAME:
            raise Failed('Field "%s" is not a valid field to query.\n' % word, 2)
    return [_ROWS_BY_NAME[word] for word in words]


def needs_load(text: str) -> bool:
    """Return whether an answer depends on how busy the GPUs are. Measuring that takes a moment."""
    return any(word in text for word in ("utilization", "power.draw", "clocks", "temperature", "pstate"))


def csv(machine: Machine, chosen: Sequence[Field], shown: Form) -> str:
    lines = [", ".join(field.name + (" [%s]" % field.unit if field.unit else "") for field in chosen)]
    for gpu in machine.gpus:
        lines.append(", ".join(_value(gpu, field, shown) for field in chosen))
    return _joined(lines, shown)


def apps(machine: Machine, text: str, shown: Form) -> str:
    """Answer --query-compute-apps, one line for each process and GPU."""
    names = []
    for word in (part.strip() for part in text.split(",")):
        if word not in _APPS:
            raise Failed('Field "%s" is not a valid field to query.\n' % word, 2)
        names.append(_APPS[word])
    units = {"used_gpu_memory": "MiB"}
    lines = [", ".join(name + (" [%s]" % units[name] if name in units else "") for name in names)]
    for gpu in machine.gpus:
        for process in machine.processes:
            if gpu.minor not in process.minors:
                continue
            values: Dict[str, str] = {
                "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
                "gpu_name": gpu.name,
                "process_name": process.name,
                "pid": str(process.pid),
                "gpu_uuid": gpu.uuid,
                "gpu_bus_id": gpu.bus,
                "used_gpu_memory": str(process.memory),
            }
            lines.append(", ".join(_with_unit(values[name], units.get(name, ""), shown) for name in names))
    return _joined(lines, shown)


def _value(gpu: Gpu, field: Field, shown: Form) -> str:
    if gpu.failed and (field.unit or field.name.startswith("temperature.")):
        return "[%s]" % FAILED
    return _with_unit(field.value(gpu), field.unit, shown)


def _with_unit(value: str, unit: str, shown: Form) -> str:
    return "%s %s" % (value, unit) if unit and shown.units and value != _NONE else value


def _joined(lines: List[str], shown: Form) -> str:
    return "".join(line + "\n" for line in (lines if shown.header else lines[1:]))


def listing(machine: Machine) -> str:
    """Answer -L, with the MIG devices below their GPU."""
    lines: List[str] = []
    for gpu in machine.gpus:
        lines.append("GPU %d: %s (UUID: %s)" % (gpu.number, gpu.name, gpu.uuid))
        if gpu.mig:
            lines += [
                "  MIG %-15s Device %2d: (UUID: %s)" % (gpu.model.mig, device, uuid)
                for device, uuid in slices(machine, gpu)
            ]
    return "".join(line + "\n" for line in lines)


def slices(machine: Machine, gpu: Gpu) -> List[Tuple[int, str]]:
    """Return the number and UUID of each MIG device of a GPU."""
    return [(device, machine.state.mig_uuid(gpu.minor, device)) for device in range(MIG_DEVICES)] if gpu.mig else []
