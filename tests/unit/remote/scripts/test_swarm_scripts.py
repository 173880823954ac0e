"""The scripts that concern Swarm, run for real with a stub `docker`: what is asked of it, what is said and what not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.remote.scripts import in_node, node_logs, script
from tests.fakes import stub_docker
from tests.fakes.shell import bare_path

TOOLS = [
    "cat",
    "cut",
    "date",
    "dirname",
    "echo",
    "grep",
    "head",
    "mkdir",
    "rm",
    "rmdir",
    "sed",
    "sh",
    "sleep",
    "timeout",
]
TOKEN = "SWMTKN-1-s3cret"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with the usual tools only."""
    return bare_path(tmp_path / "bin", [*TOOLS, "xargs"])


def docker(folder: Path, text: str) -> Path:
    """Create a stub that appends its words to a file, one call a line. Return the file."""
    calls = folder.parent / "calls"
    calls.touch()
    path = folder / "docker"
    path.write_text(f'#!{shutil.which("sh")}\necho "$*" >>{calls}\n{text}\n')
    path.chmod(0o755)
    return calls


def stand_in(tool: Path, text: str) -> None:
    """Replace a tool by a script."""
    tool.unlink()
    tool.write_text(f"#!{shutil.which('sh')}\n{text}\n")
    tool.chmod(0o755)


def run(bare: Path, argv: Sequence[str], *, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(bare / "sh"), *argv[1:]],
        input=stdin,
        env={"PATH": str(bare)},
        capture_output=True,
        check=False,
        timeout=30,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_composes_node_is_found_by_its_name_and_the_command_stays_what_it_is(bare: Path) -> None:
    docker(bare, 'for word; do echo "<$word>"; done')
    done = run(bare, in_node("kit-lab-mpinode", ["sh", "-c", "a b", "--", "", "$x"], interactive=True))
    words = ["exec", "--interactive", "kit-lab-mpinode", "sh", "-c", "a b", "--", "", "$x"]
    assert done.stdout.splitlines() == [f"<{word}>" for word in words]
    done = run(bare, node_logs("kit-lab-mpihead", "--tail", "3"))
    assert done.stdout.splitlines() == ["<logs>", "<--tail>", "<3>", "<kit-lab-mpihead>"]


def test_the_log_of_a_node_is_on_stdout_and_dockers_own_error_on_stderr(bare: Path) -> None:
    """The node's sshd logs to stderr, and a pipe such as `kit logs gpu1 | grep` gets stdout."""
    docker(bare, 'case $1 in logs) echo started; echo "sshd: listening" >&2 ;; esac')
    done = run(bare, node_logs("kit-lab-mpihead"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\nsshd: listening\n", "")
    docker(bare, 'echo "Error response from daemon: No such container: $5" >&2; exit 1')
    gone = run(bare, node_logs("kit-lab-mpihead"))
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr == "Error response from daemon: No such container: kit-lab-mpihead\n"


def following(bare: Path) -> subprocess.Popen[bytes]:
    """kit logs -f of a node, with an input that lasts."""
    argv = [str(bare / "sh"), *node_logs("kit-lab-mpihead", "--follow")[1:]]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": str(bare)})


def test_a_log_that_is_followed_ends_with_its_input(bare: Path) -> None:
    """A quiet log does not notice that nobody reads it any more."""
    docker(bare, f"case $1 in logs) echo $$; exec {shutil.which('sleep')} 1000 ;; esac")
    process = following(bare)
    assert process.stdin is not None
    assert process.stdout is not None
    client = int(process.stdout.readline())
    process.stdin.close()
    try:
        process.wait(60)
        assert not Path(f"/proc/{client}").exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(client, signal.SIGKILL)
        process.stdout.close()


def test_a_log_that_is_followed_ends_with_its_node(bare: Path) -> None:
    docker(bare, "case $1 in logs) echo last; exit 3 ;; esac")
    process = following(bare)
    assert process.stdout is not None
    assert (process.stdout.read(), process.wait(60)) == (b"last\n", 3)
    process.communicate()


def test_a_command_in_swarms_node_gains_no_privileges(bare: Path, tmp_path: Path) -> None:
    """Its container has no such setting, so the command sets it. What a stub of Docker gets is then run for real."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "node.env").touch()
    docker(bare, 'case $1 in exec) for word; do echo "<$word>"; done ;; *) echo task ;; esac')
    command = ["grep", "NoNewPrivs:", "/proc/self/status"]
    argv = [word.replace("/opt/kit", str(tmp_path)) for word in in_node("kit-lab-mpinode", command)]
    words = [line[1:-1] for line in run(bare, argv).stdout.splitlines()]
    assert words[:4] == ["exec", "--env-file", f"{tmp_path}/lab/node.env", "task"]
    inside = words[4:]
    assert inside[-3:] == command

    def privileges(**env: str) -> str:
        return subprocess.run(
            inside, env={**os.environ, **env}, capture_output=True, text=True, check=True
        ).stdout.split()[1]

    assert privileges() == "1"
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("NoNewPrivs:"))
    assert privileges(KIT_NEW_PRIVILEGES="1") == own.split()[1]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("kit-lab-mpihead", "/opt/kit/lab"),
        ("kit-a-mpi-b-mpinode", "/opt/kit/a-mpi-b"),
        ("kit-kit-mpihead", "/opt/kit/kit"),
    ],
)
def test_the_folder_of_a_node(bare: Path, name: str, folder: str) -> None:
    (text,) = (word for word in script("node", "x") if "node_folder()" in word)
    functions = text.partition("# Runs `docker exec`")[0]
    assert run(bare, ["sh", "-c", f"{functions}\nnode_folder {name}"]).stdout.strip() == folder


@pytest.mark.parametrize(
    ("name", "words", "container"),
    [
        ("kit-lab-mpinode", [], "ay3"),
        # A hosts file that begins with a node: the head, its runs and its line are elsewhere.
        ("kit-lab-mpihead", [], "kit-lab-mpihead"),
        # The node was the head before.
        ("kit-lab-mpihead", ["--all"], "x9c"),
        ("kit-a-b-mpinode", [], "kit-a-b-mpinode"),
    ],
)
def test_the_task_of_a_node_is_found_by_cluster_and_service(
    bare: Path, tmp_path: Path, name: str, words: list[str], container: str
) -> None:
    for cluster in ("lab", "a-b"):
        (tmp_path / "kit" / cluster).mkdir(parents=True)
        (tmp_path / "kit" / cluster / "node.env").touch()
    tasks = [
        ("other", {"kit.cluster": "other", "kit.service": "mpihead"}, True),
        ("x9c", {"kit.cluster": "lab", "kit.service": "mpihead"}, False),
        ("ay3", {"kit.cluster": "lab", "kit.service": "mpinode"}, True),
    ]
    state = {
        "answers": True,
        "containers": [
            {"name": task, "labels": {**labels, "com.docker.swarm.task.id": task}, "running": running}
            for task, labels, running in tasks
        ],
    }
    (tmp_path / "state.json").write_text(json.dumps(state))
    docker(bare, f'KIT_STUB_ENGINE={tmp_path}/state.json exec {sys.executable} -IS {stub_docker.__file__} "$@"')
    (text,) = (word for word in script("node", "x") if "node_folder()" in word)
    functions = text.partition("# Runs `docker exec`")[0].replace("/opt/kit", f"{tmp_path}/kit")
    done = run(bare, ["sh", "-c", f"{functions}\nnode_of {name} {' '.join(words)}"])
    assert (done.stdout, done.stderr) == (f"{container}\n", "")


def test_a_swarm_is_made_on_one_address_and_its_token_is_not_shown(bare: Path, tmp_path: Path) -> None:
    docker_calls = docker(bare, f'case $1 in swarm) echo "docker swarm join --token {TOKEN}" ;; info) echo n1 ;; esac')
    file = tmp_path / "kit" / ".swarm"
    done = run(bare, script("swarm_init", "10.0.0.1", "2377", str(file), "20s"))
    assert (done.returncode, done.stdout) == (0, "n1\n")
    assert TOKEN not in done.stdout + done.stderr
    assert file.read_text() == "n1\n"
    first = docker_calls.read_text().splitlines()[0]
    for option in ("--advertise-addr 10.0.0.1", "--listen-addr 10.0.0.1:2377", "--data-path-addr 10.0.0.1",
                   "--dispatcher-heartbeat 20s"):  # fmt: skip
        assert option in first


def test_a_swarm_that_cannot_be_made_is_not_noted(bare: Path, tmp_path: Path) -> None:
    docker(bare, "echo 'must specify a listen address' >&2; exit 1")
    file = tmp_path / ".swarm"
    done = run(bare, script("swarm_init", "10.0.0.1", "2377", str(file), "20s"))
    assert done.returncode == 1
    assert "listen address" in done.stderr
    assert not file.exists()


def test_a_token_comes_by_standard_input_and_is_on_no_command_line(bare: Path, tmp_path: Path) -> None:
    docker_calls = docker(bare, f"case $1 in run) cat >{tmp_path}/request ;; info) echo n2 ;; esac")
    file = tmp_path / ".swarm"
    request = json.dumps({"JoinToken": TOKEN}).encode()
    done = run(bare, script("swarm_join", str(file), "sha256:1f"), stdin=request)
    assert (done.returncode, done.stdout) == (0, "n2\n")
    assert (tmp_path / "request").read_bytes() == request
    assert TOKEN not in docker_calls.read_text()
    assert "--network none" in docker_calls.read_text()
    assert file.read_text() == "n2\n"


def test_the_vms_own_python_is_taken_where_it_has_one(bare: Path, tmp_path: Path) -> None:
    docker_calls = docker(bare, "echo n2")
    (bare / "python3").write_text(f"#!{shutil.which('sh')}\ncat >{tmp_path}/request\n")
    (bare / "python3").chmod(0o755)
    done = run(bare, script("swarm_join", str(tmp_path / ".swarm"), "sha256:1f"), stdin=b"{}")
    assert done.returncode == 0
    assert (tmp_path / "request").read_bytes() == b"{}"
    assert not any(line.startswith("run") for line in docker_calls.read_text().splitlines())


@pytest.mark.parametrize(("state", "noted"), [("inactive", False), ("pending", True)])
def test_a_join_that_fails(bare: Path, tmp_path: Path, state: str, noted: bool) -> None:
    """An engine that gave up waiting goes on by itself: then kit brought it in all the same."""
    docker(bare, f"case $1 in run) echo 'connection refused' >&2; exit 1 ;; info) echo {state} ;; esac")
    file = tmp_path / ".swarm"
    done = run(bare, script("swarm_join", str(file), "sha256:1f"), stdin=b"{}")
    assert done.returncode == 1
    assert "connection refused" in done.stderr
    assert file.exists() == noted


LEAVING = """
case "$*" in
  *LocalNodeState*) echo {state} ;;
  *NodeID*) echo {node} ;;
  *ControlAvailable*) echo {manager} ;;
  'node ls'*) printf 'n1 Ready\\nn2 {other}\\n' ;;
  'service ls'*) printf '{services}' ;;
  ps*) printf '{tasks}' ;;
  'network ls'*) printf '{networks}' ;;
  'network inspect'*' o1') printf '{network}\n' ;;
  'network inspect'*) exit 2 ;;
  'secret ls'*) [ {manager} = true ] || exit 2; printf '{secret}\n' ;;
  'config ls'*) printf '{config}' ;;
esac
"""
NOTHING = {"services": "", "tasks": "", "networks": "o1", "network": "", "secret": "", "config": ""}


@pytest.mark.parametrize(
    ("change", "arguments", "left", "noted"),
    [
        ({}, ("n1", "", ""), True, False),
        ({}, ("pending", "", ""), True, False),
        ({}, ("n9", "", ""), False, False),
        ({"state": "inactive"}, ("n1", "", ""), False, False),
        ({}, ("n1", "n1", ""), False, True),
        ({}, ("n1", "all", ""), False, True),
        ({}, ("n1", "n2 n3", ""), True, False),
        ({"tasks": "c1"}, ("n1", "", ""), False, True),
        ({"manager": "true"}, ("n1", "", ""), False, True),
        ({"manager": "true"}, ("n1", "", "n2"), True, False),
        ({"manager": "true", "other": "Down"}, ("n1", "", ""), True, False),
        ({"manager": "true", "services": "s1"}, ("n1", "", "n2"), False, True),
    ],
)
def test_who_leaves_a_swarm(
    bare: Path, change: dict[str, str], arguments: tuple[str, str, str], left: bool, noted: bool
) -> None:
    """`asked`: which node the VM is noted as, and which nodes stay and go."""
    member, stay, gone = arguments
    values = {**NOTHING, "state": "active", "node": "n1", "manager": "false", "other": "Ready"}
    docker_calls = docker(bare, LEAVING.format(**{**values, **change}))
    file = bare.parent / "kit" / ".swarm"
    file.parent.mkdir()
    file.write_text(f"{member}\n")
    done = run(bare, script("swarm_leave", str(file), stay, gone, "lab"))
    assert done.returncode == 0, done.stderr
    assert (done.stdout == "left n1\n") == left
    assert ("swarm leave --force" in docker_calls.read_text()) == left
    assert file.exists() == noted


@pytest.mark.parametrize(
    ("manager", "change", "printed"),
    [
        ("true", {}, "left n1\n"),
        # There is only the network of the swarm's own ingress, or none.
        ("false", {"network": ""}, "left n1\n"),
        ("false", {"networks": ""}, "left n1\n"),
        ("false", {"network": "keeps network mine"}, "keeps network mine\n"),
        ("true", {"network": "keeps network mine"}, "keeps network mine\n"),
        # kit's own secret, and two of somebody else's.
        ("true", {"secret": "\\nkeeps secret a\\nkeeps secret b"}, "keeps secret a\nkeeps secret b\n"),
        ("true", {"config": "keeps config c"}, "keeps config c\n"),
        # A second manager that left the cluster. To leave by force, as the hint says, could end the others' swarm.
        ("true", {"services": "s1", "network": "keeps network mine"}, ""),
    ],
)
def test_nobody_leaves_a_swarm_that_has_things_of_somebody_else(
    bare: Path, manager: str, change: dict[str, str], printed: str
) -> None:
    values = {**NOTHING, "state": "active", "node": "n1", "manager": manager, "other": "Down"}
    docker_calls = docker(bare, LEAVING.format(**{**values, **change}))
    file = bare.parent / "kit" / ".swarm"
    file.parent.mkdir()
    file.write_text("n1\n")
    done = run(bare, script("swarm_leave", str(file), "", "", "lab"))
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert ("swarm leave --force" in docker_calls.read_text()) == printed.startswith("left")
    assert file.exists() != printed.startswith("left")


def test_a_manager_that_lists_no_secrets_does_not_leave(bare: Path) -> None:
    """Without a leader, nobody knows what the swarm has."""
    values = {**NOTHING, "state": "active", "node": "n1", "manager": "true", "other": "Down"}
    docker_calls = docker(bare, LEAVING.format(**values).replace("printf '\n' ;;\n  'config", "exit 1 ;;\n  'config"))
    file = bare.parent / ".swarm"
    file.write_text("n1\n")
    assert run(bare, script("swarm_leave", str(file), "", "", "lab")).returncode == 1
    assert "swarm leave" not in docker_calls.read_text()


def test_a_host_that_kit_never_brought_in_is_not_even_asked(bare: Path, tmp_path: Path) -> None:
    docker_calls = docker(bare, "exit 1")
    assert run(bare, script("swarm_leave", str(tmp_path / ".swarm"), "", "", "lab")).returncode == 0
    assert docker_calls.read_text() == ""


def test_nodes_of_the_cluster_that_are_down_are_listed(bare: Path) -> None:
    rows = "ready/head/gpu1 (10.0.0.1)\ndown/node/gpu2 (10.0.0.2)\ndown//web (10.0.0.7)\ndown/left/gpu3 (10.0.0.3)\n"
    docker_calls = docker(bare, f"case $2 in ls) echo n1; echo n2 ;; *) printf '{rows}' ;; esac")
    assert run(bare, script("swarm_down", "kit.lab")).stdout == "gpu2 (10.0.0.2)\n"
    assert '{{index .Spec.Labels "kit.lab"}}' in docker_calls.read_text()
    assert docker_calls.read_text().rstrip().endswith(" n1 n2")


def test_where_there_is_no_swarm_nothing_is_removed(bare: Path) -> None:
    docker_calls = docker(bare, "echo false inactive")
    done = run(bare, script("swarm_remove", "lab", str(bare), ""))
    assert (done.returncode, done.stdout) == (0, "")
    assert len(docker_calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("looks", "text"), [(99, "worker 10.0.0.1:2377 10.0.0.2:2377\n"), (2, ""), (0, "")], ids=["runs", "ends", "none"]
)
def test_a_worker_removes_nothing_and_names_the_managers_if_it_is_in_the_cluster(
    bare: Path, tmp_path: Path, looks: int, text: str
) -> None:
    """A host that left the cluster is a worker, too. It runs no task, or its task is about to end."""
    docker(
        bare,
        f"""case $1 in
  info) echo false active n2 10.0.0.1:2377 10.0.0.2:2377 ;;
  ps) [ "$(grep -c ^ps {tmp_path}/calls)" -gt {looks} ] || echo c1 ;;
esac""",
    )
    # Each look takes 5 s.
    stand_in(bare / "cut", f'echo "$(($(grep -c ^ps {tmp_path}/calls) * 5))"')
    stand_in(bare / "sleep", "")
    done = run(bare, script("swarm_remove", "lab", str(bare), ""))
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


KEEPING = """
case "$*" in
  info*) echo true active n1 10.0.0.1:2377 ;;
  'node ls'*) echo n1 n2 ;;
  'node inspect'*Status*) printf 'n1 ready {role} vm1\\nn2 {other} vm2\\n' ;;
esac
"""


@pytest.mark.parametrize(
    ("role", "other", "members", "kept"),
    [
        ("head", "ready head", "", False),
        ("node", "ready head", "", True),
        ("node", "ready head", "n3 n2", False),
        ("node", "ready head", "all", False),
        # Their head is lost.
        ("node", "down head", "", False),
        ("node", "ready node", "", False),
        ("-", "ready head", "", True),
        ("-", "ready node", "", False),
        # The head only restarts.
        ("left", "down head", "", True),
        ("left", "down node", "", True),
        ("left", "ready left", "", False),
        ("left", "ready -", "", False),
    ],
)
def test_which_manager_takes_a_cluster_down(bare: Path, role: str, other: str, members: str, kept: bool) -> None:
    docker(bare, KEEPING.format(role=role, other=other))
    done = run(bare, script("swarm_remove", "lab", str(bare), members))
    assert (done.returncode, done.stdout) == (0, f"apart {role} vm2\n" if kept else "manager\n"), done.stderr


@pytest.mark.parametrize("gone", [False, True])
def test_labels_of_all_nodes_are_read_at_once(bare: Path, gone: bool) -> None:
    """If a node goes meanwhile, this reads those of each node."""
    calls = docker(
        bare,
        f"""case "$*" in
  info*) echo true active n1 10.0.0.1:2377 ;;
  'node ls'*) echo n1; echo n2; echo n3 ;;
  'node inspect'*' n1 n2 n3') printf 'n1 kit.lab\\nn2\\nn3 kit.lab kit.other\\n'; exit {int(gone)} ;;
  'node inspect'*' n1') echo n1 kit.lab ;;
  'node inspect'*' n2') echo 'no such node: n2' >&2; exit 1 ;;
  'node inspect'*' n3') echo n3 kit.lab kit.other ;;
esac""",
    )
    done = run(bare, script("swarm_remove", "lab", str(bare), "all"))
    assert (done.returncode, done.stdout) == (0, "manager\nstay n3\n"), done.stderr
    lines = [line for line in calls.read_text().splitlines() if line.startswith(("node inspect", "node update"))]
    assert len(lines) == (6 if gone else 3)
    assert lines[-2:] == ["node update --label-rm kit.lab n1", "node update --label-rm kit.lab n3"]


def test_a_label_that_stays_is_a_failure(bare: Path) -> None:
    rows = "info*) echo true active n1 ;; nodels) echo n1 ;; nodeinspect) echo n1 kit.lab ;; nodeupdate) exit 1 ;;"
    docker(bare, f"case $1$2 in {rows} esac")
    assert run(bare, script("swarm_remove", "lab", str(bare), "all")).returncode == 1


@pytest.mark.parametrize("swarm", [True, False])
def test_an_engine_that_is_slow_is_no_engine_without_a_stack(bare: Path, tmp_path: Path, swarm: bool) -> None:
    """A cluster of Compose has no stack, and the next step waits for its engine."""
    # As it ends where 15 s have passed.
    stand_in(bare / "timeout", "exit 124")
    docker(bare, "exit 1")
    folder = tmp_path / "lab"
    folder.mkdir()
    if swarm:
        (folder / "node.env").touch()
    done = run(bare, script("swarm_remove", "lab", str(folder), ""))
    assert (done.returncode, done.stdout, "did not answer within 15 s" in done.stderr) == (int(swarm), "", swarm)


def test_a_folder_that_is_there_stays_unchanged(bare: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        assert run(bare, script("make_folder", str(folder), "700")).returncode == 0
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o711)
    run(bare, script("make_folder", str(folder), "700"))
    assert folder.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize(
    ("message", "there", "code"),
    [("removal of container c1 is already in progress", 0, 0), ("No such container: c1", 0, 0), ("disk on fire", 0, 1)],
)
def test_a_container_that_swarm_is_removing_too_is_gone_in_a_moment(
    bare: Path, tmp_path: Path, message: str, there: int, code: int
) -> None:
    seen = tmp_path / "seen"
    # It is still there at the first look.
    docker(bare, f"case $1 in ps) echo c1 ;; rm) echo '{message}' >&2; exit 1 ;; "
           f"inspect) [ ! -e {seen} ] && : >{seen} && exit {there}; exit 1 ;; esac")  # fmt: skip
    done = run(bare, script("remove_node", "lab"))
    assert done.returncode == code
    assert (message in done.stderr) == (code != 0)


def test_an_engine_that_gave_up_waiting_for_its_swarm_is_waited_for(bare: Path, tmp_path: Path) -> None:
    message = "Timeout was reached before node joined. The attempt to join the swarm will continue in the background."
    docker(
        bare,
        f"""case "$*" in
  run*) echo '{message}' >&2; exit 1 ;;
  *LocalNodeState*) if [ -e {tmp_path}/polled ]; then echo active; else echo pending; fi; echo >{tmp_path}/polled ;;
  *NodeID*) echo n2 ;;
esac""",
    )
    file = tmp_path / ".swarm"
    done = run(bare, script("swarm_join", str(file), "sha256:1f"), stdin=b"{}")
    assert (done.returncode, done.stdout) == (0, "n2\n"), done.stderr
    assert file.read_text() == "n2\n"


@pytest.mark.parametrize(("refusals", "code", "attempts"), [(0, 0, 1), (2, 0, 3), (99, 1, 6)])
def test_a_node_that_changes_by_itself_is_labeled_all_the_same(
    bare: Path, tmp_path: Path, refusals: int, code: int, attempts: int
) -> None:
    """As one does that has just joined: Swarm takes no change of what is not the latest."""
    (bare / "sleep").unlink()
    (bare / "sleep").symlink_to("/bin/true")
    docker_calls = docker(
        bare,
        f"""[ "$(grep -c update {tmp_path}/calls)" -gt {refusals} ] ||
  {{ echo 'Error response from daemon: rpc error: code = Unknown desc = update out of sequence' >&2; exit 1; }}""",
    )
    done = run(bare, script("swarm_nodes", "kit.lab", "n2=node"))
    assert done.returncode == code
    assert docker_calls.read_text().splitlines() == ["node update --label-add kit.lab=node n2"] * attempts
    assert ("out of sequence" in done.stderr) == bool(code)


def test_a_node_that_is_not_there_is_requested_once(bare: Path) -> None:
    docker_calls = docker(bare, "echo 'node n2 not found' >&2; exit 1")
    done = run(bare, script("swarm_nodes", "kit.lab", "n2=node"))
    assert (done.returncode, done.stderr) == (1, "node n2 not found\n")
    assert len(docker_calls.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    "message",
    [
        "removal of container c1 is already in progress",
        "cannot remove container: could not kill: tried to kill container, but did not receive an exit event",
        "unable to remove filesystem: unlinkat /x: device or resource busy",
    ],
)
def test_a_container_that_goes_slowly_goes(bare: Path, tmp_path: Path, message: str) -> None:
    docker_calls = docker(
        bare,
        f"""case $1 in
  ps) echo c1 ;;
  rm) [ "$(grep -c ^rm {tmp_path}/calls)" -gt 2 ] || {{ echo '{message}' >&2; exit 1; }} ;;
esac""",
    )
    done = run(bare, script("remove_node", "lab"))
    assert (done.returncode, done.stderr) == (0, "")
    assert docker_calls.read_text().splitlines()[-1] == "rm --force --volumes c1"


@pytest.mark.parametrize(
    ("role", "services", "stays"), [("head", "s1", True), ("head", "", False), ("left", "s1", False)]
)
def test_a_head_with_a_stack_is_not_forgotten(
    bare: Path, tmp_path: Path, role: str, services: str, *, stays: bool
) -> None:
    """Without its folder and its membership, the next kit down would not find the stack."""
    answers = LEAVING.format(
        **{**NOTHING, "state": "active", "node": "n1", "manager": "true", "other": "Down", "services": ""}
    )
    own = f"""case "$*" in
  'node inspect'*'"kit.lab"'*' self') echo {role}; exit ;;
  'service ls'*kit.cluster=lab) echo "{services}"; exit ;;
esac
"""
    calls = docker(bare, own + answers)
    folder, file = tmp_path / "lab", tmp_path / "kit" / ".swarm"
    for path in (folder, file.parent):
        path.mkdir()
    (folder / "stack.yaml").touch()
    file.write_text("n1\n")
    for argv in (script("remove", "lab", str(folder), "keep", "--"), script("swarm_leave", str(file), "", "", "lab")):
        done = run(bare, argv)
        assert done.returncode == int(stays), done.stderr
        assert ("Swarm still runs the stack of lab, which this host manages" in done.stderr) == stays
    assert ("ps --all" in calls.read_text(), "swarm leave --force" in calls.read_text()) == (not stays, not stays)
    (folder / "stack.yaml").unlink()
    assert run(bare, script("remove", "lab", str(folder), "keep", "--")).returncode == 0
