"""The image broadcast on real engines, over links that are slow enough to be caught in the middle."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kit.remote.engine.client import Engine
from tests.integration.rig import CONNECTIONS, ROOT, VM, everywhere, kit, objects, taken_down, until
from tests.integration.shipper import OWNER
from tests.pipes import rest

LAB = f"ship-{os.getpid()}"
MB = 1_000_000
# Three layers of bytes that no packing makes smaller, and a last one that a person would change.
LAYERS = (10 * MB, 50 * MB, 20 * MB)
SIZE = sum(LAYERS)
FOLDER = f"/var/lib/docker/kit-ship/{OWNER}"


@dataclass(frozen=True, kw_only=True)
class Lab:
    folder: Path
    hosts: tuple[VM, ...]

    def ship(
        self, image: str, hosts: tuple[VM, ...] | None = None, source: VM | None = None
    ) -> tuple[dict[str, Any], str]:
        """What came of it, and all output."""
        with self.shipping(image, hosts, source) as process:
            output, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        return json.loads(output.splitlines()[-1])["Shipped"], output

    @contextlib.contextmanager
    def shipping(
        self, image: str, hosts: tuple[VM, ...] | None = None, source: VM | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        names = [*([f"+{source.name}"] if source else []), *(host.name for host in hosts or self.hosts)]
        with subprocess.Popen(
            [sys.executable, "-m", "tests.integration.shipper", str(self.folder), image, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def is_clean(self) -> bool:
        """No porter, no listener, no folder and no helper image on any host."""
        return all(left == "" for left in everywhere(self.hosts, leftovers).values())


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311  (the same bytes each time)


def leftovers(host: VM) -> str:
    return host.script(
        "pgrep -fa 'python3 -I?c import sy[s]'; ls /var/lib/docker/kit-ship 2>/dev/null; "
        "docker image ls --all --quiet --filter label=kit.ship.part; ss -Hltnp | grep python; true"
    )


def no_porter(host: VM) -> bool:
    return host.ssh("pgrep", "-f", "python3 -I?c import sy[s]").returncode == 1


@pytest.fixture(scope="module")
def lab(bases: Any) -> Iterator[Lab]:
    folder = Path(tempfile.mkdtemp(prefix="kit-ship-lab-"))
    up = ("lab", "up", "--name", LAB, "--hosts", "4", "--link-rate", "200mbit", "--output", "json")
    try:
        with taken_down(folder, LAB):
            done = kit(folder, *up)
            assert done.returncode == 0, done.stderr
            hosts = tuple(VM(name=h["name"], address=h["address"], folder=folder) for h in objects(done)[-1]["hosts"])
            yield Lab(folder=folder, hosts=hosts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make(client: Any) -> Iterator[Callable[..., str]]:
    """Makes an image of layers of these sizes, with this text on top; a `seed` makes other bytes."""
    made = []

    def build(text: str, *, seed: int = 0, layers: tuple[int, ...] = LAYERS) -> str:
        files = {f"layer{i}": noise(seed * 100 + i, size) for i, size in enumerate(layers)}
        files["text"] = text.encode()
        copies = "".join(f"COPY {name} /{name}\n" for name in files)
        files["Dockerfile"] = f'FROM scratch\nENV MADE={text}\n{copies}CMD ["/none"]\n'.encode()
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        context.seek(0)
        tag = f"kit-ship-test:{seed}-{text}"
        client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
        made.append(tag)
        return tag

    yield build
    for tag in made:
        with contextlib.suppress(Exception):
            client.images.remove(tag, force=True)


@pytest.fixture(autouse=True)
def _each_host_is_empty(lab: Lab) -> Iterator[None]:
    yield
    everywhere(
        lab.hosts,
        lambda host: host.script(
            "docker image ls --quiet --no-trunc | sort -u | xargs -r docker image rm --force >/dev/null; "
            "cd /var/lib/docker; mountpoint -q kit-ship && umount -l kit-ship; rm -rf kit-ship"
        ),
    )


def holds(client: Any, host: VM, image: str) -> bool:
    """Whether the host's engine has the very layers and settings that this machine's engine has."""
    there = json.loads(host.text("docker", "image", "inspect", image))[0]
    wanted = client.api.inspect_image(image)
    same = ("Env", "Cmd", "Entrypoint", "WorkingDir", "Labels", "User")
    return there["RootFS"] == wanted["RootFS"] and all(
        (there["Config"].get(key) or None) == (wanted["Config"].get(key) or None) for key in same
    )


def test_each_host_gets_it_and_this_machine_sends_it_once(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    image = make("one")
    shipped, _ = lab.ship(image)
    assert shipped["failures"] == {}
    assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
    assert SIZE < shipped["sent"] < 1.1 * SIZE
    # Everywhere it has one id, known before: Swarm's services name an image by it.
    engine = Engine.connect()
    known = engine.image(image)
    engine.close()
    assert known
    ids = everywhere(lab.hosts, lambda host: host.text("docker", "image", "inspect", "--format", "{{.Id}}", image))
    assert {text.strip() for text in ids.values()} == {known.ships_as}
    assert lab.is_clean()


def test_after_a_change_on_top_only_that_travels(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    lab.ship(make("one"))
    image = make("two")
    shipped, _ = lab.ship(image)
    assert shipped["failures"] == {}
    assert shipped["sent"] < 1 * MB
    assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
    # Nothing of this machine's was changed by handing out one layer: no tag is left of it. Other tests ship, too.
    until("no tag is left", lambda: not any("kit-ship/" in tag for image in client.images.list() for tag in image.tags))
    assert lab.is_clean()


def test_hosts_that_lack_different_layers(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    """The second has all but the top, the third has it all, the others have nothing."""
    image = make("two")
    lab.ship(make("one"), (lab.hosts[1],))
    lab.ship(image, (lab.hosts[2],))
    shipped, _ = lab.ship(image)
    assert shipped["failures"] == {}
    assert shipped["sent"] < 1.1 * SIZE
    assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
    assert lab.is_clean()


def test_a_host_is_the_source(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    """As where it was built on the head: nothing of it passes this machine, be it all layers or one."""
    source, others = lab.hosts[0], lab.hosts[1:]
    for image in (make("one"), make("two")):
        lab.ship(image, (source,))
        shipped, _ = lab.ship(image, others, source)
        assert shipped["failures"] == {}
        assert shipped["sent"] < 1 * MB
        assert all(everywhere(others, lambda host, image=image: holds(client, host, image)).values())  # type: ignore[misc]
    assert lab.is_clean()


# What runs in place of the porter on a host that somebody broke into. Its image has a layer whose name is the path of
# another file, and it sends bytes for it. Its own checks of names are gone.
EVIL = """
import json, os, sys, zlib
NAME = "../../../../../etc/cron.d/kit-attack"
program = zlib.decompress(sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))).decode()
exec(program.rsplit("sys.modules['porter.main'].main()", 1)[0])
modules = {name: sys.modules.get("porter." + name) for name in ("names", "wire", "layers", "image", "main")}
if modules["names"]:
    modules["names"].digest = lambda word: word
    modules["names"].below = os.path.join
    modules["wire"].is_digest = lambda word: True
modules["main"].layers_of = lambda facts: [NAME]
modules["main"].config_of = lambda facts: json.dumps({"rootfs": {"diff_ids": ["sha256:" + NAME]}}).encode()
def fill(cargo, wanted, layers):
    writer = modules["layers"].Writer(layers, NAME, 100)
    writer.write(b"* * * * * root touch /attacked".ljust(100))
    layers.ended(NAME, writer._path)
    return "attack"
modules["image"].Cargo.fill = fill
modules["main"].main()
"""


def test_a_source_that_somebody_broke_into_reaches_no_file_of_another_host(lab: Lab, make: Callable[..., str]) -> None:
    """With `builder: head`, root of other VMs wrote to /etc/cron.d, and removed what was there."""
    source, others = lab.hosts[0], lab.hosts[1:3]
    image = make("attack", layers=(1000,))
    lab.ship(image, (source,))
    mine = "/etc/cron.d/kit-attack"
    for host in others:
        host.script('mkdir -p "${1%/*}"; echo mine >"$1"', mine)
    source.script(
        'printf %s "$1" >/root/evil.py; printf "#!/bin/sh\\nexec /usr/bin/python3 -I /root/evil.py\\n" '
        ">/usr/local/bin/python3; chmod 755 /usr/local/bin/python3",
        EVIL,
    )
    try:
        with lab.shipping(image, others, source) as process:
            _, errors = process.communicate(timeout=60)
        assert [host.text("ls", "/etc/cron.d/").split().count("kit-attack") for host in others] == [1, 1]
        assert [host.text("cat", mine) for host in others] == ["mine\n", "mine\n"]
        assert process.returncode != 0
        assert "kit cannot read" in errors
    finally:
        everywhere((source, *others), lambda host: host.script(f"rm -rf {mine} /usr/local/bin/python3 /root/evil.py"))
    assert lab.is_clean()


def test_a_host_with_containerds_image_store(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    """What newer engines are installed with: layers lie there in another form. What is missing travels, no more."""
    other = lab.hosts[2]
    other.restart_engine(daemon={"features": {"containerd-snapshotter": True}})
    try:
        assert "containerd" in other.text("docker", "info", "--format", "{{.DriverStatus}}")
        lab.ship(make("one"))
        image = make("two")
        shipped, _ = lab.ship(image)
        assert shipped["failures"] == {}
        assert shipped["sent"] < 1 * MB
        assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
        assert other.text("docker", "image", "ls", "--quiet", image)
        assert lab.is_clean()
    finally:
        other.script("docker image ls -q | xargs -r docker image rm -f")
        other.restart_engine(daemon=None)


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_killed_in_the_middle_the_next_sends_only_the_rest(
    lab: Lab, client: Any, make: Callable[..., str], percent: int
) -> None:
    image = make(f"killed-at-{percent}")
    killed_at(lab, image, percent)
    shipped, _ = lab.ship(image)
    assert shipped["failures"] == {}
    assert shipped["sent"] < (1.0 - percent / 100 + 0.05) * SIZE
    assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
    assert lab.is_clean()


def killed_at(lab: Lab, image: str, percent: int) -> None:
    """Ship until every host has this much, kill the operator, and see that no porter outlives it.

    Which of them is the first of the next ship's chain, and so what travels then, depends on what its engine has taken
    in by now.
    """
    far = set()
    with lab.shipping(image) as process:
        assert process.stdout
        for line in process.stdout:
            step = json.loads(line).get("HostStep", {})
            if (step.get("fraction") or 0) >= percent / 100:
                far.add(step["host"])
            if len(far) == len(lab.hosts):
                break
        else:
            pytest.fail("it ended before it could be killed")
        process.send_signal(signal.SIGKILL)
        process.wait()
    until("no porter is left", lambda: all(everywhere(lab.hosts, no_porter).values()))


def test_a_corrupted_byte_is_refused_and_comes_again(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    image = make("corrupt")
    killed_at(lab, image, 50)
    # One byte of what came, flipped on the disk of the second host: the next ship would build on it.
    flipped = lab.hosts[1].script(
        'for part in "$1"/*; do case $(basename "$part") in lock) continue;; esac; '
        'byte=$(od -An -tu1 -j 1000 -N 1 "$part"); printf "$(printf "\\\\%03o" $((byte ^ 1)))" | '
        'dd of="$part" bs=1 seek=1000 conv=notrunc 2>/dev/null && echo "$part"; done',
        FOLDER,
    )
    assert flipped.strip()
    shipped, output = lab.ship(image)
    assert shipped["failures"] == {}
    assert f"{lab.hosts[1].name}: the layer" in output
    assert "wrong bytes" in output
    assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
    assert lab.is_clean()


def test_a_full_disk_is_named_and_the_others_are_done(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    image = make("full")
    full = lab.hosts[1]
    full.text("mkdir", "-p", "/var/lib/docker/kit-ship")
    full.text("mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", "/var/lib/docker/kit-ship")
    shipped, _ = lab.ship(image)
    assert list(shipped["failures"]) == [full.name]
    assert "no space left" in shipped["failures"][full.name]
    others = [host for host in lab.hosts if host is not full]
    assert all(everywhere(others, lambda host: holds(client, host, image)).values())
    # What came so far does not keep its disk full.
    assert full.text("ls", "/var/lib/docker/kit-ship") == ""
    full.text("umount", "/var/lib/docker/kit-ship")
    again, _ = lab.ship(image)
    assert again["failures"] == {}
    assert holds(client, full, image)


@contextlib.contextmanager
def link_of(host: VM) -> Iterator[Callable[[str], None]]:
    """Sets the host's link down; it is up again at the end. The shell that does it is there before: a busy engine may
    take longer to start one than a ship takes.
    """
    script = 'echo ready; while read -r state; do ip link set eth0 "$state" && echo "$state"; done'
    argv = ["docker", "exec", "--interactive", f"kit-lab-{LAB}-{host.name}", "sh", "-c", script]

    def begun() -> subprocess.Popen[str] | None:
        made = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert made.stdout
        if made.stdout.readline() == "ready\n":
            return made
        made.communicate()
        return None

    with until("there is a shell on the host", begun) as shell:

        def put(state: str) -> None:
            assert shell.stdin
            assert shell.stdout
            shell.stdin.write(f"{state}\n")
            shell.stdin.flush()
            assert shell.stdout.readline() == f"{state}\n"

        try:
            yield put
        finally:
            put("up")
            CONNECTIONS.forget()


def test_a_host_that_goes_in_the_middle_takes_nobody_along(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    """The second of the chain is cut off: those behind it go on from where they were."""
    image = make("cut")
    cut = lab.hosts[1]
    with link_of(cut) as link, lab.shipping(image) as process:
        assert process.stdout
        for line in process.stdout:
            step = json.loads(line).get("HostStep", {})
            if step.get("host") == lab.hosts[3].name and (step["fraction"] or 0) >= 0.3:
                break
        link("down")
        output, errors = rest(process, timeout=200)
    assert process.returncode == 0, errors
    shipped = json.loads(output.splitlines()[-1])["Shipped"]
    assert list(shipped["failures"]) == [cut.name]
    others = [host for host in lab.hosts if host is not cut]
    assert all(everywhere(others, lambda host: holds(client, host, image)).values())
    assert shipped["sent"] < 1.1 * SIZE
    until("its own porter ended", lambda: no_porter(cut))
    again, _ = lab.ship(image)
    assert again["failures"] == {}
    assert again["sent"] < 0.8 * SIZE


def test_a_firewall_between_two_hosts_is_gone_around(lab: Lab, client: Any, make: Callable[..., str]) -> None:
    image = make("wall")
    before, behind = lab.hosts[1], lab.hosts[2]
    rule = ("INPUT", "-p", "tcp", "-s", behind.address, "-j", "REJECT", "--reject-with", "tcp-reset")
    before.text("iptables", "-I", *rule)
    try:
        shipped, output = lab.ship(image)
    finally:
        before.text("iptables", "-D", *rule)
    assert shipped["failures"] == {}
    assert f"{behind.name} cannot take the image from {before.name}" in output
    assert all(everywhere(lab.hosts, lambda host: holds(client, host, image)).values())
    assert lab.is_clean()
