"""The border to the Docker SDK: open a client of this machine's engine, and turn the SDK's exceptions into kit's.

Every verb that needs this machine's engine comes through here, so a dead engine is the same error for all of them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kit.errors import AnswerError, UnreachableError
from kit.remote.machine import docker_context, prepare

# A step of a build may be silent for long.
TIMEOUT_S = 600
_LOCAL = "unix:///var/run/docker.sock"
_MOST_TEXT = 4000


def connect(*, timeout_s: int = TIMEOUT_S, connections: int = 10) -> Any:
    """Return a client of the engine that docker uses: that of DOCKER_HOST, its current context or the local socket.

    Up to `connections` requests go side by side. Raises UnreachableError if the engine does not answer.
    """
    import docker  # noqa: PLC0415  (half a second, and only verbs with an engine need it)
    from paramiko import SSHException  # noqa: PLC0415  (the SDK imports it)

    # With an address, the SDK looks for no context.
    engine = {docker_context.HOST: _LOCAL, **docker_context.variables(os.environ)}
    _refuse_unusable(engine)
    with errors(refused=no_engine):
        try:
            client: Any = docker.from_env(environment=engine, timeout=timeout_s, max_pool_size=connections)
        except (OSError, SSHException) as error:
            # What the SDK passes on if the address is ssh://.
            raise no_engine(error) from error
    client.api._set_auth_headers = _no_logins
    return client


def _refuse_unusable(engine: Mapping[str, str]) -> None:
    """Raise UnreachableError if the address cannot be one, or its certificates are missing. This sends no request.

    The SDK raises ValueError for some of these, as it does for an answer that it cannot read.
    """
    from docker.errors import DockerException, TLSParameterError  # noqa: PLC0415
    from docker.utils import kwargs_from_env, parse_host  # noqa: PLC0415

    chosen = docker_context.choice(os.environ)
    where = chosen.where if chosen else "this machine"
    try:
        kwargs_from_env(engine)
        parse_host(engine[docker_context.HOST])
    except TLSParameterError as error:
        files = "cert.pem, key.pem and ca.pem" if engine.get(docker_context.VERIFY) else "cert.pem and key.pem"
        folder = engine.get(docker_context.CERTIFICATES) or "~/.docker"
        hint = (
            f"set {docker_context.CERTIFICATES} to the folder that has them, or unset {docker_context.VERIFY} "
            f"and {docker_context.CERTIFICATES}"
        )
        if chosen and chosen.by != docker_context.HOST:
            hint = f"restore them, or {chosen.undo}"
        raise UnreachableError(
            f"no Docker Engine answers at {where}: TLS needs {files} in {folder}", hint=hint
        ) from error
    except (DockerException, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UnreachableError(
            f"no Docker Engine answers at {where}: {reason}", hint=f"correct it, or {chosen.undo}" if chosen else None
        ) from error


def _no_logins(_headers: dict[str, str]) -> None:
    """Send no login with a build, whose bases are pulled before. The SDK would send every login of this machine.

    It asks all credential helpers for that, and fails if one of them does.
    """


@contextlib.contextmanager
def errors(
    *,
    refused: Callable[[Any], Exception],
    silent: Callable[[Exception], Exception] | None = None,
    odd: Callable[[Exception], Exception] | None = None,
) -> Iterator[None]:
    """Turn the SDK's exceptions, and those of the libraries below it, into kit's.

    `refused` makes the error for an APIError: the engine answered, and its answer is no. `silent` makes the error where
    no answer came, or half of one; by default it is `no_engine`. `odd` makes the error for an answer that does not fit.
    """
    import requests  # noqa: PLC0415
    import urllib3  # noqa: PLC0415
    from docker.errors import APIError, DockerException, StreamParseError  # noqa: PLC0415

    # The SDK passes on what it meets when an answer breaks off in the middle.
    broken = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, StreamParseError, ConnectionError)
    try:
        yield
    except APIError as error:
        raise refused(error) from error
    except (DockerException, *broken) as error:
        raise (silent or no_engine)(error) from error
    except (ValueError, RecursionError) as error:
        # An OddAnswer, or what the SDK meets in an answer that is not JSON, has no end of brackets or a digit too many.
        raise (odd or _odd)(error) from error


def _odd(error: Exception) -> AnswerError:
    return AnswerError(
        f"kit cannot read what the Docker Engine on this machine answers: {str(error)[:_MOST_TEXT]}",
        hint="another program may answer at its socket; try: docker info",
    )


def reply(error: Any) -> str:
    """Return the engine's own words in an APIError."""
    return " ".join(str(error.explanation or error)[:_MOST_TEXT].split())


def next_step(error: Any, host: str | None = None) -> str:
    """Return what to do after an APIError of the engine of `host`, or of this machine."""
    if re.search("no space left|disk quota exceeded", str(error.explanation or error), re.IGNORECASE):
        return disk_full(host)
    log = f"kit ssh {host} -- sudo journalctl -u docker" if host else "journalctl -u docker"
    return f"look at the engine's log ({log}), and run the command again"


def disk_full(host: str | None = None) -> str:
    """Return what to do if the engine of `host`, or of this machine, has no space."""
    run = f"kit ssh {host} -- sudo " if host else ""
    return f"the engine's disk is full: {run}docker system df, then {run}docker image prune"


def no_engine(error: BaseException) -> UnreachableError:
    """Return the error for an engine of this machine that does not answer. Only the cause shapes its hint."""
    cause = _innermost(error)
    reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else " ".join(str(error).split())
    if chosen := docker_context.choice(os.environ):
        return UnreachableError(
            f"no Docker Engine answers at {chosen.where}: {reason}", hint=f"start the engine there, or {chosen.undo}"
        )
    hint = f"start it: sudo systemctl start docker; or install one: {prepare.command_line('engine')}"
    if isinstance(cause, PermissionError):
        hint = 'join the group docker: sudo usermod -aG docker "$USER", and log in again'
    return UnreachableError(f"no Docker Engine answers on this machine: {reason}", hint=hint)


def _innermost(error: BaseException) -> BaseException:
    """Return the system's own error, which the libraries wrap several times."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner
        inner = inner.__cause__ or inner.__context__
    return error
