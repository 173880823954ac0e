"""Fixtures on real engines: the cpu image, a lab of the tests' own, and one deployed cluster for all tests.

The one place that decides what a missing thing means: a skip that says how to get it, and a failure where tests may
not be skipped (CI=true or KIT_REQUIRE_INTEGRATION=1).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kit.errors import UnreachableError
from kit.events import Silent
from kit.flows.image.build import ImageResult, build_image
from kit.flows.image.content import locked_bases
from kit.model.spec import ClusterSpec
from kit.plan.bases import pin_bases
from kit.remote.engine.client import Engine
from kit.remote.lab import image as lab_image
from tests.integration.preload import Template, template
from tests.integration.rig import CONNECTIONS, VM, Cluster, change_settings, everywhere, kit, objects, taken_down
from tests.lanes import lane, order

LAB = f"itest-{os.getpid()}"
# pytest-xdist's name of this process, where it has several.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
BASES = {"debian:bookworm-slim": "bookworm", "debian:trixie-slim": "trixie"}

HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
# In this lane, the deploy ships the image to these hosts. All other hosts of the tests' clusters begin with it.
BARE = {"cluster": ("gpu1", "gpu4")}
# The engine of one of them remaps users, so that all tests of that lane run on such an engine, too.
REMAPPED = {"cluster": "gpu4"}
Preload = Callable[[str, Sequence[str]], None]

# Cheap, and every line says whose it is. kit.yaml of the tests' cluster runs it when no command is given.
COMMAND = ["sh", "-c", 'echo "rank $OMPI_COMM_WORLD_RANK of kit.yaml"']
# A test's limit counts what is made for it first, which may be the cluster of all tests. It is there to end what hangs,
# and not to tell a slow machine from a quick one.
LIMIT_S = 900

# How long a precise test waits for the other lane. Then it runs beside whatever there is.
CALM_PATIENCE_S = 600


def missing(what: str, how: str) -> NoReturn:
    """A test cannot be run here: say what it lacks and how to get it."""
    pytest.skip(f"{what}; to get it: {how}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all tests of this folder and bring each lane's together, with the calm and the precise tests at its end.

    Leave out the tests that build CUDA images, and those that wait for minutes, unless -m names their mark.
    """
    for mark in ("cuda", "long"):
        if mark in config.option.markexpr:
            continue
        costly = [item for item in items if item.get_closest_marker(mark)]
        items[:] = [item for item in items if item not in costly]
        config.hook.pytest_deselected(items=costly)
    here = Path(__file__).parent
    keys = dict.fromkeys(items, (0, 0))
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S))
            keys[item] = order(item)
    items.sort(key=keys.__getitem__)


@pytest.fixture(scope="session", autouse=True)
def _cheap_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let this machine's ssh use a cheap key exchange, if it is older than OpenSSH 10, as in images/ssh.j2.

    The tests open thousands of connections, and the one that it prefers takes most of the CPU time of a connection.
    """
    ssh = shutil.which("ssh")
    if ssh is None or b"mlkem768" in subprocess.run([ssh, "-Q", "kex"], capture_output=True, check=True).stdout:
        yield
        return
    folder = tmp_path_factory.mktemp("ssh")
    wrapper = folder / "ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {ssh} -o KexAlgorithms=^curve25519-sha256 "$@"\n')
    wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield


@pytest.fixture(autouse=True)
def _turns(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let a precise test wait until the other lanes are at their calm tests or at their end."""
    CONNECTIONS.forget()
    if WORKER is None:
        return
    # The workers of one run share this folder.
    common = tmp_path_factory.getbasetemp().parent
    own = common / f"busy-{WORKER}"
    calm, precise = (request.node.get_closest_marker(name) is not None for name in ("calm", "precise"))
    if not calm and not precise:
        own.touch()
        return
    own.unlink(missing_ok=True)
    deadline = time.monotonic() + CALM_PATIENCE_S
    while precise and any(common.glob("busy-*")) and time.monotonic() < deadline:
        time.sleep(1)


def pytest_sessionfinish(session: pytest.Session) -> None:
    factory = getattr(session.config, "_tmp_path_factory", None)
    if WORKER and factory is not None:
        (factory.getbasetemp().parent / f"busy-{WORKER}").unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be skipped, a skip of whatever origin is a failure with the skip's reason."""
    report = yield
    required = os.environ.get("CI") == "true" or os.environ.get("KIT_REQUIRE_INTEGRATION") == "1"
    if required and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"may not be skipped here. {reason}"
    return report


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    """This machine's engine, by the SDK."""
    import docker  # noqa: PLC0415

    try:
        Engine.connect().close()
    except UnreachableError as error:
        missing(str(error), f"scripts/engine ({error.hint})")
    client = docker.from_env(timeout=600)
    yield client
    client.close()


@pytest.fixture(scope="session")
def bases(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The engine, with the base images that nothing here can do without."""
    for tag, suite in BASES.items():
        if not client.images.list(name=tag):
            missing(f"{tag} is not on this machine's engine", f"scripts/base {suite}")
    # One worker builds the image of lab hosts, and the others wait for it: the first lab is made alone.
    common = tmp_path_factory.getbasetemp().parent if WORKER else tmp_path_factory.getbasetemp()
    with locked(common / "lab-image.lock"):
        if not client.images.list(name=pin_bases(lab_image.content(), locked_bases()).tag):
            folder = tmp_path_factory.mktemp("lab-image")
            with taken_down(folder, f"{LAB}-image"):
                done = kit(folder, "lab", "up", "--name", f"{LAB}-image", "--hosts", "1")
                assert done.returncode == 0, done.stderr
    return client


@pytest.fixture(scope="session")
def image(bases: Any) -> ImageResult:
    """The cpu image; built when it is not here yet."""
    return build_image(ClusterSpec(), reporter=Silent())


@pytest.fixture(scope="session")
def preload(image: ImageResult, bases: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preload]:
    """Create the disks of hosts of a new lab, with the cpu image on them.

    The first worker that needs it makes the template, and keeps it until it ends. The others copy it.
    """
    common = tmp_path_factory.getbasetemp().parent if WORKER else tmp_path_factory.getbasetemp()
    shared = common / "template"

    def copies(lab: str, hosts: Sequence[str]) -> None:
        with locked(common / "template.lock"):
            if shared.exists():
                source = Template(volume=shared.read_text())
            else:
                source = made.enter_context(template(bases, image.tag, f"{LAB}-template"))
                shared.write_text(source.volume)
                made.callback(withdraw)
            source.copy_to(bases, lab, hosts)

    def withdraw() -> None:
        with locked(common / "template.lock"):
            shared.unlink()

    with contextlib.ExitStack() as made:
        yield copies


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one worker at a time into the block."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def cluster(image: ImageResult, preload: Preload) -> Iterator[Cluster]:
    """Four lab hosts with two slots each, deployed. Taken down at the end, also after a failure and after Ctrl-C.

    KIT_TEST_LAB names a folder whose lab is used, and kept, for those who write tests.
    """
    for tool in ("ssh", "env"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not on the PATH", "apt-get install openssh-client coreutils")
    kept = os.environ.get("KIT_TEST_LAB")
    if kept and WORKER:
        kept = f"{kept}-{WORKER}"
    folder = Path(kept) if kept else Path(tempfile.mkdtemp(prefix=f"kit-{LAB}-"))
    name = f"kept-{folder.name}" if kept else LAB
    with contextlib.ExitStack() as undo:
        if not kept:
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
            undo.enter_context(taken_down(folder, name))
            place = lane(os.environ["PYTEST_CURRENT_TEST"])
            preload(name, [host for host in HOSTS if host not in BARE.get(place, ())])
            remapped = REMAPPED.get(place)
        else:
            remapped = None
        yield (deployed := _deployed(folder, name, image, remapped))
        if not kept:
            _down(deployed)


def _deployed(folder: Path, name: str, image: ImageResult, remapped: str | None) -> Cluster:
    folder.mkdir(parents=True, exist_ok=True)
    up = kit(folder, "lab", "up", "--name", name, "--hosts", "4", "--slots", "2", "--output", "json")
    assert up.returncode == 0, up.stderr
    lab = objects(up)[-1]
    hosts = tuple(VM(name=h["name"], address=h["address"], folder=folder) for h in lab["hosts"])
    change_settings(folder, command=COMMAND)
    for host in hosts:
        if host.name == remapped:
            host.restart_engine(daemon={"userns-remap": "default"})

    bare = Cluster(name=name, folder=folder, hosts=hosts)
    fresh = not any(containers or files for containers, files in bare.state().values())
    plan = bare.kit("deploy", "--dry-run", "--verbose")
    assert plan.returncode == 0, plan.stderr
    if fresh:
        assert not any(containers or files for containers, files in bare.state().values()), "a dry run changed a host"
    deploy = bare.kit("deploy", "--verbose", "--progress", "plain")
    assert deploy.returncode == 0, deploy.stderr
    _same_image(bare, image)
    printed = plan.stdout + plan.stderr + deploy.stdout + deploy.stderr
    return Cluster(name=name, folder=folder, hosts=hosts, printed=printed)


def _same_image(cluster: Cluster, image: ImageResult) -> None:
    """Shipped or copied, each engine has the same image and nothing of another engine."""
    inspect = ("docker", "image", "inspect", "--format", "{{.Id}}", image.tag)
    images = everywhere(cluster.hosts, lambda host: host.text(*inspect).strip())
    engines = everywhere(cluster.hosts, lambda host: host.text("docker", "info", "--format", "{{.ID}}"))
    with contextlib.closing(Engine.connect()) as engine:
        built = engine.image(image.tag)
    assert built
    assert set(images.values()) == {built.ships_as}, images
    assert len(set(engines.values())) == len(cluster.hosts), engines


def _down(cluster: Cluster) -> None:
    """The last test of all: the hosts must be as they were before."""
    down = cluster.kit("down", "--yes", "--images", "--purge", "--force")
    assert down.returncode == 0, down.stderr
    assert cluster.head.ssh("test", "-s", f"/opt/kit/.audit/{cluster.name}").returncode == 0
    for name, left in everywhere(cluster.hosts, leftovers).items():
        assert left == "", f"{name}: {left}"


def leftovers(host: VM) -> str:
    """Whatever a cluster could have left on a host, a line each. The audit of a cluster outlives it."""
    return host.script(
        "docker ps -a --format '{{.Names}}'; docker volume ls -q; docker images --format '{{.Repository}}:{{.Tag}}';"
        " [ -d /opt/kit/.audit ] || ls -d /opt/kit 2>/dev/null;"
        " [ ! -e /opt/kit ] || find /opt/kit -mindepth 1 ! -path '/opt/kit/.audit*';"
        " grep -lzs '^KIT_CLUSTER=' /proc/[0-9]*/environ; ss -Hltn 'sport = :33';"
        " exit 0"
    )
