from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from kit.errors import ImageError, UnreachableError
from kit.model.plan import Pull
from kit.model.registry import RegistryLogin, address_of
from kit.model.secret import Secret
from kit.remote.engine import registry
from kit.remote.engine.client import Engine
from kit.remote.engine.registry_faults import fault

NAME = "r.example.com:5000/team/kit:cpu-0123"
STEP = Pull(image="kit:cpu-0123", source=NAME, digest="sha256:dd", why="")
ANN = RegistryLogin(user="ann", secret=Secret(b"s3cret"))
Progress = list[tuple[str, float | None]]


class Api:
    """What the SDK's low-level client has of registries: it plays `messages`, and writes down names and logins."""

    stderr = ""

    def __init__(self, *messages: Mapping[str, Any] | BaseException, has: Mapping[str, int] = {}) -> None:
        self.api = self
        self.messages = messages
        self.names = dict(has)
        self.auth: list[object] = []
        self.hung_up = False

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name not in self.names:
            raise ImageNotFound(name)
        return {"Id": "sha256:1f", "Size": self.names[name]}

    def tag(self, name: str, repository: str, tag: str) -> None:
        self.names[f"{repository}:{tag}"] = self.names.get(name, 1)

    def remove_image(self, name: str, *, noprune: bool) -> None:
        assert noprune
        del self.names[name]

    def push(self, repository: str, *, tag: str, **more: Any) -> Iterator[Mapping[str, Any]]:
        assert f"{repository}:{tag}" in self.names
        return self._play(**more)

    def pull(self, repository: str, *, tag: str, **more: Any) -> Iterator[Mapping[str, Any]]:
        self.names[f"{repository}@{tag}"] = 1
        return self._play(**more)

    def _play(self, *, auth_config: object, stream: bool, decode: bool) -> Iterator[Mapping[str, Any]]:
        assert (stream, decode) == (True, True)
        self.auth.append(auth_config)
        try:
            for message in self.messages:
                if isinstance(message, BaseException):
                    raise message
                yield message
        finally:
            self.hung_up = True


def moving(layer: str, current: int, total: int, status: str = "Pushing") -> dict[str, Any]:
    return {"id": layer, "status": status, "progressDetail": {"current": current * 10**6, "total": total * 10**6}}


def push(api: Api, progress: Progress | None = None, login: RegistryLogin | None = ANN) -> str:
    take = (lambda *one: progress.append(one)) if progress is not None else lambda *_: None
    return registry.push(Engine(api, host="gpu1"), "kit:cpu-0123", NAME, login, take)


PULLED = {"status": "Status: Downloaded newer image for r.example.com:5000/team/kit"}


def pull(api: Api, progress: Progress | None = None) -> None:
    api.messages = (*api.messages, PULLED)
    registry.pull(
        Engine(api), STEP, ANN, (lambda *one: progress.append(one)) if progress is not None else lambda *_: None
    )


def pull_base(api: Api, name: str, progress: Progress | None = None, *, host: str | None = None) -> None:
    api.messages = (*api.messages, PULLED)
    take = (lambda *one: progress.append(one)) if progress is not None else lambda *_: None
    Engine(api, host=host).pull(name, on_progress=take)


@pytest.fixture
def logged_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def test_a_push_needs_a_name_and_leaves_none() -> None:
    api = Api({"aux": {"Digest": "sha256:ee"}}, has={"kit:cpu-0123": 1})
    assert push(api) == "sha256:ee"
    assert api.names.keys() == {"kit:cpu-0123"}
    assert api.auth == [{"username": "ann", "password": "s3cret"}]


def test_a_push_from_containerds_image_store_has_a_digest() -> None:
    """Its engine sends no `aux` (moby, daemon/containerd/image_push.go)."""
    digest = f"sha256:{'ee' * 32}"
    line = {"status": f"cpu-0123: digest: {digest} size: 1786"}
    assert push(Api({"status": "The push refers to repository [r]"}, line, has={"kit:cpu-0123": 1})) == digest
    # Docker's own store sends both.
    aux = {"progressDetail": {}, "aux": {"Tag": "cpu-0123", "Digest": digest, "Size": 1786}}
    assert push(Api(line, aux, has={"kit:cpu-0123": 1})) == digest


def test_a_name_that_was_there_stays() -> None:
    api = Api(has={"kit:cpu-0123": 1, NAME: 1})
    push(api)
    assert NAME in api.names


@pytest.mark.parametrize(
    "trouble", [{"error": "denied: requested access to the resource is denied"}, KeyboardInterrupt()], ids=str
)
def test_whatever_ends_a_push_the_name_goes_and_the_engine_stops(trouble: Any) -> None:
    api = Api(moving("1", 1, 2), trouble, has={"kit:cpu-0123": 1})
    with pytest.raises((ImageError, KeyboardInterrupt)):
        push(api)
    assert api.names.keys() == {"kit:cpu-0123"}
    assert api.hung_up


def test_a_push_is_measured_by_the_whole_image() -> None:
    progress: Progress = []
    messages = [moving("1", 1, 1), {"id": "2", "status": "Layer already exists"}, moving("3", 4, 8), moving("3", 7, 8)]
    push(Api(*messages, has={"kit:cpu-0123": 10 * 10**6}), progress)
    assert progress == [("pushed 1 MB of 10 MB", 0.1), ("pushed 5 MB of 10 MB", 0.5), ("pushed 8 MB of 10 MB", 0.8)]


def test_a_pull_has_a_bar_once_it_is_known_what_there_is() -> None:
    progress: Progress = []
    waiting = [{"id": layer, "status": "Pulling fs layer"} for layer in "12"]
    messages = [
        *waiting, moving("1", 1, 4, "Downloading"), moving("2", 1, 4, "Downloading"),
        {"id": "1", "status": "Download complete"}, moving("2", 4, 4, "Downloading"), moving("1", 1, 9, "Extracting"),
    ]  # fmt: skip
    pull(Api(*messages), progress)
    assert progress == [
        ("pulled 1 MB", None), ("pulled 2 MB of 8 MB", 0.25), ("pulled 5 MB of 8 MB", 0.625),
        ("engine unpacks the image", 1.0),
    ]  # fmt: skip


def test_this_machines_engine_pulls_a_base_with_dockers_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"auths": {"r.io": {"auth": base64.b64encode(b"ann:s3cret").decode()}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    api = Api()
    pull_base(api, "r.io/base:1")
    pull_base(api, "debian:bookworm-slim")
    pull_base(api, "r.io/base:1", host="gpu1")
    assert api.auth == [{"username": "ann", "password": "s3cret"}, {}, {}]


def test_a_credential_helper_that_fails_matters_only_to_a_pull_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"credsStore": "nowhere"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    api = Api()
    pull_base(api, "debian:bookworm-slim")
    assert api.auth == [{}]
    with pytest.raises(ImageError, match="without a login: denied; and docker's login to") as caught:
        pull_base(Api({"error": "denied"}), "r.io/base:1")
    assert "credsStore" in str(caught.value.hint)


@pytest.mark.usefixtures("logged_out")
def test_the_pull_of_a_base_shows_its_bytes_and_stops_with_kit() -> None:
    progress: Progress = []
    api = Api({"id": "1", "status": "Pulling fs layer"}, moving("1", 1, 4, "Downloading"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        pull_base(api, "r.io/base:1", progress)
    assert progress == [("pulled 1 MB of 4 MB", 0.25)]
    assert api.hung_up


@pytest.mark.usefixtures("logged_out")
def test_the_messages_of_a_base_that_break_off_are_no_pull() -> None:
    api = Api(moving("1", 1, 4, "Downloading"))
    with pytest.raises(UnreachableError, match="the pull broke off"):
        Engine(api, host="gpu1").pull("r.io/base:1", on_progress=lambda *_: None)


def test_a_pulled_image_has_kits_name_alone() -> None:
    api = Api()
    pull(api)
    assert api.names.keys() == {"kit:cpu-0123"}


def test_messages_that_break_off_are_no_pull() -> None:
    api = Api(moving("1", 1, 4, "Downloading"))
    with pytest.raises(UnreachableError, match="the pull broke off"):
        registry.pull(Engine(api, host="gpu1"), STEP, ANN, lambda *_: None)
    assert "kit:cpu-0123" not in api.names


def test_a_name_that_a_killed_kit_left_goes_with_the_next_pull() -> None:
    api = Api(has={"r.example.com:5000/team/kit@sha256:dd": 1})
    pull(api)
    assert api.names.keys() == {"kit:cpu-0123"}


def test_an_identity_token_takes_the_place_of_a_password() -> None:
    api = Api(has={"kit:cpu-0123": 1})
    push(api, login=RegistryLogin(user="", secret=Secret(b"t0ken"), is_token=True))
    push(api, login=None)
    # Never None: the SDK would look for a login of this machine's by itself.
    assert api.auth == [{"identitytoken": "t0ken"}, {}]


# An engine's words → what kit says, and a part of what to do.
SAID = [
    ("unauthorized: authentication required", "r.example.com:5000 refuses the login of ann", "docker login"),
    ("Head \"https://…\": no basic auth credentials", "refuses the login of ann", "KIT_REGISTRY_USER"),
    ("denied: requested access to the resource is denied",
     "does not allow ann to do this with " + NAME, "docker login"),
    ("tls: failed to verify certificate: x509: certificate signed by unknown authority",
     "the engine does not trust the certificate of r.example.com:5000",
     "/etc/docker/certs.d/r.example.com:5000/ca.crt on the host"),
    ("x509: certificate is valid for localhost, not r.example.com", "is for another name", "registry:"),
    ("x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs", "another name", ""),
    ("x509: certificate has expired or is not yet valid", "out of date", "date on the host"),
    ("http: server gave HTTP response to HTTPS client", "uses plain HTTP", "insecure-registries"),
    ("Client sent an HTTP request to an HTTPS server.", "uses HTTPS", "remove r.example.com:5000"),
    ("dial tcp: lookup r.example.com: no such host", "does not resolve on the host", "DNS"),
    ("dial tcp 10.0.0.1:5000: connect: connection refused", "nothing listens at", "curl"),
    ("dial tcp 10.0.0.1:5000: connect: no route to host", "the host cannot reach", "firewall"),
    ("net/http: request canceled while waiting for connection (Client.Timeout exceeded)", "cannot reach", "proxy"),
    ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "the disk of the engine is full", "prune"),
    ("toomanyrequests: You have reached your pull rate limit.", "accepts no more requests", "wait"),
    ("manifest unknown: manifest unknown", "the registry does not have " + NAME,
     "kit image push r.example.com:5000/team"),
    # Harbor, issue 17390.
    ("denied: adding 29.0 MiB of storage resource, which when updated to current usage of 152.4 MiB will exceed the "
     "configured upper limit of 10.0 MiB.",
     "has no more room for " + NAME + ": denied: adding 29.0 MiB of storage resource", "a larger quota"),
    ("write /var/lib/docker/tmp/GetImageBlob1: disk quota exceeded", "the disk of the engine is full", "prune"),
    # Azure, docker/build-push-action issue 1214.
    ("denied: client with IP '10.9.9.9' is not allowed access. Refer https://aka.ms/acr/firewall to grant access.",
     f"does not allow ann to do this with {NAME}: denied: client with IP '10.9.9.9' is not allowed access", "ask"),
    ("denied: access forbidden", f"does not allow ann to do this with {NAME}", "ask"),
    # Harbor, issue 21373: the login is valid.
    ("unauthorized: unauthorized to access repository: team/kit, action: push: unauthorized to access repository: "
     "team/kit, action: push", "does not allow ann to do this with " + NAME, "ask for the permission"),
    # docker/hub-feedback issue 826.
    ('Get "https://r.example.com:5000/v2/": Proxy Authentication Required',
     "the host cannot reach r.example.com:5000 through its engine's proxy: Proxy Authentication Required", "no_proxy"),
    ('Get "https://r.example.com:5000/v2/": proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused',
     "through its engine's proxy: dial tcp 10.0.0.9:3128: connect: connection refused", "docker info on the host"),
    ('Get "https://r.example.com:5000/v2/": proxyconnect tcp: dial tcp: lookup proxy on 10.0.0.2:53: no such host',
     "through its engine's proxy: dial tcp: lookup proxy on 10.0.0.2:53: no such host", "docker info"),
    # containerd's image store, docker/cli issue 4959 and moby issue 52411.
    (f"missing content: content digest sha256:{'16' * 32}: not found", "of the host lacks a part of " + NAME,
     "image rm"),
    # Layers are in an object store (docker-archive-public/docker.kitematic issue 2113), logins at a server for tokens.
    ("error pulling image configuration: Get https://d3.cloudfront.net/registry-v2/docker/data?Expires=1: dial tcp: "
     "lookup d3.cloudfront.net on 10.0.0.2:53: no such host",
     "the host cannot reach d3.cloudfront.net, which r.example.com:5000 needs", "curl https://d3.cloudfront.net/"),
    ('Get "https://auth.example.com:5001/token?service=r": dial tcp 10.0.0.3:5001: connect: connection refused',
     "the host cannot reach auth.example.com:5001, which r.example.com:5000 needs", "firewalls"),
    ('Get "https://r.example.com:5000/v2/": dial tcp: lookup r.example.com on 10.0.0.2:53: no such host',
     "the name of r.example.com:5000 does not resolve on the host", "DNS"),
    ('Get "https://r.example.com:5000/v2/": dial tcp 10.0.0.1:5000: connect: connection refused',
     "nothing listens at r.example.com:5000", "curl"),
    ("denied: Your authorization token has expired. Reauthenticate and try again.",
     "the login to r.example.com:5000 has expired", "log in again: docker login r.example.com:5000"),
    ("invalid_token: The token has expired", "has expired", "docker login"),
    ("something new", "cannot be looked up at the registry: something new", "docker pull"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message", "hint"), SAID, ids=[row[0][:40] for row in SAID])
def test_the_cause_is_named(words: str, message: str, hint: str) -> None:
    class Refusing(Api):
        def inspect_distribution(self, name: str, *, auth_config: object) -> None:
            assert (name, auth_config) == (NAME, {"username": "ann", "password": "s3cret"})
            raise APIError("500 Server Error", explanation=words)

    with pytest.raises(ImageError) as caught:
        registry.look_up(Engine(Refusing(), host="gpu1"), NAME, ANN)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.host == "gpu1"


def test_a_refusal_without_a_reason_stays_short() -> None:
    for words in ("denied: requested access to the resource is denied", "denied: access forbidden"):
        message = fault(words, reference=NAME, doing="push", login=ANN, host="gpu1").message
        assert message.endswith(NAME)


def test_without_a_login_harbor_requires_one() -> None:
    words = "unauthorized: unauthorized to access repository: team/kit, action: pull"
    caught = fault(words, reference=NAME, doing="look", login=None, host="gpu1")
    assert "requires a login, and you gave none" in caught.message


def test_the_proxy_of_this_machines_engine_is_not_one_that_kit_sets_up() -> None:
    words = 'Get "https://r.example.com:5000/v2/": Proxy Authentication Required'
    caught = fault(words, reference=NAME, doing="push", login=ANN, host=None)
    assert "docker info on this machine shows the proxy; correct it in the engine's settings" in str(caught.hint)


def test_docker_hub_has_one_server_of_several_names() -> None:
    words = 'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host'
    caught = fault(words, reference="docker.io/ann/kit:cpu-0123", doing="look", login=None, host="gpu1")
    assert caught.message == "the name of docker.io does not resolve on the host"


@pytest.mark.parametrize(
    ("name", "reason", "host", "hint"),
    [
        ("team/hdv:1", "pull access denied for team/hdv, repository does not exist or may require 'docker login'", None,
         "correct its name; or, if it is private, log in as a user who may pull it: docker login docker.io"),
        ("r.io/hvd:1", "manifest for r.io/hvd:1 not found: manifest unknown", "gpu1",
         "correct its name; or, if it is private, pull it on a machine that reaches a registry, and bring it: "
         "docker save r.io/hvd:1 | kit ssh gpu1 -- sudo docker load"),
        ("team/hvd:1", "toomanyrequests: You have reached your unauthenticated pull rate limit.", None, "docker login"),
        ("team/hvd:1", "dial tcp: lookup registry-1.docker.io: no such host", None,
         "pull it on a machine that reaches a registry, and bring it: docker save team/hvd:1 | docker load"),
        ("team/hvd@sha256:dd", "dial tcp: lookup registry-1.docker.io: no such host", None,
         "let that engine reach a registry that has it, or name the image by a tag: docker load brings no digest"),
        ("nvcr.io/a:1", "no matching manifest for linux/arm64/v8 in the manifest list entries: no match for platform "
         "in manifest: not found", None, "not for the processor of that engine: name one that is, or let the head's"),
        ("team/hvd:1", "Get https://registry-1.docker.io/v2/: Proxy Authentication Required", None, "pull it on a"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("logged_out")
def test_a_pull_that_failed_has_the_next_step(name: str, reason: str, host: str | None, hint: str) -> None:
    with pytest.raises(ImageError) as caught:
        pull_base(Api({"error": reason}), name, host=host)
    assert hint in str(caught.value.hint)


def test_an_image_that_is_not_kits_is_never_to_be_pushed() -> None:
    hints = {"manifest unknown": "correct the image in nccl.plugin", "no such host": "correct nccl.plugin"}
    for words, hint in hints.items():
        caught = fault(words, reference="nvcr.io/ofi:1", doing="pull", login=None, host="gpu1", foreign=True)
        assert (caught.hint or "").startswith(hint)


def test_a_plugin_is_pulled_by_its_digest() -> None:
    for source in ("nvcr.io/ofi:1", "nvcr.io/ofi@sha256:dd", "nvcr.io/ofi:1@sha256:dd"):
        api = Api({"status": "Status: Downloaded"})
        step = Pull(image="kit-lab-nccl-plugin:01", source=source, digest="sha256:dd", why="")
        registry.pull(Engine(api, host="gpu1"), step, None, lambda *_: None)
        assert api.names == {"kit-lab-nccl-plugin:01": 1}
        assert step.full_line()[1].count("sha256:dd") == 1


def test_the_image_of_a_plugin_that_somebody_has_pulled_stays() -> None:
    theirs = {"nvcr.io/ofi@sha256:dd": 1}
    step = Pull(image="kit-lab-nccl-plugin:01", source="nvcr.io/ofi:1", digest="sha256:dd", why="")
    api = Api(PULLED, has=theirs)
    registry.pull(Engine(api, host="gpu1"), step, None, lambda *_: None)
    assert api.names == {**theirs, "kit-lab-nccl-plugin:01": 1}


def test_no_login_is_another_fault_than_a_wrong_one() -> None:
    with pytest.raises(ImageError, match="requires a login, and you gave none"):
        push(Api({"error": "unauthorized: authentication required"}, has={"kit:cpu-0123": 1}), login=None)


def test_a_repository_that_must_be_made_first() -> None:
    with pytest.raises(ImageError) as caught:
        push(Api({"error": "name unknown: The repository does not exist in the registry"}, has={"kit:cpu-0123": 1}))
    assert caught.value.hint == "create the repository r.example.com:5000/team/kit there first"


def test_a_push_by_hand_gives_the_image_its_name_again() -> None:
    with pytest.raises(ImageError) as caught:
        push(Api({"error": "something new"}, has={"kit:cpu-0123": 1}))
    assert caught.value.hint == f"try by hand on the host: docker tag kit:cpu-0123 {NAME} && docker push {NAME}"


def test_a_login_to_ecr_is_renewed_by_aws() -> None:
    address = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
    words = "denied: Your authorization token has expired. Reauthenticate and try again."
    caught = fault(words, reference=f"{address}/team/kit:cpu-0123", doing="push", login=ANN, host=None)
    renewal = (
        f"aws ecr get-login-password --region eu-west-1 | docker login --username AWS --password-stdin {address}; or"
    )
    assert str(caught.hint).startswith(f"log in again: {renewal}")


def test_the_address_is_the_server() -> None:
    assert address_of("r.example.com:5000/team/a") == "r.example.com:5000"
    assert address_of("localhost:5000") == "localhost:5000"
