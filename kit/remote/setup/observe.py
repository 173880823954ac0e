"""Reads what a host has, in one command, and turns its text into SetupFacts."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Sequence
from typing import Literal

from kit.errors import StepError
from kit.model.answer import OddAnswer, answer_of, number
from kit.model.host import Host
from kit.model.setup.facts import GpuClocks, Nic, SavedFile, SavedValue, SetupFacts, Source, SystemFile
from kit.model.setup.paths import FILES
from kit.remote.cluster.observe import interfaces_of
from kit.remote.setup.programs import program
from kit.remote.ssh.transport import Completed, Transport

TIMEOUT_S = 150.0
# The largest answer, in bytes: sixteen files of 256 KiB in base64, and some lists.
MOST_BYTES = 8 * 2**20
_MOST_LINES = 5000
_WORD = re.compile(r"[\x21-\x7e]{1,200}")
_SOURCE = re.compile(r"[\x21-\x7e]{1,500}(?: [\x21-\x7e]{1,500}){4,16}")
_DEVICE = re.compile(r"pci 0x[0-9a-f]{4}")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+~:-]{0,60}")


def observe(transport: Transport, settings: Sequence[str]) -> SetupFacts:
    """Return the facts of one host. `settings` are keys of sysctl.

    Raises UnreachableError, StepError when the login cannot become root, or AnswerError for odd output.
    """
    mark = os.urandom(16).hex()
    argv = program("observe", " ".join(settings), *FILES)
    done = transport.run(argv, stdin=f"{mark}\n".encode(), timeout_s=TIMEOUT_S)
    host = transport.host
    with answer_of(host.name, "its state"):
        if len(done.stdout) > MOST_BYTES:
            raise OddAnswer(f"it has more than {MOST_BYTES} bytes", done.stdout)
    if f"\n@@ {mark} end" not in f"\n{done.text}":
        raise _no_end(host, done)
    with answer_of(host.name, "its state"):
        return parse(host, done.text, mark=mark)


def _no_end(host: Host, done: Completed) -> StepError:
    if "sudo" in done.error_text:
        return StepError(
            f"the login is not root and cannot become it: {done.error_text.splitlines()[-1]}",
            hint="give the user sudo without a password, or set user=root in the hosts file",
            host=host.name,
        )
    return StepError(
        f"the host could not be looked at (exit {done.code}): {done.error_text or done.text[-200:]}",
        hint=f"does a POSIX shell answer there? try: kit ssh {host.name}",
        host=host.name,
    )


def parse(host: Host, text: str, *, mark: str) -> SetupFacts:
    """Return the facts in the output of observe.sh, whose sections have this mark. Raises OddAnswer."""
    parts = _sections(text, mark)
    system = _pairs(parts.get("system", ()))
    docker = _pairs(parts.get("docker", ()))
    gpu = parts.get("gpu", ())
    nvidia = _pairs(gpu)
    saved = [line.split(" ", 5) for line in parts.get("saved", ())]
    interrupted, packages = _packages(parts.get("packages", ()))
    return SetupFacts(
        host=host,
        os=_word(system.get("os")),
        version=_word(system.get("version")),
        codename=_word(system.get("codename")),
        name=_text(system.get("name")),
        arch=_word(system.get("arch")),
        kernel=_word(system.get("kernel")),
        boot_id=_word(system.get("boot_id")),
        machine_id=_word(system.get("machine_id")),
        systemd="systemd" in system,
        apt="apt" in system,
        interrupted=interrupted,
        packages=packages,
        sources=tuple(_source(line) for line in parts.get("sources", ()) if _SOURCE.fullmatch(line)),
        docker=_text(docker.get("path")),
        podman="podman" in docker,
        engine=_version(docker.get("engine")),
        compose=_version((docker.get("compose") or "").removeprefix("v")),
        engine_fault=_text(docker.get("fault")),
        pending="pending" in docker,
        running=number(docker.get("running", "0")),
        live_restore=docker.get("live_restore") == "true",
        stale_engine="stale" in docker,
        files=dict(_file(line) for line in parts.get("files", ())),
        kernel_settings={key: value for key, value in _pairs(parts.get("kernel", ())).items() if len(value) <= 200},
        memory_kib=number(system.get("memory_kib") or "0"),
        later_settings=dict(_later(line) for line in parts.get("later_kernel", ())),
        nics=tuple(_nic(line) for line in parts.get("nics", ())),
        interfaces=interfaces_of(parts.get("addresses", ())),
        default_interface=_default_interface(parts.get("route", ())),
        network_manager=next(iter(parts.get("manager", ())), ""),
        gpus_on_bus=sum(line.split(" ")[0] == "pci" for line in gpu),
        gpu_ids=tuple(int(line[4:], 16) for line in gpu if _DEVICE.fullmatch(line)),
        switches=gpu.count("switch"),
        fabric_manager="fabric_manager" in nvidia,
        toolkit="toolkit" in nvidia,
        driver=_version(nvidia.get("driver")),
        driver_fault=_text(nvidia.get("fault")),
        module_kernels=tuple(_word(line[7:]) for line in gpu if line.startswith("module ")),
        smi="smi" in nvidia,
        smi_late="late" in nvidia,
        clocks=tuple(_clocks(line[4:]) for line in gpu if line.startswith("gpu ")),
        pages=number(system["pages"]) if "pages" in system else None,
        boot_pages="boot_pages" in system,
        secure_boot="secure_boot" in system,
        grub="grub" in system,
        unfinished=tuple(name for name in ("grub", "engine") if f"unfinished_{name}" in system),
        saved_files=tuple(_saved_file(words) for words in saved if words[0] == "file"),
        saved_values=tuple(_saved_value(words) for words in saved if words[0] == "value"),
        saved_packages=tuple(
            (_word(words[1]), _word(words[2])) for words in saved if words[0] == "package" and words[2:]
        ),
    )


def _sections(text: str, mark: str) -> dict[str, list[str]]:
    start = f"@@ {mark} "
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        if line.startswith(start):
            current = sections.setdefault(line[len(start) :], [])
        elif line.strip():
            current.append(line)
            if len(current) > _MOST_LINES:
                raise OddAnswer(f"a section has more than {_MOST_LINES} lines", line)
    return sections


def _pairs(lines: Sequence[str]) -> dict[str, str]:
    return {key: value.strip() for key, _, value in (line.partition(" ") for line in lines)}


def _word(value: str | None) -> str:
    """Return one word, or "". Raises OddAnswer if it has spaces or is too long."""
    if value and not _WORD.fullmatch(value):
        raise OddAnswer("this has spaces or is too long", value)
    return value or ""


def _version(value: str | None) -> str:
    match = _VERSION.match(value or "")
    return match[0] if match else ""


def _text(value: str | None) -> str:
    return (value or "")[:300]


def _source(line: str) -> Source:
    words = line.split(" ")
    uri, suite, component, file, origin = ("" if word == "-" else word for word in words[:5])
    options = tuple((key, value) for key, _, value in (word.partition("=") for word in words[5:]))
    return Source(uri=uri, suite=suite, component=component, file=file, origin=origin, options=options)


def _packages(lines: Sequence[str]) -> tuple[bool, dict[str, str]]:
    pairs = [line.split(" ") for line in lines]
    interrupted = any(words[0] == "interrupted" for words in pairs)
    return interrupted, {_word(words[0]): _word(words[1]) for words in pairs if words[1:] and words[0] != "interrupted"}


def _file(line: str) -> tuple[str, SystemFile]:
    words = line.split(" ")
    # Besides those that kit asked for, the host adds the files that kit setup has changed.
    if len(words) not in (2, 3) or not words[0].startswith("/etc/"):
        raise OddAnswer("this is not a file that kit asked for", line)
    if not words[1].isdigit():
        return words[0], SystemFile(content=None, mode="")
    try:
        content = base64.b64decode(words[2] if words[2:] else "", validate=True)
    except (binascii.Error, ValueError):
        raise OddAnswer("this is not the content of a file", line) from None
    return words[0], SystemFile(content=content, mode=_word(words[1]))


def _nic(line: str) -> Nic:
    name, mtu, physical, pending, unit = (*line.split(" ", 4), "", "", "", "")[:5]
    return Nic(
        name=_word(name),
        mtu=number(mtu),
        physical=physical == "yes",
        pending=pending == "yes",
        unit=_word(unit.strip()),
    )


def _later(line: str) -> tuple[str, tuple[str, str]]:
    path, key, value = (*line.split(" ", 2), "", "")[:3]
    if len(value) > 200:
        raise OddAnswer("this value is too long", value)
    return _word(key), (_word(path), value)


def _default_interface(lines: Sequence[str]) -> str | None:
    for line in lines:
        words = line.split()
        if "dev" in words[:-1]:
            return words[words.index("dev") + 1]
    return None


def _clocks(line: str) -> GpuClocks:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 6:
        raise OddAnswer("this is not a row of nvidia-smi", line)
    mhz = [number(cell) if cell.isascii() and cell.isdigit() else None for cell in cells[2:]]
    persistence = {"Enabled": True, "Disabled": False}.get(cells[1])
    return GpuClocks(
        index=number(cells[0]), persistence=persistence,
        memory=mhz[0], graphics=mhz[1], most_memory=mhz[2], most_graphics=mhz[3],
    )  # fmt: skip


def _saved_file(words: Sequence[str]) -> SavedFile:
    states: dict[str, Literal["same", "original", "changed"]] = {
        "same": "same", "original": "original", "changed": "changed",
    }  # fmt: skip
    if len(words) != 5 or words[4] not in states:
        raise OddAnswer("this is not a file that kit changed", " ".join(words))
    areas = tuple(area for area in _word(words[2]).split(",") if area)
    return SavedFile(path=_word(words[1]), areas=areas, existed=words[3] == "existed", state=states[words[4]])


def _saved_value(words: Sequence[str]) -> SavedValue:
    if len(words) < 4:
        raise OddAnswer("this is not a value that kit changed", " ".join(words))
    value = " ".join(words[4:]).strip()
    if len(value) > 200:
        raise OddAnswer("this value is too long", value)
    return SavedValue(kind=_word(words[1]), key=_word(words[2]), area=_word(words[3]), value=value)
