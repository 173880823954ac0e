"""A run that requires a network of NCCL. The ranks write NCCL's lines where NCCL would: no GPU is here.

A second cluster on two of the hosts gets a plugin out of an image, which the ranks load as NCCL does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.integration.rig import VM, Cluster, change_settings, engine, everywhere, objects

# Rank 2 falls back to TCP; the others have InfiniBand.
FALLS_BACK = (
    'network=IB; [ "$RANK" = 2 ] && network=Socket; '
    'printf "h:1:1 [0] NCCL INFO NET/IB : No device found.\\nh:1:1 [0] NCCL INFO Using network %s\\n" $network '
    '>"$NCCL_DEBUG_FILE"; sleep 60'
)


def test_a_silent_fall_back_ends_the_run(cluster: Cluster) -> None:
    done = cluster.kit("run", "--npernode", "1", "--nccl-require", "IB", "--", "sh", "-c", FALLS_BACK)
    assert done.returncode == 5, done.stderr
    said = done.stdout + done.stderr
    host = cluster.hosts[2].name
    assert f"{host}: NCCL uses the network Socket, and nccl.require is IB; NCCL says: NET/IB : No device found." in said
    assert re.search(r"kit run --again \S+ --nccl-require any", said)
    cluster.wait_for_none()


def test_a_run_without_nccl_is_not_checked_and_says_so(cluster: Cluster) -> None:
    done = cluster.kit("run", "--npernode", "1", "--nccl-require", "IB", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "NCCL chose no network in this run" in done.stdout + done.stderr


IMAGE = f"kit-itest-plugin-{os.getpid()}:1"
LIB = "/opt/ofi/lib"
# NCCL opens libnccl-net.so by name and reads ncclNetPlugin_v6, which begins with the plugin's name.
PLUGIN = 'struct {{ const char *name; void *calls[18]; }} ncclNetPlugin_v6 = {{"{name}", {{0}}}};\n'
LOAD = (
    "import ctypes; p = ctypes.CDLL('libnccl-net.so'); "
    "print(ctypes.c_char_p.in_dll(p, 'ncclNetPlugin_v6').value.decode())"
)
Make = Callable[[str], None]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Make the image with a plugin of this name. It has no program that could run."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")

    def made(name: str) -> None:
        folder = tmp_path_factory.mktemp("plugin")
        (folder / "plugin.c").write_text(PLUGIN.format(name=name))
        (folder / "lib").mkdir()
        target = folder / "lib" / "libnccl-net.so.0"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", target, folder / "plugin.c"], check=True)
        (folder / "lib" / "libnccl-net.so").symlink_to("libnccl-net.so.0")
        (folder / "Dockerfile").write_text(f"FROM scratch\nCOPY lib {LIB}\nCOPY plugin.c /src/\n")
        engine("build", "--quiet", "--tag", IMAGE, str(folder))

    yield made
    engine("image", "rm", IMAGE)


@pytest.fixture(scope="module")
def second(cluster: Cluster, make: Make, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("second")
    hosts = cluster.hosts[1:3]
    make("kit-one")
    settings = yaml.safe_load((cluster.folder / "kit.yaml").read_text())
    login = {name: str(cluster.folder / ".kit/lab" / file) for name, file in
             (("key", "id_ed25519"), ("known_hosts", "known_hosts"))}  # fmt: skip
    name = f"{cluster.name}-nccl"
    more = {"name": name, "ssh": {"user": "root", **login}, "ssh_port": 35, "nccl": {"plugin": f"{IMAGE}:{LIB}"}}
    (folder / "kit.yaml").write_text("# a lab\n" + yaml.safe_dump({**settings, **more}))
    (folder / "hosts").write_text("".join(f"{host.address} name={host.name} slots=1\n" for host in hosts))
    made = Cluster(name=name, folder=folder, hosts=hosts)
    yield made
    made.kit("down", "--yes", "--purge", "--force")


def loaded(cluster: Cluster) -> list[str]:
    run = cluster.kit("run", "--npernode", "1", "--", "python3", "-c", LOAD)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.split()


def copies(cluster: Cluster) -> list[str]:
    """Return the folders with plugins, each once. All hosts must have the same."""
    folders = everywhere(cluster.hosts, lambda host: host.text("ls", "-A", f"/opt/kit/{cluster.name}/plugins").split())
    assert len({tuple(one) for one in folders.values()}) == 1, folders
    return folders[cluster.head.name]


def state(cluster: Cluster) -> dict[str, object]:
    """Return the containers and files of the cluster, but not when something was last tried in the plugins' folder."""
    return {
        name: (containers, {path: words for path, words in files.items() if path != "./plugins"})
        for name, (containers, files) in cluster.state().items()
    }


def leftovers(host: VM) -> list[str]:
    """Return what a copy leaves on a host's engine, which should be nothing."""
    return [
        line
        for words in (("ps", "-a", "--filter", "label=kit.plugin", "-q"), ("images", "--format", "{{.Repository}}"))
        for line in host.text("docker", *words).split()
        if "plugin" in line or words[0] == "ps"
    ]


def test_ranks_load_a_plugin_out_of_an_image(second: Cluster, cluster: Cluster) -> None:
    before = cluster.state()
    plan = second.kit("deploy", "--dry-run")
    assert plan.stdout.count(f"copy  {LIB} out of docker.io/library/{IMAGE}  because") == 1, plan.stdout
    done = second.kit("deploy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert loaded(second) == ["kit-one", "kit-one"]
    (key,) = copies(second)
    for host in second.hosts:
        (container,) = host.containers(second.name)
        mounts = {mount["Destination"]: (mount["Source"], mount["RW"]) for mount in container["Mounts"]}
        folder = f"/opt/kit/{second.name}/plugins/{key}"
        assert mounts["/opt/nccl-plugin"] == (folder, False)
        listed = host.text("find", folder, "-printf", "%P %u %m %l\\n").splitlines()
        assert sorted(listed) == [
            " root 755 ", "libnccl-net.so root 777 libnccl-net.so.0", "libnccl-net.so.0 root 755 ",
        ]  # fmt: skip
        assert leftovers(host) == []
    assert objects(second.kit("deploy", "--output", "json"))[-1]["changed"] is False
    assert cluster.state() == before


def test_other_content_is_another_folder_and_other_nodes(second: Cluster, make: Make) -> None:
    first = copies(second)
    make("kit-two")
    done = second.kit("deploy", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert loaded(second) == ["kit-two", "kit-two"]
    assert len(copies(second)) == 1
    assert copies(second) != first
    assert objects(second.kit("deploy", "--output", "json"))[-1]["changed"] is False


@pytest.mark.parametrize(
    ("folder", "message"), [("/src", "/src has no libnccl-net*.so"), ("/opt/no", "/opt/no is no folder of the image")]
)
def test_a_folder_without_a_plugin_changes_nothing(second: Cluster, folder: str, message: str) -> None:
    before, had = state(second), copies(second)
    text = (second.folder / "kit.yaml").read_text()
    change_settings(second.folder, nccl={"plugin": f"{IMAGE}:{folder}"})
    done = second.kit("deploy")
    (second.folder / "kit.yaml").write_text(text)
    assert done.returncode == 4, done.stdout + done.stderr
    assert f"nccl.plugin: docker.io/library/{IMAGE}: {message}" in done.stderr
    assert (state(second), copies(second)) == (before, had)
    assert everywhere(second.hosts, leftovers) == {host.name: [] for host in second.hosts}


def test_down_removes_it(second: Cluster) -> None:
    host = second.hosts[1]
    # As a kit that was killed while it copied leaves it.
    image = host.containers(second.name)[0]["Image"]
    host.text("docker", "tag", image, f"kit-{second.name}-nccl-plugin:0123456789abcdef")
    host.text("docker", "create", "--label", f"kit.plugin={second.name}", image, "true")
    assert second.kit("down", "--yes").returncode == 0
    assert everywhere(second.hosts, leftovers) == {one.name: [] for one in second.hosts}
    assert host.text("ls", "/opt/kit").split().count(second.name) <= 1
    assert not host.ssh("ls", f"/opt/kit/{second.name}/plugins").stdout
    # The nodes' image is also that of the other cluster.
    assert host.text("docker", "image", "inspect", "--format", "{{.Id}}", image).strip() == image
