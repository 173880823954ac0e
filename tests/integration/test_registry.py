"""A private registry (TLS with its CA, a login), real engines that push to it and pull from it, and an image that the
head builds for an operator with no engine.

The image is a small one: the ssh layer on Debian, with Python and Open MPI. A lab of two hosts is these tests' own.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.model.host import Login
from kit.remote.engine.client import Engine
from tests.integration.conftest import missing
from tests.integration.private_registry import USER, Registry, binary, running
from tests.integration.rig import VM, Cluster, Done, change_settings, everywhere, kit, objects, taken_down, until
from tests.processes import files_of_processes

# With this, kit does not find this machine's engine.
NO_ENGINE = {"DOCKER_HOST": "tcp://127.0.0.1:1"}
IMAGE = {"flavour": "ssh-layer", "base": "debian:bookworm-slim", "packages": ["python3", "openmpi-bin"]}
CERTIFICATES = Path("/etc/docker/certs.d")

# Reads a secret and a word that a process surely shows; says which processes show which, until the file is there.
# Neither is on this script's own command line, nor in its environment.
WATCH = r"""
read -r secret
read -r canary
while [ ! -e /run/watched ]; do
  echo "$secret" | grep -lsF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/environ
  if echo "$canary" | grep -qsF -f - /proc/[0-9]*/cmdline; then
    echo canary
    touch /run/seen
  fi
  sleep 0.1
done
rm -f /run/watched /run/seen
"""
CANARY = "canary-for-the-watch"
# Shows itself, as an argument, until it was seen: on a busy machine one look at all processes may take long.
SHOW = "for _ in $(seq 600); do [ ! -e /run/seen ] || exit 0; sleep 0.2; done; exit 1"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Two bare hosts, a registry that they reach, and kit's settings for both."""

    cluster: Cluster
    registry: Registry
    tag: str

    @property
    def name(self) -> str:
        return f"{self.registry.address}/team"

    @property
    def hosts(self) -> tuple[VM, ...]:
        return self.cluster.hosts

    def kit(self, *words: str, **environ: str) -> Done:
        """kit without this machine's engine, unless `environ` says where it is."""
        # The variable also sets the registry of a deploy that names none.
        named = {"KIT_REGISTRY": self.name} if self.name in words else {}
        return self.cluster.kit(*words, **{**NO_ENGINE, **self.registry.login, **named, **environ})

    def images(self) -> dict[str, list[str]]:
        """What the engine of each host has a name for, but the base."""
        # Layers without any name are the engine's cache, as after each build with several stages.
        listed = "docker images --digests --format '{{.Repository}}:{{.Tag}}@{{.Digest}}'"
        text = f"{listed} | grep -v -e ^debian: -e '^<none>:<none>@<none>' || :"
        return everywhere(self.hosts, lambda host: host.script(text).splitlines())

    def services(self) -> dict[str, list[str]]:
        def running(host: VM) -> list[str]:
            return [
                f"{c['Config']['Labels']['kit.service']} {c['Config']['Image']}"
                for c in host.containers(self.cluster.name)
                if c["State"]["Running"]
            ]

        return everywhere(self.hosts, running)

    def deployed(self) -> dict[str, list[str]]:
        return {host.name: [f"{'mpinode' if i else 'mpihead'} {self.tag}"] for i, host in enumerate(self.hosts)}

    def gone(self) -> None:
        down = self.kit("down", "--yes", "--images")
        assert down.returncode == 0, down.stderr
        assert self.images() == {host.name: [] for host in self.hosts}


def trust(host: VM | None, registry: Registry) -> None:
    """Give the engine of the host, or this machine's, the CA."""
    folder = CERTIFICATES / registry.address
    if host is None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(registry.ca, folder / "ca.crt")
    else:
        host.script('mkdir -p "$1" && printf %s "$2" >"$1/ca.crt"', str(folder), registry.ca.read_text())


@pytest.fixture(scope="module")
def site(bases: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.geteuid() != 0:
        missing("only root can give this machine's engine a CA", "sudo scripts/test")
    folder = tmp_path_factory.mktemp("registry")
    program = binary(folder)
    if program is None:
        missing("docker-registry is not here", "apt-get install docker-registry")
    lab = f"registry-{os.getpid()}"
    with contextlib.ExitStack() as undo:
        undo.enter_context(taken_down(folder, lab))
        up = kit(folder, "lab", "up", "--name", lab, "--hosts", "2", "--slots", "1", "--output", "json")
        assert up.returncode == 0, up.stderr
        lab_object = objects(up)[-1]
        hosts = tuple(VM(name=h["name"], address=h["address"], folder=folder) for h in lab_object["hosts"])
        gateway = str(ipaddress.IPv4Network(lab_object["network"])[1])
        if not _ours(gateway):
            missing("the hosts of a lab do not reach this machine", "run the tests where the engine runs")
        change_settings(folder, image=IMAGE)
        tag = kit(folder, "image", "tag").stdout.strip()
        cluster = Cluster(name=lab, folder=folder, hosts=hosts)
        registry = undo.enter_context(running(program, folder, gateway, f"pw-{secrets.token_hex(8)}"))
        undo.callback(shutil.rmtree, CERTIFICATES / registry.address, ignore_errors=True)
        before = bases.images.list(name=tag)
        undo.callback(_put_back, bases, tag, before[0].id if before else None)
        yield Site(cluster=cluster, registry=registry, tag=tag)


def _put_back(engine: Any, tag: str, before: str | None) -> None:
    """What this machine's engine calls `tag` is what it was before, or nothing."""
    for image in engine.images.list(name=tag):
        if image.id != before:
            engine.images.remove(image.id, force=True)
            if before is not None:
                engine.api.tag(before, *tag.split(":"))


def _ours(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


@pytest.fixture(scope="module")
def built(site: Site, bases: Any) -> Done:
    """A deploy for which the head builds the image. No registry answers there: the base is brought by docker load."""
    head = site.hosts[0]
    files = head.folder / ".kit/lab"
    options = ["-i", str(files / "id_ed25519"), "-o", f"UserKnownHostsFile={files / 'known_hosts'}"]
    load = ["ssh", "-F", "none", *options, "-o", "BatchMode=yes", f"root@{head.address}", "docker", "load", "-q"]
    with subprocess.Popen(load, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        for chunk in bases.images.get("debian:bookworm-slim").save(named=True):
            process.stdin.write(chunk)
    assert process.returncode == 0
    return site.kit("deploy", "--builder", "head", "--progress", "plain")


@pytest.fixture(scope="module")
def pushed(site: Site, built: Done, bases: Any) -> dict[str, Done]:
    """Pushed by the head that built it, and by this machine's engine with docker's login; then gone from the hosts."""
    assert built.returncode == 0, built.stderr
    head, files = site.hosts[0], site.cluster.folder / ".kit/lab"
    trust(head, site.registry)
    by_head = site.kit("image", "push", site.name, "--builder", "head", "--output", "json")

    login = Login(
        host=head.name, address=head.address, user="root", port=None,
        key=str(files / "id_ed25519"), known_hosts=str(files / "known_hosts"),
    )  # fmt: skip
    with contextlib.closing(Engine.over_ssh(login)) as engine:
        bases.images.load(b"".join(engine.api.get_image(site.tag)))
    trust(None, site.registry)
    by_us = kit(site.cluster.folder, "image", "push", site.name, "--output", "json", **docker_login(site))
    site.gone()
    return {"head": by_head, "here": by_us}


def docker_login(site: Site) -> dict[str, str]:
    """The environment in which docker login was called once."""
    folder = site.cluster.folder / "docker"
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{USER}:{site.registry.password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {site.registry.address: {"auth": auth}}}))
    return {"DOCKER_CONFIG": str(folder)}


def test_the_head_builds_and_the_others_get_it_from_there_with_no_engine_here(site: Site, built: Done) -> None:
    assert built.returncode == 0, built.stderr
    assert site.services() == site.deployed()
    assert site.images() == {host.name: [f"{site.tag}@<none>"] for host in site.hosts}
    assert f"{site.hosts[0].name}: step 3/" in built.stderr
    again = site.kit("image", "build", "--builder", "head", "--output", "json")
    assert objects(again)[-1]["built"] is False


@pytest.mark.parametrize("engine", ["head", "here"])
def test_a_push_by_either_engine_leaves_no_other_name(
    site: Site, pushed: dict[str, Done], bases: Any, engine: str
) -> None:
    done = pushed[engine]
    assert done.returncode == 0, done.stderr
    push = objects(done)[-1]
    assert push["image"] == f"{site.name}/{site.tag}"
    assert push["built"] is False
    assert bases.images.get(site.tag).tags == [site.tag]
    assert bases.images.list(name=f"{site.name}/kit") == []


def test_a_push_with_a_wrong_password(site: Site, pushed: dict[str, Done], bases: Any) -> None:
    done = site.kit("image", "push", site.name, KIT_REGISTRY_PASSWORD="wr0ng-password", DOCKER_HOST="")
    assert done.returncode == 6
    assert f"{site.registry.address} refuses the login of {USER}" in done.stderr
    assert "wr0ng-password" not in done.stdout + done.stderr
    assert bases.images.get(site.tag).tags == [site.tag]


def test_hosts_without_the_ca_are_named_before_anything_is_changed(site: Site, pushed: dict[str, Done]) -> None:
    for host in site.hosts:
        host.text("rm", "-rf", str(CERTIFICATES / site.registry.address))
    before = site.cluster.state()
    done = site.kit("deploy", "--registry", site.name)
    assert done.returncode == 6
    assert "the engine does not trust the certificate" in done.stderr
    assert all(host.name in done.stderr or "gpu[1-2]" in done.stderr for host in site.hosts)
    assert f"{CERTIFICATES}/{site.registry.address}/ca.crt" in done.stderr
    assert site.cluster.state() == before
    assert site.images() == {host.name: [] for host in site.hosts}


@pytest.fixture
def trusted(site: Site, pushed: dict[str, Done]) -> Site:
    assert all(done.returncode == 0 for done in pushed.values())
    for host in site.hosts:
        trust(host, site.registry)
    return site


def test_a_dry_run_sends_no_login(trusted: Site, tmp_path: Path) -> None:
    """The registry would refuse this one by name."""
    environ = {"DOCKER_CONFIG": str(tmp_path), "KIT_REGISTRY_PASSWORD": "wr0ng-password"}
    done = trusted.kit("deploy", "--registry", trusted.name, "--dry-run", **environ)
    assert done.returncode == 0, done.stderr
    assert f"{trusted.registry.address} requires a login, which a dry run does not send" in done.stderr


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"KIT_REGISTRY_PASSWORD": "wr0ng-password"}, "refuses the login of ann"),
        ({"KIT_REGISTRY_PASSWORD": "", "KIT_REGISTRY_USER": ""}, "requires a login, and you gave none"),
        ({"KIT_REGISTRY": "other.example.com/team"}, "requires a login, and you gave none"),
        ({"KIT_IMAGE_BASE": "debian:never-pushed"}, "the registry does not have"),
    ],
    ids=["wrong password", "no login", "the login of another registry", "not pushed"],
)
def test_what_the_registry_refuses_is_reported_before_anything_is_changed(
    trusted: Site, change: dict[str, str], reason: str, tmp_path: Path
) -> None:
    before = trusted.cluster.state()
    done = trusted.kit("deploy", "--registry", trusted.name, **{"DOCKER_CONFIG": str(tmp_path), **change})
    assert done.returncode == 6
    assert reason in done.stderr
    assert "wr0ng-password" not in done.stdout + done.stderr
    assert trusted.cluster.state() == before


def test_hosts_pull_and_the_password_is_nowhere(trusted: Site) -> None:
    trusted.gone()
    password = trusted.registry.password
    with _watched(trusted) as seen:
        done = trusted.kit("deploy", "--registry", trusted.name, "--verbose", "--progress", "plain")
    assert done.returncode == 0, done.stderr
    # The watch saw what there was to see, and no password.
    assert seen == {f"{host.name} canary" for host in trusted.hosts}
    assert trusted.services() == trusted.deployed()
    # As if it had been shipped: kit's name and no other, so that down --images needs to know of no registry.
    assert trusted.images() == {host.name: [f"{trusted.tag}@<none>"] for host in trusted.hosts}

    forms = [password, *_encoded(password)]
    audit = trusted.kit("audit", "--output", "json")
    assert objects(audit)[-1]["verb"] == "deploy"
    inspected = [host.containers(trusted.cluster.name) for host in trusted.hosts]
    everything = done.stdout + done.stderr + audit.stdout + json.dumps(inspected)
    assert [form for form in forms if form in everything] == []
    search = "grep -rlsF -D skip -f - --exclude-dir=proc --exclude-dir=sys --exclude-dir=overlay2 / || :"
    for name, places in everywhere(trusted.hosts, lambda h: h.ssh("sh", "-c", search, stdin="\n".join(forms))).items():
        assert (places.returncode, places.stdout) == (0, ""), name
    again = trusted.kit("deploy", "--registry", trusted.name, "--quiet")
    assert "Nothing to do" in again.stdout
    trusted.gone()


def _encoded(password: str) -> Iterator[str]:
    """The password inside of what headers and files of docker hold, at each place that base64 can put it."""
    for before in range(3):
        text = base64.b64encode(b"x" * before + password.encode()).decode()
        yield text[4 if before else 0 : -4]


@contextlib.contextmanager
def _watched(site: Site) -> Iterator[set[str]]:
    """Every process on the hosts, and the words of those here, looked at all the time for the password."""
    seen: set[str] = set()
    over = threading.Event()

    def here() -> None:
        secret = site.registry.password.encode()
        while not over.wait(0.05):
            for path in files_of_processes("cmdline"):
                with contextlib.suppress(OSError):
                    if secret in path.read_bytes():
                        seen.add(str(path))

    def there(host: VM) -> None:
        places = host.ssh("sh", "-c", WATCH, stdin=f"{site.registry.password}\n{CANARY}\n")
        seen.update(f"{host.name} {line}" for line in [*places.stdout.splitlines(), *places.stderr.splitlines()])

    threads = [threading.Thread(target=here), *(threading.Thread(target=there, args=(host,)) for host in site.hosts)]
    for thread in threads:
        thread.start()
    try:
        yield seen
        for host in site.hosts:
            host.text("sh", "-c", SHOW, CANARY)
    finally:
        for host in site.hosts:
            host.text("touch", "/run/watched")
        over.set()
        for thread in threads:
            thread.join()


def test_ctrl_c_ends_a_build_on_the_head(site: Site, built: Done) -> None:
    head = site.hosts[0]
    before = set(head.text("docker", "ps", "-aq").split())
    images = site.images()[head.name]

    def of_the_build() -> set[str]:
        return set(head.text("docker", "ps", "-aq").split()) - before

    change_settings(site.cluster.folder, image={**IMAGE, "packages": ["python3", "htop"]})
    try:
        with site.cluster.running("image", "build", "--builder", "head", **NO_ENGINE) as build:
            until("the head builds", of_the_build)
            build.send_signal(signal.SIGINT)
            assert build.wait(180) == 130
    finally:
        change_settings(site.cluster.folder, image=IMAGE)
    until("no container of the build is left", lambda: not of_the_build())
    until("nobody talks to the head's engine", lambda: not head.script("pgrep -f 'dial-stdi[o]' || :"))
    assert site.images()[head.name] == images
