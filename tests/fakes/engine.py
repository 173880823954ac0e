"""An engine's API in memory, for a VM in memory, behind kit's own Engine; and a registry that engines ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests
from docker.errors import APIError, ImageNotFound

from kit.model.host import Login
from kit.remote.engine.client import Engine

if TYPE_CHECKING:
    from tests.fakes.fleet import Fleet
    from tests.fakes.vm import FakeVM

BUILT = "sha256:b1"


@dataclass
class FakeRegistry:
    """`images` maps a reference to its digest. `asked` are the logins that engines brought, in order."""

    user: str = "ann"
    password: str = "s3cret-pass"
    images: dict[str, str] = field(default_factory=dict)
    arch: str = "amd64"
    logins: list[Mapping[str, str]] = field(default_factory=list)

    def check(self, auth: Mapping[str, str]) -> None:
        self.logins.append(auth)
        if auth != {"username": self.user, "password": self.password}:
            raise _error("unauthorized: authentication required")


@dataclass
class FakeApi:
    """The part of the SDK's low-level client that kit uses."""

    vm: FakeVM
    registry: FakeRegistry

    def inspect_image(self, name: str) -> dict[str, Any]:
        if "engine hangs up" in self.vm.faults:
            raise requests.exceptions.ConnectionError("Remote end closed connection without response")
        if name not in self.vm.images:
            raise ImageNotFound(name)
        image = self.vm.images[name]
        return {"Id": image, "Size": 7_000_000, "Architecture": "amd64", "Config": {"Labels": {"of": image}}}

    def inspect_distribution(self, name: str, *, auth_config: Mapping[str, str]) -> dict[str, Any]:
        self._fail_by_fault(name)
        self.registry.check(auth_config)
        if name not in self.registry.images:
            raise _error("manifest unknown: manifest unknown")
        platform = {"architecture": self.registry.arch, "os": "linux"}
        return {"Descriptor": {"digest": self.registry.images[name]}, "Platforms": [platform]}

    def pull(
        self, repository: str, *, tag: str, auth_config: Mapping[str, str] | None = None, **_: object
    ) -> Iterator[dict[str, Any]]:
        # With None, the SDK would send this machine's login.
        assert auth_config is not None
        if not auth_config:
            # An engine takes a digest where a tag can be.
            self.vm.images[f"{repository}{'@' if tag.startswith('sha256:') else ':'}{tag}"] = "sha256:ba5e"
            yield {"status": "Downloading", "id": "1", "progressDetail": {"current": 1_000_000, "total": 4_000_000}}
            yield {"status": f"Status: Downloaded newer image for {repository}"}
            return
        self.registry.check(auth_config or {})
        yield {"status": "Pulling fs layer", "id": "1"}
        yield {"status": "Downloading", "id": "1", "progressDetail": {"current": 1_000_000, "total": 4_000_000}}
        if "registry breaks" in self.vm.faults:
            yield {"error": "Get https://r.example.com:5000/v2/: read: connection reset by peer"}
            return
        yield {"status": "Download complete", "id": "1"}
        yield {"status": "Extracting", "id": "1"}
        assert tag in self.registry.images.values()
        self.vm.images[f"{repository}@{tag}"] = BUILT
        self.vm.changed.append(f"pull {repository}")
        yield {"status": f"Status: Downloaded newer image for {repository}"}

    def push(
        self, repository: str, *, tag: str, auth_config: Mapping[str, str], **_: object
    ) -> Iterator[dict[str, Any]]:
        self.registry.logins.append(auth_config)
        assert f"{repository}:{tag}" in self.vm.images
        yield {"status": "Pushing", "id": "1", "progressDetail": {"current": 2_000_000, "total": 7_000_000}}
        yield {"status": "Pushed", "id": "1"}
        digest = "sha256:" + "e" * 64
        self.registry.images[f"{repository}:{tag}"] = digest
        yield {"aux": {"Tag": tag, "Digest": digest, "Size": 1}}

    def tag(self, name: str, repository: str, tag: str) -> None:
        self.vm.images[f"{repository}:{tag}"] = self.vm.images[name]

    def remove_image(self, name: str, *, noprune: bool) -> None:
        assert noprune
        del self.vm.images[name]

    def build(self, *, tag: str, buildargs: Mapping[str, str], **_: object) -> Iterator[dict[str, Any]]:
        yield {"stream": "Step 1/1 : FROM x\n"}
        self.vm.images[tag] = BUILT
        self.vm.changed.append(f"build {tag}")

    def _fail_by_fault(self, name: str) -> None:
        if "no CA" in self.vm.faults:
            raise _error(
                f'Get "https://{name}": tls: failed to verify certificate: '
                "x509: certificate signed by unknown authority"
            )


@dataclass
class FakeClient:
    api: FakeApi
    stderr: str = "permission denied"

    def close(self) -> None:
        """Nothing is open."""


def engine_of(fleet: Fleet, login: Login) -> Engine:
    return Engine(FakeClient(FakeApi(fleet.vms[login.host], fleet.registry)), host=login.host)


def _error(words: str) -> APIError:
    return APIError("500 Server Error", explanation=words)
