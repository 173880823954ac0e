"""What is done with a stager that ends by itself just now, run for real with a stub `docker`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kit.remote.scripts import script

IDLE = 'echo \'{"hello": {"version": 1, "staging": null, "lead": false}}\''
STAGES = 'echo \'{"hello": {"version": 1, "staging": "a1", "lead": true}}\''
SILENT = "exit 1"
# What kit-data order hello prints: the last line is the stager's answer to the order.
TAKES = """echo taken >&2; printf 'kit-data hello {}\\nkit-data go\\n{"stopped": true}\\n'"""


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sleep": "exit 0", "flock": "exit 0"}.items():
        stub(folder, name, text)
    return folder


def stub(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{shutil.which('sh')}\n{text}\n")
    path.chmod(0o755)


def docker(folder: Path, answer: str, *cases: str, listed: int, options: str = "", pid: int = 0) -> Path:
    """Create a stub whose stager answers so, and is listed as running this many times. Return the file of its calls.

    `cases`: what else it answers, as cases of a shell. `options` and `pid` are those of its stager.
    """
    calls = folder.parent / "calls"
    calls.touch()
    stub(
        folder,
        "docker",
        f'echo "$*" >>{calls}\ncase $* in\n{"".join(f"  {case} ;;{chr(10)}" for case in cases)}'
        f'  ps*label=kit.data=*) if [ "$(grep -c label=kit.data= {calls})" -le {listed} ]; then echo c1; fi ;;\n'
        f'  inspect*kit.data.options*) case $* in *n1*) echo "sha256:1f true  7 " ;; esac\n'
        f'    if [ "$(grep -c kit.data.options {calls})" -le {listed} ]; then\n'
        f'      echo "sha256:2f true lab/web {pid} {options}"\n    fi ;;\n'
        f"  exec*) cat >/dev/null; {answer} ;;\nesac",
    )
    return calls


def run(bin_folder: Path, argv: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        input=given,
        env={"PATH": f"{bin_folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def staged(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "lab" / "web"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "one").touch()
    (folder / "staged.json").touch()
    return folder


@pytest.mark.parametrize(
    ("answer", "listed"),
    [(IDLE, 99), (SILENT, 0), (SILENT, 1), (SILENT, 3)],
    ids=["idle", "gone", "ends", "ends and is listed for a while"],
)
def test_a_stager_that_does_not_stage_is_no_reason_to_keep_the_data(
    bin_folder: Path, tmp_path: Path, answer: str, listed: int
) -> None:
    calls = docker(bin_folder, answer, listed=listed)
    folder = staged(tmp_path)
    done = run(bin_folder, script("data_remove", "lab", "web", str(folder)))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"removed {folder}\n", "")
    assert not folder.exists()
    assert ("rm --force c1" in calls.read_text()) == (answer == IDLE)


@pytest.mark.parametrize("answer", [STAGES, SILENT, "exit 124"], ids=["stages", "stays silent", "hangs"])
def test_a_stager_that_stages_or_does_not_say_keeps_it(bin_folder: Path, tmp_path: Path, answer: str) -> None:
    calls = docker(bin_folder, answer, listed=10**6)
    folder = staged(tmp_path)
    done = run(bin_folder, script("data_remove", "lab", "web", str(folder)))
    assert (done.returncode, done.stdout) == (0, "staging\n")
    assert (folder / "files" / "one").exists()
    assert "rm " not in calls.read_text()


@pytest.mark.parametrize("listed", [0, 1, 3])
def test_an_order_to_a_stager_that_ends_finds_none(bin_folder: Path, listed: int) -> None:
    docker(bin_folder, SILENT, listed=listed)
    done = run(bin_folder, script("data_order", "lab", "web", "/data", "running"))
    assert (done.returncode, done.stdout) == (1, "kit-data refused not-running\n")


def test_an_order_to_a_stager_that_runs_reaches_it(bin_folder: Path) -> None:
    docker(bin_folder, TAKES, listed=99)
    done = run(bin_folder, script("data_order", "lab", "web", "/data", "running"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["kit-data hello {}", "kit-data go", '{"stopped": true}']


@pytest.fixture
def rooted(tmp_path: Path) -> Iterator[tuple[int, socket.socket]]:
    """Start a process that has a folder as its root. Yield its number, and a stager's socket in that folder."""
    if os.geteuid() != 0:
        pytest.skip("only root may change the root of a process")
    folder = tmp_path / "root" / "run" / "kit-data"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        program = f"import os, sys; os.chroot({str(tmp_path / 'root')!r}); print(flush=True); sys.stdin.read()"
        argv = [sys.executable, "-IS", "-c", program]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid, listener
            process.kill()


def test_an_order_of_root_goes_to_the_socket_of_the_stager(
    bin_folder: Path, tmp_path: Path, rooted: tuple[int, socket.socket]
) -> None:
    pid, listener = rooted
    calls = docker(bin_folder, TAKES, listed=99, pid=pid)

    def answer() -> None:
        for line in (b'{"hello": {}}\n', b'{"stopped": true}\n'):
            with listener.accept()[0] as peer:
                peer.recv(1000)
                peer.sendall(line)

    thread = threading.Thread(target=answer)
    thread.start()
    done = run(bin_folder, script("data_order", "lab", "web", "/data", "running"), '{"op": "stop"}\n')
    thread.join()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ['kit-data hello {"hello": {}}', "kit-data go", '{"stopped": true}']
    assert "exec" not in calls.read_text()


def test_an_order_goes_through_the_engine_where_the_socket_does_not_answer(
    bin_folder: Path, rooted: tuple[int, socket.socket]
) -> None:
    pid, listener = rooted
    docker(bin_folder, TAKES, listed=99, pid=pid)

    def hang_up() -> None:
        listener.accept()[0].close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    done = run(bin_folder, script("data_order", "lab", "web", "/data", "running"))
    thread.join()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["kit-data hello {}", "kit-data go", '{"stopped": true}']


def test_another_data_set_with_the_same_name_of_its_container_gets_no_order(bin_folder: Path) -> None:
    docker(bin_folder, TAKES, 'inspect*kit.data.options*) echo "sha256:2f true lab-data/web 7 x"', listed=0)
    done = run(bin_folder, script("data_order", "lab", "data-data-web", "/data", "running"))
    assert (done.returncode, done.stdout) == (1, "kit-data refused not-running\n")


def test_an_order_whose_stager_dies_is_not_given_to_another(bin_folder: Path) -> None:
    calls = docker(bin_folder, f"{TAKES}; echo it broke >&2; exit 137", listed=99)
    done = run(bin_folder, script("data_order", "lab", "web", "/data", "running"))
    assert (done.returncode, done.stderr.strip()) == (137, "it broke")
    assert len([call for call in calls.read_text().splitlines() if call.startswith("exec")]) == 1


def test_a_stager_of_an_older_image_is_named(bin_folder: Path) -> None:
    docker(bin_folder, "echo usage: kit-data serve '|' kit-data order >&2; exit 2", listed=99)
    done = run(bin_folder, script("data_order", "lab", "web", "/data", "running"))
    assert (done.returncode, done.stdout) == (1, "kit-data refused version\n")


def engine(folder: Path, options: str, *, listed: int) -> Path:
    """Create a stub of an engine that has a node. Its stager stages with these options until it was listed so often.

    After that, the stub starts containers. Return the file of its calls.
    """
    return docker(folder, TAKES, "ps*label=kit.cluster=*) echo n1", listed=listed, options=options)


def order(bin_folder: Path, tmp_path: Path, how: str) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "data" / "lab" / "web"
    return run(bin_folder, script("data_order", "lab", "web", str(folder), how))


def test_an_order_to_mount_is_refused_while_a_stager_stages(bin_folder: Path, tmp_path: Path) -> None:
    """A stager lacks what a mount needs. The order never reaches it, and no other container starts beside it."""
    calls = engine(bin_folder, "0123456789abcdef", listed=10**6)
    done = order(bin_folder, tmp_path, "mount")
    assert (done.returncode, done.stdout, done.stderr) == (1, "kit-data refused staging\n", "")
    made = calls.read_text().splitlines()
    assert not [call for call in made if call.startswith(("run", "exec", "rm"))]
    # It waited, because a stager that has nothing to do ends by itself.
    assert len([call for call in made if "kit.data.options" in call]) == 60


@pytest.mark.parametrize("listed", [0, 1, 40])
def test_an_order_to_mount_waits_for_a_stager_that_ends(bin_folder: Path, tmp_path: Path, listed: int) -> None:
    calls = engine(bin_folder, "0123456789abcdef", listed=listed)
    done = order(bin_folder, tmp_path, "mount")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["kit-data hello {}", "kit-data go"]
    (started,) = [call for call in calls.read_text().splitlines() if call.startswith("run")]
    assert "--label kit.data.options=mount" in started
    assert "--cap-add SYS_ADMIN" in started


def test_an_order_to_mount_reaches_the_mounter_that_runs(bin_folder: Path, tmp_path: Path) -> None:
    calls = engine(bin_folder, "mount", listed=10**6)
    done = order(bin_folder, tmp_path, "mount")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["kit-data hello {}", "kit-data go"]
    assert not [call for call in calls.read_text().splitlines() if call.startswith("run")]


@pytest.mark.parametrize("moved", [False, True])
def test_an_order_never_reaches_a_stager_of_another_folder(bin_folder: Path, tmp_path: Path, moved: bool) -> None:
    """After a deploy with another dir: or stage:, one may still stage where the data set was before."""
    folder = tmp_path / ("nvme" if moved else "data") / "lab" / "web"
    binds = f"inspect*HostConfig.Binds*) echo {folder}:/data"
    calls = docker(
        bin_folder, TAKES, "ps*label=kit.cluster=*) echo n1", binds, listed=10**6, options="0123456789abcdef"
    )
    done = order(bin_folder, tmp_path, "start")
    if moved:
        assert (done.returncode, done.stdout, done.stderr) == (1, "kit-data refused staging\n", "")
    else:
        # Only its image differs.
        assert done.stdout.splitlines()[:2] == ["kit-data hello {}", "kit-data go"]
    assert not [call for call in calls.read_text().splitlines() if call.startswith("run")]


def test_a_stager_that_ends_between_two_looks_is_no_stager_of_another_folder(bin_folder: Path, tmp_path: Path) -> None:
    """As long as it is listed, it is one that stages. Then the engine cannot say where any more."""
    calls = engine(bin_folder, "0123456789abcdef", listed=60)
    done = order(bin_folder, tmp_path, "start")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["kit-data hello {}", "kit-data go"]
    assert len([call for call in calls.read_text().splitlines() if call.startswith("run")]) == 1


def test_a_stager_that_has_nothing_to_do_makes_way_for_one_of_another_folder(bin_folder: Path, tmp_path: Path) -> None:
    def options(data: Path) -> str:
        (bin_folder.parent / "calls").unlink(missing_ok=True)
        calls = engine(bin_folder, "", listed=0)
        order(bin_folder, data, "start")
        (started,) = [call for call in calls.read_text().splitlines() if call.startswith("run")]
        return started.partition("kit.data.options=")[2].split()[0]

    (tmp_path / "nvme").mkdir()
    assert options(tmp_path) == options(tmp_path) != options(tmp_path / "nvme")


def test_an_order_to_stage_is_refused_while_a_mounter_runs(bin_folder: Path, tmp_path: Path) -> None:
    calls = engine(bin_folder, "mount", listed=10**6)
    done = order(bin_folder, tmp_path, "start")
    assert (done.returncode, done.stdout) == (1, "kit-data refused mounted\n")
    assert not [call for call in calls.read_text().splitlines() if call.startswith(("run", "exec"))]
