"""Reads one line of the hosts file. Each error says what to write instead."""

from __future__ import annotations

import re

from kit.config.ansible import refuse_ansible
from kit.config.hostaddress import LineError, checked_address, checked_internal, is_ip, refuse_brackets
from kit.config.hostrange import RangeError, expand
from kit.config.words import listed, near, plain, shown
from kit.model.host import LOGIN_NAME

KEYS = ("slots", "user", "port", "key", "name", "internal", "hca")

# Spellings that Open MPI 4.1 accepts, tested with its mpirun.
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
# The same settings in other tools.
_ELSEWHERE = {
    "identityfile": "key=",
    "hostname": "name=",
    "gpus": "slots=",
    "np": "slots=",
    "ip": "internal=",
    "nccl_ib_hca": "hca=",
}

# People copy these from their ssh command.
_OPTIONS_OF_SSH = {"-p": "port=", "-i": "key=", "-l": "user="}

MOST_SLOTS = 4096
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
# NCCL_IB_HCA: prefixes of names with ports. = means exactly these names, and ^ all others.
_HCA = re.compile(r"\^?=?[A-Za-z0-9_.-]{1,32}(:[0-9]{1,3})?(,[A-Za-z0-9_.-]{1,32}(:[0-9]{1,3})?){0,31}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_SINGLE_QUOTED = re.compile(r"""\s([^\s="']+)='([^'"]*)""")
_WORD = re.compile(r'((?:[^\s"#]|"[^"]*")+)|\s+|#.*|(")')


class HostEntry:
    """The settings of one host on one line. None: the line does not set it."""

    __slots__ = ("address", "hca", "internal", "key", "line", "name", "port", "slots", "user")

    def __init__(self, address: str) -> None:
        self.address = address
        self.name: str | None = None
        self.slots: int | None = None
        self.user: str | None = None
        self.port: int | None = None
        self.key: str | None = None
        self.internal: str | None = None
        self.hca: str | None = None
        self.line = 0

    @property
    def default_name(self) -> str:
        """Return the address as written. An IPv6 address gets dashes, because a name is also a folder and a label."""
        return "ip6-" + self.address.replace(":", "-") if ":" in self.address else self.address


def read_line(line: str, *, most: int) -> list[HostEntry]:
    """Return the hosts of a line: none (blank, comment), one, or a range of at most `most`. Raises LineError."""
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
        line = "=".join(part.strip() for part in line.split("="))
    if "='" in line:
        _refuse_single_quotes(line)
    return line.split()


def _refuse_single_quotes(line: str) -> None:
    match = _SINGLE_QUOTED.search(line)
    if match:
        quote = '"' if " " in match[2] else ""
        raise LineError(
            f"{plain(match[1])}= has a single quote, and only double quotes have a meaning here",
            f"write {plain(match[1])}={quote}{plain(match[2])}{quote}",
        )


def _quoted_words(line: str) -> list[str]:
    words: list[str] = []
    if "='" in line:
        _refuse_single_quotes(line.partition(" #")[0])
    for match in _WORD.finditer(line):
        if match[2]:
            raise LineError("a quote is never closed", 'close it: key="/home/me/my key"')
        if match[1]:
            if match[1].startswith("//"):
                break
            words.append(match[1].replace('"', ""))
    return [word for word in words if word]


def _entries(words: list[str], most: int) -> list[HostEntry]:
    first = words[0]
    login, at, place = first.rpartition("@")
    refuse_brackets(place, before=login + at)
    _refuse_other_formats(first, words)
    addresses = [checked_address(address, before=login + at) for address in expand(place, most=most)]
    given = _settings(words[1:], first)
    if at:
        if given.get("user", login) != login:
            raise LineError(
                f"the line has two logins, {shown(login)} and {shown(given['user'])}",
                f"write one: {plain(place)} user={plain(given['user'])}",
            )
        given["user"] = login
    entries = [HostEntry(address) for address in addresses]
    slots, port = _slots(given), None
    if "port" in given:
        port = _whole("port", given["port"], 65535)
    user = given.get("user")
    if user is not None and not LOGIN_NAME.fullmatch(user):
        raise LineError(
            f"{shown(user)} is not a login",
            r"write letters, digits, . _ -, and @ or \ of a domain, such as user=ubuntu; if the VM wants another, "
            "leave it out here, and write it as User into ~/.ssh/config",
        )
    key = given.get("key")
    if key is not None and not key.isprintable():
        raise LineError("key= contains an unprintable character", "write the path of the private key")
    hca = given.get("hca")
    if hca is not None and not _HCA.fullmatch(hca):
        raise LineError(
            f"hca={plain(hca)} is not a list of InfiniBand adapters",
            "write it as NCCL_IB_HCA: hca=mlx5_0 or hca=mlx5_0:1,mlx5_2",
        )
    names = _one_each("name", given, entries, most)
    internals = _one_each("internal", given, entries, most)
    for i, entry in enumerate(entries):
        entry.slots, entry.port, entry.user, entry.key, entry.hca = slots, port, user, key, hca
        if names is not None:
            entry.name = _checked_name(names[i])
        if internals is not None:
            entry.internal = checked_internal(internals[i], entry.address)
    return entries


def _refuse_other_formats(first: str, words: list[str]) -> None:
    refuse_ansible(words)
    if first == "rank" and len(words) > 1 and words[1][0].isdigit() and "=" in words[1]:
        raise LineError(
            "this line belongs in a rankfile, not in a hosts file", "write the host and its slots: node1 slots=4"
        )
    if first.startswith("^"):
        raise LineError(
            f"{shown(first)} excludes a host in mpirun's syntax",
            f"delete the line, or write a comment: # {plain(first[1:])}",
        )
    if "=" in first:
        raise LineError(
            f"the line starts with {shown(first)}, not with an address",
            f"start with the VM's address: 10.0.0.11 {plain(first)}",
        )


def _settings(words: list[str], first: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for place, word in enumerate(words):
        key, equals, value = word.partition("=")
        if not equals:
            raise _lone_word(word, first, next_word="".join(words[place + 1 : place + 2]))
        meaning = _SPELLINGS.get(key)
        if meaning is None:
            raise LineError(f"there is no setting {shown(key)}=", _unknown_key_hint(key))
        if not value or ("=" in value and value.partition("=")[0] in _SPELLINGS):
            raise LineError(f"{key}= has no value", f"write a value after the =, or remove {key}=")
        if meaning in given:
            raise LineError(f"{meaning}= occurs twice on this line", "write it once")
        given[meaning] = value
    return given


def _lone_word(word: str, first: str, *, next_word: str) -> LineError:
    """Return the error for a word without = after the address."""
    key, colon, value = word.partition(":")
    if colon and (key in _SPELLINGS or key in _ELSEWHERE):
        right = _ELSEWHERE.get(key) or f"{key}="
        return LineError(f"{shown(word)} has a colon", f"write {right}{plain(value or next_word or 'VALUE')}")
    if _SPELLINGS.get(word) or word in _ELSEWHERE:
        return LineError(f"{shown(word)} has no value", f"write {word}=VALUE")
    for option, setting in _OPTIONS_OF_SSH.items():
        if word.startswith(option):
            value = word.removeprefix(option) or next_word or "VALUE"
            return LineError(f"{shown(word)} is an option of ssh", f"write {setting}{plain(value)}")
    other = f"put {shown(word)} on another line, or write # before it"
    if is_ip(first.rpartition("@")[2]) and _NAME.fullmatch(word) and not is_ip(word):
        other = f"if it is the name of this VM, write: {plain(first)} name={word}; otherwise {other}"
    return LineError(f"{shown(word)} is a second word after {shown(first)}, but a line holds one VM", other)


def _unknown_key_hint(key: str) -> str:
    same = _ELSEWHERE.get(key.lower())
    if same is not None:
        return f"in kit, write {same}"
    similar = near(key, KEYS, most=1)
    if similar:
        return f"did you mean {similar[0]}=?"
    return f"a line can set {listed(f'{known}=' for known in KEYS)}"


def _slots(given: dict[str, str]) -> int | None:
    slots = _whole("slots", given["slots"], MOST_SLOTS) if "slots" in given else None
    if "max_slots" not in given:
        return slots
    most = _whole("max_slots", given["max_slots"], MOST_SLOTS)
    if slots is not None and most < slots:
        raise LineError(f"max_slots={most} is below slots={slots}", f"write max_slots={slots}, or remove it")
    return most if slots is None else slots


def _whole(key: str, text: str, most: int) -> int:
    number = int(text) if _DIGITS.fullmatch(text) else 0
    if 1 <= number <= most:
        return number
    if key == "slots" and _DIGITS.fullmatch(text) and number == 0:
        raise LineError(
            "slots=0 leaves no room for a rank",
            "remove the line; to keep ranks off the first VM, write head_runs_ranks: false in kit.yaml",
        )
    if "," in text:
        raise LineError(f"{key}={plain(text)} is not a number", "put a space, not a comma, between settings")
    raise LineError(
        f"{key}={plain(text)} is not a number from 1 to {most}",
        f"write, for example, {key}={22 if key == 'port' else 8}",
    )


def _one_each(key: str, given: dict[str, str], entries: list[HostEntry], most: int) -> list[str] | None:
    """Return the value of name= or internal= for each host of the line."""
    if key not in given:
        return None
    values = expand(given[key], most=most)
    if len(values) == len(entries):
        return values
    sample = "gpu[01-{:02}]" if key == "name" else "10.0.0.[1-{}]"
    if len(entries) == 1:
        raise LineError(
            f"{key}={plain(given[key])} has {len(values)} values, but the line has one VM",
            f"write one value: {key}={plain(values[0])}",
        )
    count = f"{len(values)} value{'' if len(values) == 1 else 's'}"
    raise LineError(
        f"the line has {len(entries)} VMs, but {key}={plain(given[key])} has {count}",
        f"write the same number of values: {key}={sample.format(len(entries))}",
    )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise LineError(
            f"{shown(name)} cannot be a name",
            "write letters, digits, . _ and -, at most 63, with a letter or digit at both ends: name=gpu-01",
        )
    return name
