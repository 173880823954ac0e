"""ssh-layer on bases of stubs: what prepare installs and misses there, and what start.sh says about an old OpenSSH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[3] / "images"
PREPARE = IMAGES / "layer/prepare"
START = IMAGES / "bin/start.sh"
OPEN_MPI = 'echo "mpirun (Open MPI) {}"'
BASE = {
    "apt-get": "",
    "python3": 'case $1 in --version) echo "Python 3.5.2" ;; esac',
    "mpirun": OPEN_MPI.format("4.1.7"),
    "ssh": "echo OpenSSH_10.0p2 Debian-7, OpenSSL 3.5.1 >&2",
    # The real one would remove files of this machine.
    "rm": "",
    "mkdir": "",
    "cp": "",
    "chmod": "",
}


def prepare(folder: Path, base: Mapping[str, str | None], *packages: str) -> tuple[int, str, list[str]]:
    """Run it on a base with these programs. Return the exit code, the messages, and the commands that it ran."""
    log = folder / "log"
    log.touch()
    programs = folder / "bin"
    programs.mkdir()
    for name in ("sed", "head", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    for name, body in base.items():
        if body is not None:
            (programs / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>{log}\n{body}\n')
            (programs / name).chmod(0o755)
    argv = ["/bin/sh", str(PREPARE), *packages]
    done = subprocess.run(argv, env={"PATH": str(programs)}, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, log.read_text().splitlines()


def test_a_base_with_apt_gets_the_layers_packages_and_yours(tmp_path: Path) -> None:
    code, messages, commands = prepare(tmp_path, BASE, "htop")
    assert (code, messages) == (0, "")
    (install,) = [line for line in commands if line.startswith("apt-get install")]
    assert "--no-install-recommends" in install
    # Without certificates, rclone could trust no store.
    assert install.endswith(" ca-certificates iproute2 openssh-client openssh-server procps htop")
    assert "rm -f /etc/ssh/ssh_host_" in " ".join(commands)
    # Not every base deletes packages that it has installed.
    assert commands.index("apt-get clean") == commands.index(install) + 1


def test_a_base_with_dnf_gets_the_same_by_their_names_there(tmp_path: Path) -> None:
    code, messages, commands = prepare(tmp_path, {**BASE, "apt-get": None, "dnf": ""}, "htop")
    assert (code, messages) == (0, "")
    (install,) = [line for line in commands if line.startswith("dnf install")]
    assert install.endswith(" ca-certificates iproute openssh-clients openssh-server procps-ng htop")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"apt-get": None}, "the base has neither apt-get nor dnf, so kit cannot install sshd"),
        ({"python3": None}, "the base has no python3 in its PATH"),
        ({"python3": None, "mpirun": None}, "the base has neither python3 nor mpirun in its PATH"),
        ({"python3": f"{BASE['python3']}; [ $1 != -c ]"}, "Python 3.5.2 is too old"),
        ({"ssh": "echo OpenSSH_7.6p1 Ubuntu-4ubuntu0.7, OpenSSL 1.0.2n >&2"}, "OpenSSH 7.6 is too old"),
        ({"mpirun": None}, "the base has no mpirun in its PATH"),
        ({"mpirun": "echo HYDRA build details:"}, "the base's mpirun is not that of Open MPI: HYDRA build details:"),
        ({"mpirun": OPEN_MPI.format("3.1.6")}, "kit does not know the options of Open MPI 3.1.6"),
        ({"mpirun": OPEN_MPI.format("5.0.7")}, "Open MPI 5.0.7 has no prted in its PATH"),
    ],
)
def test_what_a_base_lacks_is_named_with_what_to_do(
    change: Mapping[str, str | None], message: str, tmp_path: Path
) -> None:
    code, messages, _ = prepare(tmp_path, {**BASE, **change})
    assert code == 1
    first, second = messages.splitlines()
    assert first == f"ssh-layer: {message}"
    assert second.startswith("→ use a base")


@pytest.mark.parametrize("version", ["4.0.3", "4.1.7rc1", "5.0.7"])
def test_open_mpi_4_and_5_are_accepted(version: str, tmp_path: Path) -> None:
    code, messages, commands = prepare(tmp_path, {**BASE, "mpirun": OPEN_MPI.format(version), "prted": ""})
    assert (code, messages) == (0, "")
    copied = [line for line in commands if line.startswith("cp ")]
    assert copied == ([f"cp {PREPARE.parent}/mpirun /opt/kit/prrte/mpirun"] if version.startswith("5") else [])


@pytest.mark.parametrize(("version", "keeps"), [("8.2p1", False), ("8.6p1", False), ("8.7p1", True), ("9.6p1", True)])
def test_an_old_openssh_loses_values_with_quotation_marks_and_says_which(
    version: str, keeps: bool, tmp_path: Path
) -> None:
    (tmp_path / "ssh").write_text(f"#!/bin/sh\necho 'OpenSSH_{version} Ubuntu-4' >&2\n")
    (tmp_path / "ssh").chmod(0o755)
    start = START.read_text()
    functions = start[start.index("session='") : start.index("umask 077")]
    done = subprocess.run(
        ["/bin/sh", "-euc", f"SSH_PORT=33\n{functions}\nname_lost\nenvironment | quoted"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "A": 'x="y"', "TF_CONFIG": '{"a": 1}', "PLAIN": "a=b"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert {'"PLAIN=a=b"', '"SSH_PORT=33"'} <= set(lines)
    assert (r'"TF_CONFIG={\"a\": 1}"' in lines) is keeps
    assert (done.stderr == "") is keeps
    assert keeps or re.search(rf"variables: A TF_CONFIG \n.* OpenSSH {version[:3]} cannot", done.stderr)


AGENT = "python3 -IS /opt/kit/bin/kit-code run digest"


def passed_on(folder: Path, arguments: list[str], agent: str | None = None) -> list[str]:
    """Return what Open MPI's mpirun gets, a stub. The layer's folders are in PATH as in the image."""
    kits, theirs = folder / "kit/prrte", folder / "usr"
    (folder / "kit/bin").mkdir(parents=True)
    for place, program in (
        (kits, PREPARE.with_name("mpirun").read_text()),
        (theirs, '#!/bin/sh\nprintf "%s\\n" "$@"\n'),
    ):
        place.mkdir()
        (place / "mpirun").write_text(program)
        (place / "mpirun").chmod(0o755)
    (folder / "kit/bin/mpirun").symlink_to(kits / "mpirun")
    environ = {"PATH": f"{folder}/kit/bin:{kits}:{theirs}:{os.environ['PATH']}"}
    if agent is not None:
        environ["OMPI_MCA_orte_launch_agent"] = agent
    words = [str(kits / "mpirun"), *arguments]
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "variable", "first"),
    [
        (["--mca", "orte_launch_agent", f"{AGENT} orted"], None, ["--mca", "prte_launch_agent", f"{AGENT} prted"]),
        (["-np", "2"], "env KIT_RUN=1 orted", ["--mca", "prte_launch_agent", "env KIT_RUN=1 prted"]),
        (["--mca", "orte_launch_agent", "mine"], "env KIT_RUN=1 orted", []),
        (["-np", "2"], None, []),
    ],
)
def test_prrte_gets_the_launch_agent_by_its_own_name(
    arguments: list[str], variable: str | None, first: list[str], tmp_path: Path
) -> None:
    assert passed_on(tmp_path, [*arguments, "hostname"], variable) == [*first, *arguments, "hostname"]


LOOPBACK = ["--mca", "oob_tcp_if_include", "127.0.0.0/8"]
OF_PMIX = ["--pmixmca", "ptl_base_if_include", "127.0.0.0/8"]
RANKS = ["--mca", "btl_tcp_if_include", "127.0.0.0/8"]
TWO = ["--mca", "oob_tcp_if_include", "127.0.0.0/8,ens3"]
NETWORK = ["--mca", "oob_tcp_if_include", "10.0.0.0/30"]
OPTIONS = ["--allow-run-as-root", "-np", "2", "--host", "localhost:2", "--pmixmca", "pif_base_verbose", "1", "-x", "A"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([*OPTIONS, *RANKS, *LOOPBACK, "hostname"], [*OPTIONS, *RANKS, *OF_PMIX, "hostname"]),
        ([*LOOPBACK, *OPTIONS, "hostname"], [*OF_PMIX, *OPTIONS, "hostname"]),
        ([*LOOPBACK[:2], "lo,127.0.0.1", "ls"], [*OF_PMIX[:2], "lo,127.0.0.1", "ls"]),
        ([*NETWORK, "ls"], [*NETWORK, "ls"]),
        ([*TWO, "ls"], [*TWO, "ls"]),
        # What looks like an option of mpirun, but is not.
        ([*OPTIONS, "kit-rank", *LOOPBACK], [*OPTIONS, "kit-rank", *LOOPBACK]),
        ([*OPTIONS, "kit-rank", "mpirun", *LOOPBACK], [*OPTIONS, "kit-rank", "mpirun", *LOOPBACK]),
        (["--tag-output", "kit-rank", "mpirun", *LOOPBACK], ["--tag-output", "kit-rank", "mpirun", *LOOPBACK]),
        (["-x", "--mca", "oob_tcp_if_include"], ["-x", "--mca", "oob_tcp_if_include"]),
    ],
)  # fmt: skip
def test_pmix_gets_the_loopback_which_prrte_ignores(arguments: list[str], expected: list[str], tmp_path: Path) -> None:
    assert passed_on(tmp_path, arguments) == expected


def test_the_loopback_and_the_launch_agent_are_both_translated(tmp_path: Path) -> None:
    agent = ["--mca", "orte_launch_agent", f"{AGENT} orted"]
    words = passed_on(tmp_path, [*LOOPBACK, *agent, "hostname"])
    assert words == ["--mca", "prte_launch_agent", f"{AGENT} prted", *OF_PMIX, *agent, "hostname"]
