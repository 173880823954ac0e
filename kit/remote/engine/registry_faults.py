"""What engines say when a registry does not do as asked, and what it means: the cause, and the next step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kit.errors import ImageError
from kit.model.registry import RegistryLogin, address_of

Doing = Literal["look", "push", "pull"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cause:
    """The first whose pattern is in the engine's words is told. Texts know {address}, {name}, {where}, {user}."""

    said: str
    message: str
    hint: str


_LOGIN = (
    "docker login {address} on your machine, or set KIT_REGISTRY_USER and KIT_REGISTRY_PASSWORD; then the same again"
)
_CAUSES = (
    _Cause(
        said=r"x509: .*(unknown authority|self.signed|issuer)",
        message="the engine does not trust the certificate of {address}",
        hint="put the certificate of its CA into /etc/docker/certs.d/{address}/ca.crt on {where}; no restart needed",
    ),
    _Cause(
        said=r"x509: .*(expired|not yet valid)",
        message="the certificate of {address} is out of date, or the clock of {where} is wrong",
        hint="compare: date on {where}; openssl s_client -connect {address} </dev/null | openssl x509 -noout -dates",
    ),
    _Cause(
        said=r"x509: .*(valid for|IP SANs|cannot validate|not valid|legacy Common Name)",
        message="the certificate of {address} is for another name",
        hint="write the name that is in the certificate as registry:, or give the registry a certificate for this one",
    ),
    _Cause(
        said=r"server gave HTTP response to HTTPS client",
        message="{address} speaks plain HTTP, and the engine wants HTTPS",
        hint="give the registry a certificate; or, where all of the network is trusted, add {address} to "
        "insecure-registries in /etc/docker/daemon.json on {where} and restart the engine",
    ),
    _Cause(
        said=r"HTTP request to an HTTPS server",
        message="{address} speaks HTTPS, and the engine was told to use plain HTTP",
        hint="take {address} out of insecure-registries in /etc/docker/daemon.json on {where}, and restart the engine",
    ),
    _Cause(
        said=r"no such host|server misbehaving|failure in name resolution",
        message="the name of {address} does not resolve on {where}",
        hint="correct registry:, or let {where} know the name (DNS, /etc/hosts)",
    ),
    _Cause(
        said=r"connection refused",
        message="nothing listens at {address}, as {where} sees it",
        hint="is the registry up, and the port right? Try from {where}: curl https://{address}/v2/",
    ),
    _Cause(
        said=r"no route to host|network is unreachable|i/o timeout|deadline exceeded|Client\.Timeout|"
        r"waiting for connection|handshake timeout|proxyconnect|connection reset",
        message="{where} does not reach {address}",
        hint="a firewall, or a proxy that the engine has to be told of? Try from {where}: curl https://{address}/v2/",
    ),
    _Cause(
        said=r"no space left on device",
        message="the disk of the engine is full",
        hint="make room on {where} (docker system prune), then the same again",
    ),
    _Cause(
        said=r"toomanyrequests|too many requests|\b429\b",
        message="{address} takes no more requests for now",
        hint="wait, or log in as somebody who may ask more often: docker login {address}",
    ),
    _Cause(
        said=r"manifest unknown|manifest for .* not found|name unknown|not found: |: not found$|\b404\b|does not exist",
        message="the registry does not have {name}",
        hint="kit image push {registry}",
    ),
    _Cause(
        said=r"denied|forbidden|insufficient.scope|\b403\b",
        message="{address} does not let {user} do this with {name}",
        hint="ask for the right there, or log in as somebody who has it: " + _LOGIN,
    ),
)
_UNAUTHORIZED = re.compile(r"unauthorized|authentication required|no basic auth|incorrect username|\b401\b", re.I)
_VERBS = {"look": "looked up at", "push": "pushed to", "pull": "pulled from"}


def fault(said: str, *, reference: str, doing: Doing, login: RegistryLogin | None, host: str | None) -> ImageError:
    """The error for an engine's words `said`, on `host` (None: this machine)."""
    address = address_of(reference)
    words = {
        "address": address,
        "name": reference,
        "registry": reference.rpartition("/")[0],
        # Its name stands before the message: so hosts that fail alike are told of together.
        "where": "the host" if host else "this machine",
        "user": (login.user if login else "") or "this login",
    }
    if _UNAUTHORIZED.search(said) and not _missing(said):
        refused = f"refuses the login of {login.user}" if login and login.user else "refuses the login"
        message = f"{address} {refused if login else 'wants a login, and there is none'}"
        return ImageError(message, hint=_LOGIN.format(**words), host=host)
    for cause in _CAUSES:
        if re.search(cause.said, said, re.IGNORECASE):
            hint = cause.hint.format(**words)
            if doing == "push" and cause.hint.startswith("kit image push"):
                hint = f"make the repository {words['registry']}/kit there first"
            return ImageError(cause.message.format(**words), hint=hint, host=host)
    return ImageError(
        f"{reference} cannot be {_VERBS[doing]} the registry: {' '.join(said.split())}",
        hint=f"try by hand on {words['where']}: docker {'push' if doing == 'push' else 'pull'} {reference}",
        host=host,
    )


def _missing(said: str) -> bool:
    """Where a name is not there, some registries say so and speak of a login in one breath."""
    return re.search(r"manifest unknown|name unknown", said, re.IGNORECASE) is not None
