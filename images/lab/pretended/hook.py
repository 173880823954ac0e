"""nvidia-container-runtime-hook: gives a container its GPUs, where the engine or the runtime calls it as a hook.

The engine has the driver `nvidia` for `--gpus` exactly if this program was on dockerd's PATH when it started.
"""

import json
import os
import sys
from typing import List

from pretended import container
from pretended.state import load


def main(argv: List[str]) -> int:
    if argv[-1:] != ["prestart"]:
        return 0
    state_of = json.load(sys.stdin)
    pid, bundle = int(state_of["pid"]), state_of["bundle"]
    with open(os.path.join(bundle, "config.json")) as file:
        config = json.load(file)
    state = load()
    visible = container.environ_of(config).get("NVIDIA_VISIBLE_DEVICES", "")
    try:
        minors = container.chosen(state, visible)
    except container.Unknown as error:
        sys.stderr.write("nvidia-container-cli: device error: %s: unknown device\n" % error)
        return 1
    if minors is None:
        return 0
    folder = container.device_cgroup(pid)
    if folder is not None:
        container.permit(folder, minors, allow=True)
    root = config["root"]["path"]
    root = root if os.path.isabs(root) else os.path.join(bundle, root)
    space = os.open("/proc/%d/ns/mnt" % pid, os.O_RDONLY)
    os.setns(space, 0)  # type: ignore[attr-defined]
    container.make_nodes(root, minors)
    container.mount_program(root)
    return 0
