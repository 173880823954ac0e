"""One line of the hosts file: its words, what each may say, and what to write instead when it may not."""

from __future__ import annotations

import ipaddress
import re

from kit.config.hostrange import RangeError, expand
from kit.config.words import listed, near, plain, shown

KEYS = ("slots", "user", "port", "key", "name", "internal")

# Spellings that Open MPI 4.1 reads, tried on its own mpirun.
_SPELLINGS = (
    {key: key for key in KEYS}
    | {
        "count": "slots",
        "cpu": "slots",
        "username": "user",
        "user-name": "user",
        "user_name": "user",
    }
    | {f"max{dash}{word}": "max_slots" for dash in "-_" for word in ("slots", "count", "cpu")}
    | {f"{word}{dash}max": "max_slots" for dash in "-_" for word in ("slots", "count", "cpu")}
)
# What other tools call the same thing.
_ELSEWHERE = {
    "ansible_host": "name=",
    "ansible_user": "user=",
    "ansible_port": "port=",
    "ansible_ssh_private_key_file": "key=",
    "identityfile": "key=",
    "hostname": "name=",
    "gpus": "slots=",
    "np": "slots=",
    "ip": "internal=",
}

MOST_SLOTS = 4096
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_DNS_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
_NUMERIC = re.compile(r"[0-9.]+", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_WORD = re.compile(r'((?:[^\s"#]|"[^"]*")+)|\s+|#.*|(")')


class LineError(ValueError):
    """A line that cannot be read: what is wrong, and what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Entry:
    """What one line says of one host; None is what it does not say."""

    __slots__ = ("address", "internal", "key", "line", "name", "port", "slots", "user")

    def __init__(self, address: str) -> None:
        self.address = address
        self.name: str | None = None
        self.slots: int | None = None
        self.user: str | None = None
        self.port: int | None = None
        self.key: str | None = None
        self.internal: str | None = None
        self.line = 0

    @property
    def default_name(self) -> str:
        """The address as it is written. An IPv6 address gets dashes: a name is also a folder and a label."""
        return "ip6-" + self.address.replace(":", "-") if ":" in self.address else self.address


def read_line(line: str, *, most: int) -> list[Entry]:
    """The hosts of a line: none (blank, comment), one, or a range of at most `most`. Raises LineError."""
    words = _words(line)
    if not words:
        return []
    try:
        return _entries(words, most)
    except RangeError as error:
        raise LineError(error.message, error.hint) from error


def _words(line: str) -> list[str]:
    if '"' in line:
        return _quoted_words(line)
    if "#" in line:
        line = line[: line.index("#")]
    if "//" in line:
        line = re.split(r"(?:\s|\A)//", line, maxsplit=1)[0]
    if " =" in line or "= " in line:
        line = re.sub(r"\s*=[^\S\n]*", "=", line)
    return line.split()


def _quoted_words(line: str) -> list[str]:
    words: list[str] = []
    for found in _WORD.finditer(line):
        if found[2]:
            raise LineError("a quote is opened and never closed", 'close it: key="/home/me/my key"')
        if found[1]:
            if found[1].startswith("//"):
                break
            words.append(found[1].replace('"', ""))
    return [word for word in words if word]


def _entries(words: list[str], most: int) -> list[Entry]:
    first = words[0]
    _refuse_other_formats(first, words)
    login, at, place = first.rpartition("@")
    addresses = [_address(address) for address in expand(place, most=most)]
    said = _settings(words[1:], first)
    if at:
        if said.get("user", login) != login:
            raise LineError(
                f"the line names two logins, {shown(login)} and {shown(said['user'])}",
                f"write one: {plain(place)} user={plain(said['user'])}",
            )
        said["user"] = login
    entries = [Entry(address) for address in addresses]
    slots, port = _slots(said), None
    if "port" in said:
        port = _whole("port", said["port"], 65535)
    user = said.get("user")
    if user is not None and not _USER.fullmatch(user):
        raise LineError(f"{shown(user)} is not a login", "write letters, digits, . _ and -, such as user=ubuntu")
    key = said.get("key")
    if key is not None and not key.isprintable():
        raise LineError("key= has a character in it that does not print", "write the private key's path")
    names = _one_each("name", said, entries, most)
    internals = _one_each("internal", said, entries, most)
    for i, entry in enumerate(entries):
        entry.slots, entry.port, entry.user, entry.key = slots, port, user, key
        if names is not None:
            entry.name = _checked_name(names[i])
        if internals is not None:
            entry.internal = _checked_internal(internals[i])
    return entries


def _refuse_other_formats(first: str, words: list[str]) -> None:
    if first.startswith("[") and first.endswith("]") and len(words) == 1 and not first[1:2].isdigit():
        raise LineError(
            f"{shown(first)} is a group, as Ansible's inventory has them, and kit has no groups", "delete this line"
        )
    if first == "rank" and len(words) > 1 and words[1][0].isdigit() and "=" in words[1]:
        raise LineError(
            "this is a line of a rankfile, not of a hosts file", "write the host and its slots: node1 slots=4"
        )
    if first.startswith("^"):
        raise LineError(
            f"{shown(first)} leaves a host out in mpirun's way", f"delete the line, or comment it: # {plain(first[1:])}"
        )
    if "=" in first:
        raise LineError(
            f"the line begins with {shown(first)}, not with an address",
            f"begin with the VM's address: 10.0.0.11 {plain(first)}",
        )


def _settings(words: list[str], first: str) -> dict[str, str]:
    said: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            if _SPELLINGS.get(word) or word in _ELSEWHERE:
                raise LineError(f"{shown(word)} has no value", f"write {word}=VALUE")
            raise LineError(
                f"{shown(word)} is a second word after {shown(first)}, and one line is one VM",
                f"put {shown(word)} on a line of its own, or write # before it",
            )
        meaning = _SPELLINGS.get(key)
        if meaning is None:
            raise LineError(f"there is no key {shown(key)}", _unknown_key_hint(key))
        if not value or ("=" in value and value.partition("=")[0] in _SPELLINGS):
            raise LineError(f"{key}= has no value", f"write a value after the =, or take {key}= away")
        if meaning in said:
            raise LineError(f"{meaning}= stands twice on this line", "say it once")
        said[meaning] = value
    return said


def _unknown_key_hint(key: str) -> str:
    same = _ELSEWHERE.get(key.lower())
    if same is not None:
        return f"kit calls it {same}"
    similar = near(key, KEYS, most=1)
    if similar:
        return f"did you mean {similar[0]}=?"
    return f"a line takes {listed(f'{known}=' for known in KEYS)}"


def _slots(said: dict[str, str]) -> int | None:
    slots = _whole("slots", said["slots"], MOST_SLOTS) if "slots" in said else None
    if "max_slots" not in said:
        return slots
    most = _whole("max_slots", said["max_slots"], MOST_SLOTS)
    if slots is not None and most < slots:
        raise LineError(f"max_slots={most} is below slots={slots}", f"write max_slots={slots}, or take it away")
    return most if slots is None else slots


def _whole(key: str, text: str, most: int) -> int:
    number = int(text) if _DIGITS.fullmatch(text) else 0
    if 1 <= number <= most:
        return number
    if key == "slots" and _DIGITS.fullmatch(text) and number == 0:
        raise LineError(
            "slots=0 leaves no room for a rank",
            "take the line away; to keep ranks off the first VM, write head_runs_ranks: false in kit.yaml",
        )
    if "," in text:
        raise LineError(f"{key}={plain(text)} is not a number", "put a blank, not a comma, between the settings")
    raise LineError(
        f"{key}={plain(text)} is not a number from 1 to {most}", f"write {key}={22 if key == 'port' else 8}, say"
    )


def _one_each(key: str, said: dict[str, str], entries: list[Entry], most: int) -> list[str] | None:
    """The value of name= or internal= for each host of the line."""
    if key not in said:
        return None
    values = expand(said[key], most=most)
    if len(values) == len(entries):
        return values
    sample = "gpu[01-{:02}]" if key == "name" else "10.0.0.[1-{}]"
    if len(entries) == 1:
        raise LineError(
            f"{key}={plain(said[key])} stands for {len(values)} values, and the line for one VM",
            f"write one value: {key}={plain(values[0])}",
        )
    raise LineError(
        f"the line stands for {len(entries)} VMs, and {key}={plain(said[key])} for {len(values)}",
        f"write as many: {key}={sample.format(len(entries))}",
    )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise LineError(
            f"{shown(name)} cannot be a name",
            "write letters, digits, . _ and -, at most 63, with a letter or digit at both ends: name=gpu-01",
        )
    return name


def _checked_internal(address: str) -> str:
    if not _IPV4.fullmatch(address):
        raise LineError(
            f"internal={plain(address)} is not an IPv4 address",
            "write the VM's address in the cluster's network, such as internal=10.0.0.11",
        )
    return address


def _address(text: str) -> str:
    """The address, checked; an IPv6 one in its shortest spelling."""
    if _IPV4.fullmatch(text):
        return text
    if _NUMERIC.fullmatch(text):
        raise LineError(
            f"{shown(text)} is not an IPv4 address", "write four numbers from 0 to 255, no zeros before: 10.0.0.11"
        )
    if len(text) <= 253 and _DNS_NAME.fullmatch(text):
        return text
    if ":" in text:
        return _address_with_colon(text)
    raise LineError(f"{shown(text)} is not an address", _address_hint(text))


def _address_with_colon(text: str) -> str:
    host, _, number = text.rpartition(":")
    if ":" not in host and number.isdigit() and number.isascii():
        raise LineError(
            f"{shown(text)}: a hosts file has no HOST:NUMBER",
            f"write '{plain(host)} slots={plain(number)}' for slots, or '{plain(host)} port={plain(number)}' "
            "for the port of ssh",
        )
    try:
        if "%" in text:
            raise ValueError(text)
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise LineError(
            f"{shown(text)} is not an address", "write an IP address or a name: 10.0.0.11, 2001:db8::11, gpu1"
        ) from None


def _address_hint(text: str) -> str:
    if "," in text:
        return "write one VM a line, or a range: gpu[1,3,5-7]"
    if "/" in text:
        return "write the VM's own address, with no network and no path: 10.0.0.11"
    if "{" in text:
        return "write a range in square brackets: gpu[1-4]"
    strange = next((c for c in text if not c.isascii() or not c.isprintable()), None)
    if strange is not None:
        return f"it has the character U+{ord(strange):04X} in it: type the address again by hand"
    return "write an IP address or a name: 10.0.0.11, gpu1, gpu1.example.com"
