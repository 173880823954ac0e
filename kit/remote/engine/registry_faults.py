"""What an engine's error about a registry means: the cause, and the next step."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from kit.errors import ImageError, RegistryLoginError
from kit.model.registry import RegistryLogin, address_of

Doing = Literal["look", "push", "pull"]


class _Cause(Struct, frozen=True, kw_only=True):
    """A known cause. The first whose pattern matches the engine's words applies.

    The texts may use {address}, {name}, {registry}, {where}, {user}, {setting} and {missing}.
    """

    pattern: str
    message: str
    hint: str


_LOGIN = (
    "docker login {address} on your machine, or set KIT_REGISTRY={registry}, KIT_REGISTRY_USER and "
    "KIT_REGISTRY_PASSWORD; then retry"
)
_CAUSES = (
    _Cause(
        pattern=r"x509: .*(unknown authority|self.signed|issuer)",
        message="the engine does not trust the certificate of {address}",
        hint="put the certificate of its CA into /etc/docker/certs.d/{address}/ca.crt on {where}; no restart needed",
    ),
    _Cause(
        pattern=r"x509: .*(expired|not yet valid)",
        message="the certificate of {address} is out of date, or the clock of {where} is wrong",
        hint="compare: date on {where}; openssl s_client -connect {address} </dev/null | openssl x509 -noout -dates",
    ),
    _Cause(
        pattern=r"x509: .*(valid for|IP SANs|cannot validate|not valid|legacy Common Name)",
        message="the certificate of {address} is for another name",
        hint="write the name that is in the certificate as {setting}, or give the registry a certificate for this one",
    ),
    _Cause(
        pattern=r"server gave HTTP response to HTTPS client",
        message="{address} uses plain HTTP, and the engine requires HTTPS",
        hint="give the registry a certificate; or, if you trust the whole network, add {address} to "
        "insecure-registries in /etc/docker/daemon.json on {where} and restart the engine",
    ),
    _Cause(
        pattern=r"HTTP request to an HTTPS server",
        message="{address} uses HTTPS, and the engine is configured for plain HTTP",
        hint="remove {address} from insecure-registries in /etc/docker/daemon.json on {where}, and restart the engine",
    ),
    _Cause(
        pattern=r"no such host|server misbehaving|failure in name resolution",
        message="the name of {address} does not resolve on {where}",
        hint="correct {setting}, or make the name known on {where} (DNS, /etc/hosts)",
    ),
    _Cause(
        pattern=r"connection refused",
        message="nothing listens at {address}, as {where} sees it",
        hint="check that the registry runs, and its port. Try from {where}: curl https://{address}/v2/",
    ),
    _Cause(
        pattern=r"no route to host|network is unreachable|i/o timeout|deadline exceeded|Client\.Timeout|"
        r"waiting for connection|handshake timeout|proxyconnect|connection reset",
        message="{where} cannot reach {address}",
        hint="check firewalls, and whether the engine needs a proxy. Try from {where}: curl https://{address}/v2/",
    ),
    _Cause(
        pattern=r"no space left on device",
        message="the disk of the engine is full",
        hint="free space on {where} (docker system prune), then retry",
    ),
    _Cause(
        pattern=r"toomanyrequests|too many requests|\b429\b",
        message="{address} accepts no more requests for now",
        hint="wait, or log in with a higher limit: docker login {address}",
    ),
    _Cause(
        pattern=r"manifest unknown|manifest for .* not found|name unknown|"
        r"not found: |: not found$|\b404\b|does not exist",
        message="the registry does not have {name}",
        hint="{missing}",
    ),
    _Cause(
        pattern=r"denied|forbidden|insufficient.scope|\b403\b",
        message="{address} does not allow {user} to do this with {name}",
        hint="ask for the permission, or log in as a user who has it: " + _LOGIN,
    ),
)
_EXPIRED = re.compile(r"token (has|is) expired|expired token", re.IGNORECASE)
_ECR = re.compile(r"[0-9]+\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?", re.ASCII)
_UNAUTHORIZED = re.compile(r"unauthorized|authentication required|no basic auth|incorrect username|\b401\b", re.I)
_VERBS = {"look": "looked up at", "push": "pushed to", "pull": "pulled from"}


def fault(
    words: str,
    *,
    reference: str,
    doing: Doing,
    login: RegistryLogin | None,
    host: str | None,
    foreign: bool = False,
    push: str = "",
) -> ImageError:
    """Return the error for an engine's `words`, on `host` (None: this machine).

    `foreign`: it is no image of kit. `push` is the command that pushes a missing image, if it needs more words.
    """
    address, registry = address_of(reference), reference.rpartition("/")[0]
    names = {
        "address": address,
        "name": reference,
        "registry": registry,
        "setting": "nccl.plugin" if foreign else "registry:",
        "missing": "correct the image in nccl.plugin: its name or its tag"
        if foreign
        else push or f"kit image push {registry}",
        # No name here: kit puts it before the message, and folds hosts with equal messages into one line.
        "where": "the host" if host else "this machine",
        "user": (login.user if login else "") or "this login",
    }
    if _EXPIRED.search(words):
        return RegistryLoginError(
            f"the login to {address} has expired",
            hint=f"log in again: {_renewal(address)}{_LOGIN.format(**names)}",
            host=host,
        )
    if _UNAUTHORIZED.search(words) and not _missing(words):
        refused = f"refuses the login of {login.user}" if login and login.user else "refuses the login"
        message = f"{address} {refused if login else 'requires a login, and you gave none'}"
        return RegistryLoginError(message, hint=_LOGIN.format(**names), host=host)
    for cause in _CAUSES:
        if re.search(cause.pattern, words, re.IGNORECASE):
            hint = cause.hint.format(**names)
            if doing == "push" and cause.hint == "{missing}":
                hint = f"create the repository {names['registry']}/kit there first"
            kind = RegistryLoginError if cause.hint.endswith(_LOGIN) else ImageError
            return kind(cause.message.format(**names), hint=hint, host=host)
    by_hand = f"docker pull {reference}"
    if doing == "push":
        # kit has removed the name that it gave the image for the push.
        by_hand = f"docker tag {reference.rpartition('/')[2]} {reference} && docker push {reference}"
    return ImageError(
        f"{reference} cannot be {_VERBS[doing]} the registry: {' '.join(words.split())}",
        hint=f"try by hand on {names['where']}: {by_hand}",
        host=host,
    )


def _renewal(address: str) -> str:
    """Return how to renew the login to a registry of AWS, whose logins last 12 hours, or ""."""
    region = _ECR.fullmatch(address)
    if region is None:
        return ""
    words = f"aws ecr get-login-password --region {region[1]}"
    return f"{words} | docker login --username AWS --password-stdin {address}; or "


def _missing(words: str) -> bool:
    """Return whether the image is missing. Some registries then mention a login as well."""
    return re.search(r"manifest unknown|name unknown", words, re.IGNORECASE) is not None
