"""The shell scripts that run on a VM, one file each. Values reach them as arguments, never by templating.

observe.sh runs a program in Python, whose files are here, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kit.remote.machine.assets import images_dir

# Prefixes of scripts: shell functions that find this VM's node, remove a container or a mount, change a member of a
# swarm, take the lock of the node, print how long this VM has been up, or find a stack; and a script that another one
# continues.
_BEFORE = {
    "read_runs": "node_name",
    "observe": "read_runs",
    "look": "observe",
    "runs": "read_runs",
    "load": "read_runs",
    "node": "node_name",
    "node_terminal": "node_name",
    "wait_sshd": "node_name clock",
    "data_node": "node_name stores",
    "data_order": "stores",
    "data_remove": "stores data_places",
    "data_state": "stores data_places",
    "make_data_folder": "stores data_places",
    "end_stagers": "remove_container stores",
    "remove": "end_stagers data_places node_lock keeps_stack",
    "compose_up": "node_lock",
    "data_end": "end_stagers",
    "remove_node": "remove_container",
    "probe_clean": "remove_container",
    "swarm_nodes": "update_node",
    "swarm_join": "clock",
    "swarm_remove": "update_node clock node_lock",
    "swarm_leave": "keeps_stack",
    "remove_container": "clock",
    "end_exec": "clock",
}
_AFTER = {"look": "ranks", "node_terminal": "node"}
# Scripts that a script may run, each in a variable such as end_exec_program.
_CALLED = {
    "data_order": ("make_data_folder",),
    "node_terminal": ("end_exec",),
    "observe": ("gpu_engine", "gpu_node", "smi"),
    "look": ("gpu_processes",),
    "gpu_processes": ("gpu_node", "smi"),
    "tune_facts": ("smi",),
}
# Files of programs in Python that a script runs. The script finds each in a variable, such as observe_program.
_PROGRAMS = {
    "read_runs": ("folder", "runs"),
    "observe": ("kernel", "sections", "command", "engine", "observe"),
    "copy_plugin": ("plugin",),
}
# Programs of the image that a script also runs outside of it, by their path below images/.
_OF_IMAGE = {"data_order": {"relay": "lib/kitdata/relay.py"}}


@cache
def _text(name: str) -> str:
    before = "".join(_text(prefix) for prefix in _BEFORE.get(name, "").split())
    # What comes before a script that another one continues is there already.
    after = _read(f"{_AFTER[name]}.sh") if name in _AFTER else ""
    for called in _CALLED.get(name, ()):
        before += f"{called}_program={shlex.quote(_text(called))}\n"
    for part in _PROGRAMS.get(name, ()):
        before += f"{part}_program={shlex.quote(_read(f'{part}.py'))}\n"
    for part, path in _OF_IMAGE.get(name, {}).items():
        program = (images_dir() / path).read_text(encoding="utf-8") + "\nsys.exit(main(sys.argv[1:]))\n"
        before += f"{part}_program={shlex.quote(program)}\n"
    return before + _read(f"{name}.sh") + after


def _read(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


def script(name: str, *arguments: str) -> Sequence[str]:
    """Return the argv that runs a script of this folder with these arguments."""
    return ["sh", "-c", _text(name), f"kit-{name}", *arguments]


def in_node(
    name: str, argv: Sequence[str], *, interactive: bool = False, terminal: bool = False, mark: str = ""
) -> Sequence[str]:
    """Return the argv that runs `argv` in the VM's node, of which plan/stack.py knows the name.

    `mark` is the id of a command of kit exec: `end_exec` ends its processes.
    """
    options = ["--interactive"] if interactive else []
    options += ["--tty", "--env", "TERM"] if terminal else []
    options += ["--env", f"KIT_EXEC={mark}"] if mark else []
    words = [name, "exec", *options, "--", *argv]
    return script("node_terminal", mark, *words) if terminal and mark else script("node", *words)


def node_logs(name: str, *options: str) -> Sequence[str]:
    """Return the argv that prints the log of the VM's node."""
    return script("node", name, "logs", *options, "--")
