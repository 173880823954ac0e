"""Replaces what names a machine, its owner or its work in the output of nvidia-smi, the same way in every format.

UUIDs, serial numbers, PCI buses, programs, the host's name and user names get numbers by their first appearance. The
form stays, so that parsers read the result like the original.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_GPU = re.compile(r"GPU-[0-9A-Za-z]{4,}(?:-[0-9A-Za-z]+)*")
_MIG = re.compile(r"MIG-(?!GPU-)[0-9A-Za-z]{4,}(?:-[0-9A-Za-z]+)*")
# 00000000:3B:00.0, and 0000:3B:00.0 in messages.
_PCI = re.compile(r"\b([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2}\.[0-7])\b")
_BUS = re.compile(r"(<pci_bus>)\s*([0-9A-Fa-f]{2})\s*(?=</pci_bus>)")
_DOMAIN = re.compile(r"(<pci_domain>)\s*[0-9A-Fa-f]{2,8}\s*(?=</pci_domain>)")
# Elements of the XML with a number of the machine: serial, board_id, chassis_serial_number, module_id, pdi …
_NUMBERED = re.compile(
    r"<((?:[a-z_]*_)?(?:serial|serial_number|guid|uuid|pdi|board_id|host_id|slot_number|tray_index|clique_id|module_id)"
    r"(?:_[a-z_]*)?)>\s*([^<>\s][^<>]*?)\s*</"
)
_PROGRAM = re.compile(r"(<process_name>)\s*([^<>]+?)\s*(?=</process_name>)")
_MISSING = {"N/A", "None", "Not Found", "Insufficient Permissions", "Not Supported", "Unknown Error"}
# A shorter name could be a part of any word.
_SHORTEST = 3


class Names:
    """The replacements of one machine. `secrets` are words that must not stay: host name and user names."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = {word: name for word, name in secrets.items() if len(word) >= _SHORTEST}
        self._gpus: dict[str, str] = {}
        self._migs: dict[str, str] = {}
        self._buses: dict[str, str] = {}
        self._numbers: dict[str, str] = {}
        self._programs: dict[str, str] = {}

    def replace(self, text: str, *, programs: Iterable[str] = ()) -> str:
        """Return the text without names. `programs` are names of processes in it, in a table for example."""
        for program in sorted({word for word in programs if word}, key=len, reverse=True):
            # Only where a table has it, because a program may be called `Default`.
            text = re.sub(r"(?m)(?<=, )%s$" % re.escape(program), self._program(program), text)
        text = _PROGRAM.sub(lambda match: match[1] + self._program(match[2]), text)
        text = _GPU.sub(lambda match: self._uuid(self._gpus, match[0], "GPU"), text)
        text = _MIG.sub(lambda match: self._uuid(self._migs, match[0], "MIG"), text)
        for match in _PCI.finditer(text):
            self._bus(match[2])
        text = _PCI.sub(lambda match: "0" * len(match[1]) + ":" + self._bus(match[2]) + ":" + match[3], text)
        text = _BUS.sub(lambda match: match[1] + self._bus(match[2]), text)
        text = _DOMAIN.sub(lambda match: match[1] + "0000", text)
        text = _NUMBERED.sub(lambda match: "<%s>%s</" % (match[1], self._number(match[2])), text)
        for word, name in sorted(self._secrets.items(), key=lambda item: -len(item[0])):
            text = re.sub(r"(?<![0-9A-Za-z])%s(?![0-9A-Za-z])" % re.escape(word), name, text)
        return text

    def left(self, text: str) -> str:
        """Return a name that is still in the text, or ''."""
        numbers = [word for word in self._numbers if len(word) > 5]
        words = [*self._gpus, *self._migs, *numbers, *(word for word in self._programs if "/" in word)]
        own = {*self._gpus.values(), *self._migs.values(), *self._programs.values(), *self._numbers.values()}
        return next((word for word in words if word in text and word not in own), "")

    def _uuid(self, known: dict[str, str], word: str, kind: str) -> str:
        if word in known.values():
            return word
        return known.setdefault(word, "%s-00000000-0000-0000-0000-%012d" % (kind, len(known) + 1))

    def _bus(self, bus: str) -> str:
        return self._buses.setdefault(bus.upper(), "%02X" % (len(self._buses) + 1))

    def _number(self, word: str) -> str:
        if word in _MISSING or word in self._numbers.values() or _GPU.fullmatch(word) or _MIG.fullmatch(word):
            return word
        return self._numbers.setdefault(word, str(len(self._numbers) + 1).zfill(len(word)))

    def _program(self, word: str) -> str:
        if word.strip("[]") in _MISSING or word in self._programs.values():
            return word
        return self._programs.setdefault(word, "program-%d" % (len(self._programs) + 1))
