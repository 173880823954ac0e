"""The pretended nvidia-smi: the arguments that kit and people use, in the real tool's formats."""

import sys
import time
from typing import Dict, List, Tuple

from pretended import log, query, tables
from pretended.machine import Failed, Gpu, Machine, look
from pretended.state import load

_VALUES = {
    "-i": "id",
    "--id": "id",
    "--query-gpu": "gpu",
    "--query-compute-apps": "apps",
    "--query-remapped-rows": "rows",
    "--format": "format",
    "-c": "count",
    "-s": "select",
    "-d": "display",
    "-l": "loop",
    "--loop": "loop",
}
_SWITCHES = {
    "-L": "list",
    "--list-gpus": "list",
    "-q": "query",
    "--query": "query",
    "-x": "xml",
    "--xml-format": "xml",
    "-m": "matrix",
    "--matrix": "matrix",
    "--version": "version",
    "-h": "help",
    "--help": "help",
}
_HELP = """\
NVIDIA System Management Interface (PRETENDED by kit's lab: nothing here is a GPU)

nvidia-smi [-i N] [-L | -q -x | --query-gpu=FIELDS --format=csv [-l SECONDS] | --query-compute-apps=FIELDS --format=csv]
nvidia-smi topo -m
nvidia-smi dmon -c 1 [-s pucvmet]
nvidia-smi --version
"""


def words(argv: List[str]) -> Tuple[str, Dict[str, str]]:
    """Return the subcommand and the options. Raise Failed for what the real tool would not understand either."""
    command = ""
    options: Dict[str, str] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if flag in _VALUES:
            if not equals and not rest:
                raise Failed('Option "%s" needs a value.' % flag, 2)
            options[_VALUES[flag]] = value if equals else rest.pop(0)
        elif word in _SWITCHES:
            options[_SWITCHES[word]] = ""
        elif word in ("topo", "dmon") and not command:
            command = word
        else:
            raise Failed("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2)
    return command, options


def needs_load(command: str, options: Dict[str, str]) -> bool:
    """Return whether an answer shows how busy the GPUs are."""
    if command == "topo" or {"list", "apps", "rows", "version", "help"} & set(options):
        return False
    return query.needs_load(options["gpu"]) if "gpu" in options else True


def check_loop(options: Dict[str, str]) -> None:
    """Raise Failed for a time between answers that is no number."""
    if "loop" in options and not options["loop"].isdigit():
        raise Failed('"%s" is not a valid value for --loop.' % options["loop"], 2)


def only(machine: Machine, ids: str) -> Machine:
    """Keep the GPUs that -i names: numbers, UUIDs or PCI addresses."""
    kept = []
    for word in ids.split(","):
        matching = [gpu for gpu in machine.gpus if word in (str(gpu.number), gpu.uuid, gpu.bus, gpu.bus[4:])]
        if not matching:
            raise Failed("No devices were found", 6)
        kept += matching
    return machine._replace(gpus=tuple(kept))


def unreachable(gpu: Gpu) -> str:
    address = gpu.bus[4:]
    return (
        "Unable to determine the device handle for GPU %s: GPU is lost.  Reboot the system to recover this GPU"
        % address
    )


def answer(command: str, options: Dict[str, str], machine: Machine) -> str:
    """Return what the real tool would print."""
    if "id" in options:
        machine = only(machine, options["id"])
    for gpu in machine.gpus:
        if gpu.lost:
            raise Failed(unreachable(gpu), 15)
    shown = options.get("format", "")
    if command == "topo":
        text = tables.topology(machine)
    elif command == "dmon":
        text = tables.dmon(machine, options.get("select", "puc"))
    elif "list" in options:
        text = query.listing(machine)
    elif {"gpu", "rows", "apps"} & set(options):
        text = _csv(machine, options, query.form(shown))
    elif "query" in options:
        text = log.xml(machine) if "xml" in options else log.text(machine)
    else:
        text = tables.summary(machine)
    return text


def _csv(machine: Machine, options: Dict[str, str], shown: query.Form) -> str:
    if "apps" in options:
        return query.apps(machine, options["apps"], shown)
    fields = query.fields(options["gpu"], machine.state.driver) if "gpu" in options else query.rows(options["rows"])
    return query.csv(machine, fields, shown)


def main(argv: List[str]) -> int:
    try:
        command, options = words(argv)
        check_loop(options)
        if "help" in options:
            sys.stdout.write(_HELP)
            return 0
        machine = look(load(), sampled=needs_load(command, options))
        if "version" in options:
            sys.stdout.write(tables.version(machine))
            return 0
        while True:
            sys.stdout.write(answer(command, options, machine))
            if "loop" not in options:
                break
            sys.stdout.flush()
            time.sleep(max(int(options["loop"]), 1))
            machine = look(load(), sampled=needs_load(command, options))
    except Failed as failure:
        sys.stdout.write(str(failure).rstrip("\n") + "\n")
        return failure.code
    return 0
