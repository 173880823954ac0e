"""Reads a VM's state as observe.sh does, but in one process. observe.sh starts thirty, Docker's client among them.

Arguments: FOLDER IMAGE WANTED [PATH]... The variable KIT_LOOK has the mark of sections, and KIT_GPU_ENGINE,
KIT_GPU_NODE and KIT_SMI have gpu_engine.sh, gpu_node.sh and smi.sh. Prints the sections of observe.sh; udp and
engine_ports only for a deploy to Swarm. The exit code is 75 for a slow engine. It is 3, and nothing is printed, if only
Docker's client can answer, for example because it has a context. observe.sh then asks the client.

kit.remote.scripts puts kernel.py, folder.py, sections.py, command.py and engine.py before this. Standard library only,
Python 3.6. It imports little, because most of its time is Python's start.
"""

import os
import sys

# The C module: `hashlib` around it takes as long to import as the rest of this program needs.
MYPY = False
if MYPY:
    from hashlib import sha256

    from kit.remote.scripts.command import Command
    from kit.remote.scripts.engine import Request, Unfit, engine_sections, usual_engine, wait_for_compose
    from kit.remote.scripts.folder import cordoned, living, waiting
    from kit.remote.scripts.kernel import addresses, default_routes, entries, lines_of, listening, rdma, system
    from kit.remote.scripts.sections import section
else:
    try:
        from _sha2 import sha256
    except ImportError:
        from hashlib import sha256

# The exit code if only Docker's client can answer.
UNFIT = 3
# Ports of Swarm, as the kernel writes them.
SWARM_PORTS = (":0949 ", ":1F0A ", ":12B5 ")
# Programs of the shell that only VMs with GPUs run.
GPU_ENGINE, GPU_NODE = os.environ.pop("KIT_GPU_ENGINE", ""), os.environ.pop("KIT_GPU_NODE", "")
SMI = os.environ.pop("KIT_SMI", "")
GPU_FIELDS = "name,memory.total,uuid,index,pci.bus_id,driver_version"
# nvidia-smi refuses all fields if its driver does not know one: before 510 compute_cap, before 450 MIG.
GPU_MORE = (",mig.mode.current,compute_cap", ",mig.mode.current", "")


def there(path: str) -> bool:
    """Return whether a path exists. In its last part, each * stands for any text, as in the shell."""
    folder, _, name = path.rpartition("/")
    if os.path.exists(path) or "*" not in name:
        return os.path.exists(path)
    first, *middle, last = name.split("*")
    try:
        names = os.listdir(folder or "/")
    except OSError:
        return False
    return any(one.startswith(first) and fits(one[len(first) :], middle, last) for one in names)


def fits(text: str, middle: "list[str]", last: str) -> bool:
    """Return whether the text has these parts in this order, and ends with the last one."""
    for part in middle:
        _, separator, text = text.partition(part)
        if part and not separator:
            return False
    return text.endswith(last)


def on_path(name: str) -> bool:
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in os.environ.get("PATH", "").split(":"))


def rdma_section() -> "list[str]":
    rows = rdma()
    return [section("rdma"), *rows] if rows else []


def swarm_sections() -> "list[str]":
    """Return which ports of Swarm are in use, for a deploy to Swarm."""
    udp = lines_of("/proc/net/udp")
    tables = [*lines_of("/proc/net/tcp"), *udp]
    rows = []
    if any(port in line for line in tables for port in SWARM_PORTS):
        rows = Command("ss", "-Hltunp").text().splitlines()
    engine = [row.split()[4] for row in rows if '"dockerd"' in row]
    return [section("udp"), *(line.split(None, 2)[1] for line in udp[1:]), section("engine_ports"), *engine]


def folder_sections(folder: str) -> "list[str]":
    """Return the files that kit writes. The user may mount a volume below the folder, so nothing deeper is read."""
    modes, digests = [], []
    for place, shown in ((folder, "./"), (os.path.join(folder, "ssh"), "ssh/")):
        try:
            entries = sorted(os.listdir(place))
        except OSError:
            continue
        for name in entries:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if status.st_mode & 0o170000 != 0o100000:
                continue
            modes.append("%o %s%s" % (status.st_mode & 0o7777, shown, name))
            digests.append("%s  %s%s" % (digest(path), shown, name))
    sections = [section("files"), *modes, section("digests"), *digests]
    for shown, key in (("host_key", "host_ed25519"), ("client_key", "id_ed25519")):
        path = os.path.join(folder, "ssh", key)
        # A power loss can leave zeros in place of a private key, which ssh cannot load. A deploy replaces it then.
        is_whole = any(line.startswith("-----END ") for line in lines_of(path))
        sections += [section(shown), *(lines_of(path + ".pub") if is_whole else ())]
    sections += [section("record"), *lines_of(os.path.join(folder, "cluster.json"))]
    return [*sections, section("plugins"), *folders_in(os.path.join(folder, "plugins"))]


def folders_in(folder: str) -> "list[str]":
    """Return the names of the folders in a folder."""
    paths = [(name, os.path.join(folder, name)) for name in entries(folder)]
    return [name for name, path in paths if os.path.isdir(path) and not os.path.islink(path)]


def digest(path: str) -> str:
    total = sha256()
    with open(path, "rb") as file:
        while True:
            piece = file.read(1048576)
            if not piece:
                return str(total.hexdigest())
            total.update(piece)


def smi(*arguments: str) -> "Command":
    return Command("sh", "-c", SMI, "kit-smi", *arguments)


def gpu_query(fields: str) -> "Command":
    return smi("--query-gpu=" + fields, "--format=csv,noheader,nounits")


def gpu_sections(query: "Command", engine: "Command", node: "Command") -> "list[str]":
    """Return the GPUs, what decides whether the engine can give them to a container, and those that the node sees."""
    rows = query.text()
    for more in GPU_MORE[1:]:
        if "not a valid field" in rows:
            rows = gpu_query(GPU_FIELDS + more).text()
    mig = smi("-L").text() if ", Enabled" in rows else ""
    return [
        *rows.splitlines(),
        *mig.splitlines(),
        section("gpu_engine"),
        *engine.text().splitlines(),
        section("gpu_node"),
        *node.text().splitlines(),
    ]


def state(folder: str, image: str, wanted: str, *paths: str) -> "list[str]":
    if not usual_engine():
        raise Unfit
    # First, because an engine that is not there is noticed here.
    ping = Request("/_ping")
    wait_for_compose(folder)
    gpus = on_path("nvidia-smi")
    beside = None
    if gpus:
        node = Command("sh", "-c", GPU_NODE, "kit-gpu_node", os.path.basename(folder))
        beside = (gpu_query(GPU_FIELDS + GPU_MORE[0]), Command("sh", "-c", GPU_ENGINE), node)
    engine = engine_sections(folder, image, wanted, ping, gpus=gpus)
    return [
        section("system"),
        *system(),
        section("addresses"),
        *addresses(),
        section("route"),
        *default_routes(),
        section("listening"),
        *listening(),
        section("absent"),
        *(path for path in paths if not there(path)),
        *rdma_section(),
        section("gpus"),
        *(gpu_sections(*beside) if beside else ()),
        *engine,
        *(swarm_sections() if wanted == "swarm" else ()),
        *folder_sections(folder),
        section("cordoned"),
        *cordoned(folder, "var/runs"),
        # A run leaves the line when it is active: one that starts now must not be in neither.
        section("waiting"),
        *waiting(folder, "var/runs")[:1000],
        section("living"),
        *living(folder, "var/runs"),
        section("end"),
    ]


def main() -> None:
    try:
        text = "\n".join(state(*sys.argv[1:])) + "\n"
    except Exception:
        # Whatever is special here, observe.sh reads it, too, and its tools say what is wrong.
        os._exit(UNFIT)
    data = memoryview(text.encode("utf-8", "surrogateescape"))
    while data:
        data = data[os.write(1, data) :]
    # Python's own end would take longer.
    os._exit(0)


if __name__ == "__main__":
    main()
