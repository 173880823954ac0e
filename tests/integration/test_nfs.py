"""NFS by the engine's volume driver, with kit's own options: a real server, a real kernel, a real engine.

Lab hosts share this machine's kernel, which may have no NFS client. So these tests have a machine of another kind
(tests.integration.nfs).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from kit.config.yaml import load_spec
from kit.plan.cluster import data
from kit.remote.cluster.mountfaults import MountFault, mount_fault
from tests.integration.nfs import EXPORT, HERE, Machine, machine

pytestmark = [pytest.mark.integration, pytest.mark.long]
LARGE = b"0123456789abcdef" * 200_000


@pytest.fixture(scope="module")
def nfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("nfs")) as made:
        (made.exported / "words").write_text("from the server\n")
        (made.exported / "large").write_bytes(LARGE)
        yield made


def mounted(nfs: Machine, source: str, **more: object) -> list[str]:
    """Make the volume that kit would declare for a data set, and return the options of docker run that mount it."""
    settings = {"from": source, "to": "/data/shared", "stage": "none", **more}
    lines = "".join(f"    {key}: {str(value).lower() if value is True else value}\n" for key, value in settings.items())
    spec = load_spec(f"name: lab\ndata:\n  shared:\n{lines}", source="kit.yaml")
    ((name, volume),) = data.declared(spec).items()
    words = [word for key, value in volume["driver_opts"].items() for word in ("--opt", f"{key}={value}")]
    nfs.docker("volume", "create", "--driver", volume["driver"], *words, name)
    (mount,) = data.volumes(spec)
    return ["--rm", "--network", "host", "--volume", mount, "small", "/bin/sh", "-c"]


def test_a_container_reads_what_the_server_exports(nfs: Machine) -> None:
    command = "cat /data/shared/words && wc -c /data/shared/large; cat /proc/mounts; touch /data/shared/new"
    done = nfs.docker("run", *mounted(nfs, f"nfs://{HERE}{EXPORT}"), command, check=False)
    assert done.stdout.startswith(f"from the server\n{len(LARGE)} /data/shared/large\n"), done.stderr
    assert "cannot touch '/data/shared/new': Read-only file system" in done.stderr
    # The kernel has taken the options that docs/data.md names.
    (options,) = [line.split()[3] for line in done.stdout.splitlines() if " /data/shared nfs4 " in line]
    wanted = {"ro", "vers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport"}
    assert wanted <= set(options.split(","))
    assert sorted(path.name for path in nfs.exported.iterdir()) == ["large", "words"]


def test_with_write_it_writes_to_the_server(nfs: Machine) -> None:
    words = mounted(nfs, f"nfs://{HERE}{EXPORT}", write=True)
    nfs.docker("run", *words, "echo from a container >/data/shared/new")
    assert (nfs.exported / "new").read_text() == "from a container\n"
    (nfs.exported / "new").unlink()


@pytest.mark.parametrize(
    ("source", "more", "text", "hint"),
    [
        (f"nfs://{HERE}/exports/nothing", {}, "no such file or directory", "correct the path in from: of kit.yaml"),
        (f"nfs://{HERE}:2050{EXPORT}", {}, "connection refused", f"start the server at {HERE}:2050"),
        (f"nfs://{HERE}{EXPORT}", {"options": "nfsvers=3,nolock"}, "protocol not supported", "NFS 4.1"),
    ],
)
def test_kit_knows_the_engines_words(nfs: Machine, source: str, more: dict[str, object], text: str, hint: str) -> None:
    done = nfs.docker("run", *mounted(nfs, source, **more), "true", check=False)
    assert done.returncode != 0
    fault = mount_fault(done.stderr, "lab", "gpu1")
    assert isinstance(fault, MountFault), done.stderr
    server = source.removeprefix("nfs://").partition("/")[0]
    assert (fault.data, fault.server) == ("shared", server)
    assert fault.text == f"the engine cannot mount NFS from {server}: {text}"
    assert hint in fault.hint


def test_a_read_waits_for_a_server_that_is_gone(nfs: Machine) -> None:
    command = "cat /data/shared/words; read line; wc -c </data/shared/large"
    argv = nfs.argv("run", "--interactive", *mounted(nfs, f"nfs://{HERE}{EXPORT}"), command)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"from the server\n"
        nfs.kill_server()
        process.stdin.write(b"go on\n")
        process.stdin.flush()
        # It may wait already when it closes the first file.
        assert process.poll() is None
        nfs.serve()
        assert process.stdout.read() == b"%d\n" % len(LARGE)
        assert process.wait(60) == 0
