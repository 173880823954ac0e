"""What an engine's error about a registry means: the cause, and the next step."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from kit.errors import ImageError, RegistryLoginError
from kit.model.registry import RegistryLogin, address_of, full_name, is_same

Doing = Literal["look", "push", "pull"]


class _Cause(Struct, frozen=True, kw_only=True):
    """A known cause. The first whose pattern matches the engine's words applies.

    The texts may use {address}, {name}, {registry}, {where}, {user}, {setting}, {missing} and {reason}. The reason is
    empty, or `: ` and what the engine says beyond the usual words.
    """

    pattern: str
    message: str
    hint: str


# Harbor and Quay about a login that is valid, but has no right to this image.
_NO_RIGHT = r"unauthorized to access repository|resource is not authorized"
_LOGIN = (
    "docker login {address} on your machine, or set KIT_REGISTRY={registry}, KIT_REGISTRY_USER and "
    "KIT_REGISTRY_PASSWORD; then retry"
)
_REFUSED = r"connection refused"
_UNKNOWN_NAME = r"no such host|server misbehaving|failure in name resolution"
_UNREACHABLE = (
    r"no route to host|network is unreachable|i/o timeout|deadline exceeded|Client\.Timeout|"
    r"waiting for connection|handshake timeout|connection reset"
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
        pattern=_UNKNOWN_NAME,
        message="the name of {address} does not resolve on {where}",
        hint="correct {setting}, or make the name known on {where} (DNS, /etc/hosts)",
    ),
    _Cause(
        pattern=_REFUSED,
        message="nothing listens at {address}, as {where} sees it",
        hint="check that the registry runs, and its port. Try from {where}: curl https://{address}/v2/",
    ),
    _Cause(
        pattern=_UNREACHABLE,
        message="{where} cannot reach {address}",
        hint="check firewalls, and whether the engine needs a proxy. Try from {where}: curl https://{address}/v2/",
    ),
    _Cause(
        pattern=r"no space left on device|disk quota exceeded",
        message="the disk of the engine is full",
        hint="free space on {where} (docker system prune), then retry",
    ),
    _Cause(
        pattern=r"toomanyrequests|too many requests|\b429\b",
        message="{address} accepts no more requests for now",
        hint="wait, or log in with a higher limit: docker login {address}",
    ),
    _Cause(
        # Harbor: "denied: adding 29.0 MiB of storage resource, which … will exceed the configured upper limit of …".
        pattern=r"\bquota\b|upper limit",
        message="{address} has no more room for {name}{reason}",
        hint="remove images there, or ask for a larger quota; then retry",
    ),
    _Cause(
        # Not the registry: moby, pull request 53615 and the issues in it.
        pattern=r"content digest sha256:[0-9a-f]+: not found",
        message="the image store of {where} lacks a part of {name}",
        hint="remove there what it has of this image and of its base (docker image rm), then retry",
    ),
    _Cause(
        pattern=r"manifest unknown|manifest for .* not found|name unknown|"
        r"not found: |: not found$|\b404\b|does not exist",
        message="the registry does not have {name}",
        hint="{missing}",
    ),
    _Cause(
        pattern=rf"denied|forbidden|insufficient.scope|\b403\b|{_NO_RIGHT}",
        message="{address} does not allow {user} to do this with {name}{reason}",
        hint="ask for the permission, or log in as a user who has it: " + _LOGIN,
    ),
)
_PROXY = re.compile(r"proxyconnect [a-z0-9]+: (.*)|(Proxy Authentication Required)", re.DOTALL)
_SERVER = re.compile(r"\blookup ([a-z0-9][a-z0-9.-]*)|\b(?:Get|Head|Post|Put|Patch) \"?https?://([^/\"\s]+)", re.ASCII)
# What a refusal without a reason consists of.
_USUAL = re.compile(
    r"(?:errors?:|denied|forbidden|unauthorized|access forbidden|requested access to the resource is denied|"
    r"authentication required|[\s:.,])*",
    re.IGNORECASE,
)
_MOST_REASON = 300
# What registries answer about an image that they lack, or that this login must not see. Most do not say which.
_NOT_FOR_YOU = re.compile(r"denied|unauthorized|authentication required|not found|manifest unknown", re.IGNORECASE)
_OTHER_PROCESSOR = re.compile(r"no matching manifest|no match for platform", re.IGNORECASE)
_TOO_MANY = re.compile(r"toomanyrequests|too many requests", re.IGNORECASE)
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
        "reason": _reason(words),
    }
    if proxy := _PROXY.search(words):
        correct = f"correct it in the engine's settings, or add {address} to its NO_PROXY; then restart the engine"
        if host is not None:
            correct = f"correct setup.proxy in kit.yaml, or add {address} to setup.no_proxy; then: kit setup"
        return ImageError(
            f"{names['where']} cannot reach {address} through its engine's proxy: {_line(proxy[1] or proxy[2])}",
            hint=f"docker info on {names['where']} shows the proxy; {correct}",
            host=host,
        )
    server = _other_server(words, address)
    if server and re.search(f"{_UNKNOWN_NAME}|{_REFUSED}|{_UNREACHABLE}", words, re.IGNORECASE):
        return ImageError(
            f"{names['where']} cannot reach {server}, which {address} needs for layers or logins",
            hint=f"open the way to {server} as well: DNS, firewalls, the engine's proxy. "
            f"Try from {names['where']}: curl https://{server}/",
            host=host,
        )
    if _EXPIRED.search(words):
        return RegistryLoginError(
            f"the login to {address} has expired",
            hint=f"log in again: {_renewal(address)}{_LOGIN.format(**names)}",
            host=host,
        )
    has_no_right = login is not None and re.search(_NO_RIGHT, words) is not None
    if _UNAUTHORIZED.search(words) and not _missing(words) and not has_no_right:
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


def pull_hint(name: str, reason: str, host: str | None, *, has_login: bool) -> str:
    """Return what to do if the engine of `host` (None: this machine's) cannot pull `name`, by the engine's `reason`."""
    load = "docker load" if host is None else f"kit ssh {host} -- sudo docker load"
    bring = f"pull it on a machine that reaches a registry, and bring it: docker save {name} | {load}"
    if "@" in name:
        bring = "let that engine reach a registry that has it, or name the image by a tag: docker load brings no digest"
    log_in = f"docker login {address_of(full_name(name))}"
    if _OTHER_PROCESSOR.search(reason):
        instead = ", or let the head's engine do this: --builder head" if host is None else ""
        return f"the image is not for the processor of that engine: name one that is{instead}"
    if _PROXY.search(reason):
        return bring
    if _TOO_MANY.search(reason):
        return f"wait, or {bring}" if host or has_login else f"wait, or log in, which allows more requests: {log_in}"
    if not _NOT_FOR_YOU.search(reason):
        return bring
    if host is not None:
        return f"correct its name; or, if it is private, {bring}"
    return f"correct its name; or, if it is private, log in as a user who may pull it: {log_in}"


def _reason(words: str) -> str:
    """Return `: ` and what a refusal says beyond the usual words, or "" if that is nothing."""
    return "" if _USUAL.fullmatch(words) else f": {_line(words)}"


def _line(words: str) -> str:
    return " ".join(words.split())[:_MOST_REASON]


def _other_server(words: str, address: str) -> str:
    """Return the server that the engine did not reach, if it is not the registry's own, or ""."""
    names = [match[1] or match[2] for match in _SERVER.finditer(words)]
    server = names[-1].rstrip(".") if names else address
    return "" if is_same(server, address) or server == address.partition(":")[0] else server


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
