"""The rules for single fields of kit.yaml. mounts.py has those for volumes and devices.

A rule takes the value of a field and returns it, perhaps in another form. It raises FieldError.
"""

from __future__ import annotations

import ipaddress
import re

from kit.config.kinds import GIVE_TO_A_SHELL, FieldError, WrongItemsError, checked_items
from kit.config.ports import check_port
from kit.config.requirements import HAS_LOGIN, NO_LOGIN
from kit.config.words import listed, near
from kit.model import names, quantity
from kit.model.host import LOGIN_NAME
from kit.model.logins import has_login
from kit.model.nccl import is_image
from kit.model.repository import is_repository, repository
from kit.model.spec import CAPABILITIES, NAME

_SIZE = re.compile(r"[1-9][0-9]{0,11}(?:b|kb?|mb?|gb?)", re.IGNORECASE | re.ASCII)
# Names of RPM have capitals and `_`, too.
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]*(?:=[A-Za-z0-9.+:~-]+)?", re.ASCII)
# A server, then folders. A dot, a port or the name localhost distinguishes a server from a folder on Docker Hub.
_REGISTRY = re.compile(
    r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:))(?::[0-9]{1,5})?"
    r"(?:/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)*",
    re.ASCII,
)
# Without an @ behind the first slash: it would end a password that has a slash.
_PROXY = re.compile(r"https?://(?:[^\s\"'\\%$/]|%[0-9A-Fa-f]{2})+(?:/(?:[^\s\"'\\%$@]|%[0-9A-Fa-f]{2})*)?", re.ASCII)
# A name, an IPv4 address, or an IPv6 address in brackets.
_SERVER = re.compile(r"(?:[^:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_USER = re.compile(r"([0-9]{1,10})(?::([0-9]{1,10}))?", re.ASCII)
# Linux uses the last number for "no user".
_MOST_USERS = 2**32 - 2
# A shell would take the word for a variable.
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,14}", re.ASCII)


def name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise FieldError("is not a name: use at most 40 lower-case letters and digits, with dashes between them")
    return value


def login(value: str) -> str:
    if not LOGIN_NAME.fullmatch(value):
        raise FieldError(
            r"is not a login: use letters, digits, . _ -, and @ or \ of a domain; any other login belongs into "
            "~/.ssh/config, as User"
        )
    return value


def path(value: str) -> str:
    if not value.isprintable():
        raise FieldError("has an unprintable character in it", write="write the path of the file")
    return value


def base(value: str) -> str:
    if is_image(value):
        check_port(value.partition("/")[0] if "/" in value else "")
        return value
    if "://" in value or "@" in value:
        # It may have a password, so that the message does not begin with the value.
        raise FieldError(
            "this is not the name of an image",
            write="write SERVER/NAME:TAG or SERVER/NAME@sha256:DIGEST, without https:// and without a login; log in "
            "with docker login",
        )
    lower = is_image(value.lower())
    raise FieldError("is not the name of an image", write=f"write it in lower case: {value.lower()}" if lower else None)


def packages(value: tuple[str, ...]) -> tuple[str, ...]:
    return checked_items(value, _package)


def _package(value: str) -> str:
    if not _PACKAGE.fullmatch(value):
        raise FieldError("is not the name of a package")
    return value


def pip(value: tuple[str, ...]) -> tuple[str, ...]:
    return checked_items(value, _requirement)


def _requirement(value: str) -> str:
    if not value.strip() or value.lstrip().startswith("-") or not value.isprintable():
        raise FieldError("is not a Python requirement")
    if has_login(value):
        raise FieldError(HAS_LOGIN, write=NO_LOGIN)
    return value


def environment(value: dict[str, str]) -> dict[str, str]:
    wrong: dict[int | str, tuple[object, ValueError]] = {}
    for variable, text in value.items():
        if variable in names.OWN_VARIABLES:
            wrong[variable] = (text, _own_variable(variable))
        elif "\n" in text:
            write = "write it on one line, with >- in place of > or |; or pass it to each run: "
            wrong[variable] = (
                text,
                FieldError(
                    "has a line break, and ranks on other hosts would not get the variable",
                    write=f"{write}kit run -x {variable}=VALUE",
                ),
            )
    if wrong:
        raise WrongItemsError(wrong)
    return value


def _own_variable(variable: str) -> FieldError:
    """Return the error of a variable whose value no rank would get."""
    checkpoints = ", and write the folder with each run: kit run --checkpoint-dir DIR"
    write = "remove it" + (checkpoints if variable == names.CHECKPOINTS_VARIABLE else "")
    return FieldError("kit sets this variable for each run", write=write)


def registry(value: str) -> str:
    if _REGISTRY.fullmatch(value):
        check_port(value.partition("/")[0])
        return value
    if "@" in value:
        # What is before the @ may be a password, so that the message does not begin with the value.
        raise FieldError(
            "there is an @ in it, and a registry has no login",
            write="write the server, its port if it has one, and folders; log in with docker login",
        )
    bare = value.partition("://")[2].rstrip("/") or value.rstrip("/")
    if bare != value and _REGISTRY.fullmatch(bare):
        raise FieldError("looks like a URL; a registry has no https:// and no trailing slash", write=f"write {bare}")
    if _REGISTRY.fullmatch(f"docker.io/{value}"):
        raise FieldError("has no server before it", write=f"write docker.io/{value} if it is on Docker Hub")
    raise FieldError("is not a registry: write a server, its port if it has one, and folders in lower case")


def network(value: str) -> str:
    """Return the network in its canonical form: 10.0.0.5/24 becomes 10.0.0.0/24."""
    if value == "auto":
        return value
    address, slash, _ = value.partition("/")
    try:
        cidr = ipaddress.IPv4Network(value, strict=False)
    except ValueError as error:
        raise FieldError("is not an IPv4 network") from error
    if not slash:
        raise FieldError(
            "is an address; a network ends with its size",
            write=f"write {address}/24, for example; `ip -brief address` on a VM shows the size",
        )
    if cidr.prefixlen == 0:
        raise FieldError(
            "holds every address, also that of docker0, and MPI would hang on it",
            write="write the network that connects the VMs, such as 10.0.0.0/16, or auto",
        )
    return str(cidr)


def interfaces(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return networks in their canonical form, and names of interfaces unchanged."""
    earlier: set[str] = set()

    def check(word: str) -> str:
        read = _interface(word)
        if read in earlier:
            raise FieldError("is here a second time", write="write each network and each name once")
        earlier.add(read)
        return read

    return checked_items(value, check)


def _interface(word: str) -> str:
    """Return a network in its canonical form, or the name of an interface unchanged."""
    write = "write a network such as 10.1.0.0/24, or a name such as eth1"
    if word == "auto":
        raise FieldError("is neither a network nor the name of an interface", write=write)
    if "/" not in word and _INTERFACE.fullmatch(word) and not word.replace(".", "").isdigit():
        return word
    try:
        return network(word)
    except FieldError as error:
        raise FieldError(str(error), write=error.write or write) from error


def size(value: str) -> str:
    if not _SIZE.fullmatch(value):
        known = quantity.in_known_units(value)
        raise FieldError("is not a size in b, kb, mb or gb", write=f"write {known}" if known else None)
    return value


def command(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not value[0]:
        raise FieldError("is empty")
    if len(value) > 1 and (assignment := _ASSIGNMENT.match(value[0])):
        # Its value may be a secret.
        raise FieldError(
            f"{assignment[0]}… would be the name of a program, because no shell reads this command",
            write=f"write env before it: env {assignment[0]}…",
        )
    for word in value:
        if word in ("&&", "||", "|"):
            raise FieldError(
                f"no shell reads this command, so {word} has no meaning in it",
                write=GIVE_TO_A_SHELL,
            )
    return value


def code(value: str) -> str:
    # A URL may have a password, so that these messages do not begin with the value.
    if is_repository(value):
        try:
            repository(value)
        except ValueError as error:
            write = "git+https://HOST/PATH@BRANCH, git+ssh://… or git+HOST:PATH"
            raise FieldError(f"this {error}", write=write) from None
    elif is_url(value):
        raise FieldError(
            "this looks like a URL, and kit takes code from a folder or a git repository",
            write="git+ before the URL of a repository: git+https://HOST/PATH@BRANCH",
        )
    return value


def capabilities(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names without CAP_, each once."""
    return tuple(dict.fromkeys(checked_items(value, _capability)))


def _capability(word: str) -> str:
    bare = word.upper().removeprefix("CAP_")
    if bare == "ALL":
        raise FieldError("ALL is no capability of kit: name the ones that your workload needs")
    if bare not in CAPABILITIES:
        similar = near(bare, CAPABILITIES)
        write = f"did you mean {listed(similar)}?" if similar else "capabilities(7) lists them"
        raise FieldError("is not a capability of Linux", write=write)
    return bare


def driver(value: str) -> str:
    """Return the branch of a driver, such as 570-server."""
    if not re.fullmatch(r"[0-9]{3}(-server)?(-open)?", value, re.ASCII):
        raise FieldError("is not a branch of NVIDIA's driver", write="write 570-server, for example")
    return value


def proxy(value: str) -> str:
    """Return the address of an HTTP proxy."""
    server = value.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if not _PROXY.fullmatch(value) or not _SERVER.fullmatch(server):
        # A password may be in it, so that the message does not begin with the value.
        raise FieldError(
            "this is not the address of a proxy",
            write="write http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT with special characters as %XX, such as "
            "%40 for @",
        )
    check_port(server)
    return value


def user(value: str) -> str:
    """Return UID:GID. A UID alone is also the GID."""
    match = _USER.fullmatch(value)
    if not match:
        raise FieldError("is not UID or UID:GID in numbers", write="on a VM, `id -u NAME` prints the number of a user")
    uid, gid = int(match[1]), int(match[2] or match[1])
    if not uid:
        raise FieldError("is root, as without this setting", write="remove the line, or write another UID")
    if max(uid, gid) > _MOST_USERS:
        raise FieldError(f"has a number above {_MOST_USERS}")
    return f"{uid}:{gid}"


def is_url(value: str) -> bool:
    """Return whether this is the address of a repository, and no path."""
    return "://" in value or is_repository(value)
