"""An engine, of this machine or of a VM: which images it has, pull one, build one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from msgspec import Struct

from kit.errors import AnswerError, ImageError, UnreachableError
from kit.model.answer import MOST, OddAnswer, convert
from kit.model.host import Login
from kit.model.image import HashedFile, ImageContent
from kit.model.registry import RegistryLogin, address_of, full_name
from kit.remote.engine import sdk
from kit.remote.engine.build import OnStep, Outcome, build
from kit.remote.engine.events import MOST_TEXT
from kit.remote.engine.hiccups import nothing_began, persistently
from kit.remote.engine.moved import OnProgress, pulled
from kit.remote.engine.registry_faults import pull_hint
from kit.remote.machine.credentials import find_login
from kit.remote.ssh.refusals import dropped, dropped_error, reason

_MOST_ID = 200


class EngineImage(Struct, frozen=True, kw_only=True):
    """An image of an engine: `image_id` is sha256:…, the size is that of all layers, `arch` as in amd64.

    `ships_as` is the ID that the image gets on the hosts that kit ships it to. `layers` are SHA-256, the lowest first.
    """

    image_id: str
    size_bytes: int
    arch: str = ""
    ships_as: str = ""
    layers: tuple[str, ...] = ()


class _Facts(Struct, frozen=True, kw_only=True):
    """What kit reads of an engine's answer about an image."""

    Id: str
    Size: int
    Architecture: str | None = None


def _image(facts: object) -> EngineImage:
    """Return an image by an engine's answer about it. Raises OddAnswer."""
    from kit.remote.ship.porter.archive import config_of, layers_of  # noqa: PLC0415  (only here)
    from kit.remote.ship.porter.engine import EngineError  # noqa: PLC0415

    read: _Facts = convert(facts, _Facts)
    if not (isinstance(facts, dict) and 0 <= read.Size <= MOST and len(read.Id) <= _MOST_ID):
        raise OddAnswer("the id or the size of an image is out of range", repr(facts)[:100])
    for word in (read.Id, read.Architecture or ""):
        if not (word.isascii() and word.isprintable()):
            raise OddAnswer("the id or the architecture of an image is odd", word)
    try:
        config, layers = config_of(facts), tuple(layers_of(facts))
    except EngineError as error:
        raise OddAnswer(str(error)) from None
    return EngineImage(
        image_id=read.Id,
        size_bytes=read.Size,
        arch=read.Architecture or "",
        ships_as="sha256:" + hashlib.sha256(config).hexdigest(),
        layers=layers,
    )


def auth_config(login: RegistryLogin | None) -> dict[str, str]:
    """Return the login as engines expect it. An empty one means none; with None the SDK would look for one."""
    if login is None:
        return {}
    secret = login.secret.reveal().decode()
    return {"identitytoken": secret} if login.is_token else {"username": login.user, "password": secret}


class Engine:
    """One engine, of `host` or of this machine (None).

    Methods raise UnreachableError if it does not answer, and ImageError if it refuses.
    """

    def __init__(self, client: Any, host: str | None = None) -> None:
        self._client = client
        self.host = host

    @classmethod
    def connect(cls) -> Engine:
        """Return the engine that docker uses on this machine."""
        return cls(sdk.connect())

    @classmethod
    def over_ssh(cls, login: Login) -> Engine:
        """Return the engine of a VM. This machine needs none for it."""
        from kit.remote.engine.over_ssh import SshEngine  # noqa: PLC0415  (the SDK)

        engine = cls(SshEngine(login), host=login.host)
        try:
            with engine.errors():
                engine._client.connect()
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def api(self) -> Any:
        """The SDK's low-level client, for use within `errors`."""
        return self._client.api

    def close(self) -> None:
        self._client.close()

    def image(self, name: str) -> EngineImage | None:
        """Return the image of this tag or ID, or None if the engine does not have it."""
        from docker.errors import ImageNotFound  # noqa: PLC0415

        with self.errors():
            try:
                facts = self._client.api.inspect_image(name)
            except ImageNotFound:
                return None
            return _image(facts)

    def pull(self, name: str, *, on_progress: OnProgress, what: str = "the base image") -> None:
        """Pull an image. An ImageError says how else to get it, and calls it `what`.

        This machine's engine gets docker's login to the registry. A VM's engine gets none, because root there could
        read it.
        """
        from docker.errors import APIError  # noqa: PLC0415
        from docker.utils import parse_repository_tag  # noqa: PLC0415

        login, unreadable = None, None
        if self.host is None:
            try:
                login = find_login(address_of(full_name(name)), {})
            except ImageError as caught:
                # Most images need no login, so the failure of a credential helper is only reported if the pull fails.
                unreadable = caught
        try:
            with self.errors():
                repository, tag = parse_repository_tag(name)
                messages = self.api.pull(
                    repository, tag=tag or "latest", stream=True, decode=True, auth_config=auth_config(login)
                )
                try:
                    pulled(messages, on_progress)
                except APIError as error:
                    raise ImageError(str(error.explanation)) from error
        except ImageError as error:
            if unreadable is not None:
                raise ImageError(
                    f"{what} {name} is not on this machine and cannot be pulled without a login: {error.message}; and "
                    f"{unreadable.message}",
                    hint="remove a credsStore or credHelpers that you do not use from docker's config.json, or log in "
                    f"again: docker login {address_of(full_name(name))}",
                ) from error
            where = "on this machine" if self.host is None else "there"
            raise ImageError(
                f"{what} {name} is not {where} and cannot be pulled: {error.message}",
                hint=pull_hint(name, error.message, self.host, has_login=login is not None),
                host=self.host,
            ) from error

    def build(
        self,
        content: ImageContent,
        *,
        beside: Mapping[str, bytes | HashedFile],
        arguments: Mapping[str, str],
        on_step: OnStep,
        fresh: bool = False,
    ) -> EngineImage:
        """Build and tag `content`. `beside` are files of the context that are not part of the content.

        `fresh` ignores the engine's cache. Whatever ends the build early, Ctrl-C too, leaves no container.
        """

        def attempt() -> Outcome:
            with self.errors():
                return build(self.api, content, beside=beside, arguments=arguments, on_step=on_step, fresh=fresh)

        # If the runtime did not begin a step, the next attempt finds the steps before it in the cache.
        outcome = persistently(attempt, lambda outcome: nothing_began(outcome.error or ""))
        if outcome.error is not None:
            raise outcome.failure(self.host)
        image = self.image(content.tag)
        if image is None:
            raise ImageError(
                f"the engine reported that it built {content.tag}, and does not have it",
                hint="build it again",
                host=self.host,
            )
        return image

    def errors(self) -> AbstractContextManager[None]:
        """Turn the SDK's exceptions into kit's."""
        return sdk.errors(refused=self._refused, silent=self._silent, odd=self._odd)

    def _refused(self, error: Any) -> ImageError:
        return ImageError(
            f"the engine refuses: {sdk.reply(error)}", hint=sdk.next_step(error, self.host), host=self.host
        )

    def _odd(self, error: Exception) -> AnswerError:
        where, look = (
            ("its engine", f"kit ssh {self.host} -- sudo docker info") if self.host else ("the engine", "docker info")
        )
        return AnswerError(
            f"kit cannot read what {where} answers: {str(error)[:MOST_TEXT]}",
            hint=f"another program may answer there, or another version of one; look: {look}",
            host=self.host,
        )

    def _silent(self, error: Exception) -> UnreachableError:
        if self.host is None:
            return sdk.no_engine(error)
        text = self._client.stderr
        if dropped(text):
            return dropped_error("its sshd", text, self.host)
        return UnreachableError(
            f"its engine does not answer: {reason(text) or error}",
            hint=f"try: kit ssh {self.host} -- sudo docker info",
            host=self.host,
        )
