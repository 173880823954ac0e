"""Reads a VM's state as observe.sh does, but in one process. observe.sh starts thirty, Docker's client among them.

Arguments: FOLDER IMAGE WANTED [PATH]... The variable KIT_LOOK has the mark of sections, and KIT_GPU_ENGINE and
KIT_GPU_NODE have gpu_engine.sh and gpu_node.sh. Prints the sections of observe.sh; udp and engine_ports only for a
deploy to Swarm. The exit code is 75 for a slow engine. It is 3, and nothing is printed, if only Docker's client can
answer, for example because it has a context. observe.sh then asks the client.

Standard library only, Python 3.6. It imports little, because most of its time is Python's start.
"""

import fcntl
import os
import sys
import time

# The C modules: `socket` and `hashlib` around them take as long to import as the rest of this program needs.
MYPY = False
if MYPY:
    import socket
    from hashlib import sha256

    from kit.remote.scripts.folder import living, waiting
    from kit.remote.scripts.kernel import addresses, default_routes, listening
else:
    import _socket as socket

    try:
        from _sha2 import sha256
    except ImportError:
        from hashlib import sha256

SOCKET = "/var/run/docker.sock"
# The client may then have another engine, or plugins in another folder.
CONTEXTS = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_API_VERSION", "DOCKER_CLI_PLUGIN_EXTRA_DIRS")
CONTEXT_WORDS = (b"currentContext", b"cliPluginsExtraDirs")
PLUGINS = tuple("/usr/%s/docker/cli-plugins" % place for place in ("local/lib", "local/libexec", "lib", "libexec"))
SLOW, UNFIT = 75, 3
LOCK_S, INFO_S, LIST_S = 15.0, 15.0, 10.0
LABELLED = "filters=%%7B%%22label%%22%%3A%%5B%%22%s%%22%%5D%%7D"
# Ports of Swarm, as the kernel writes them.
SWARM_PORTS = (":0949 ", ":1F0A ", ":12B5 ")


# A folder for each size of huge pages, such as hugepages-2048kB.
HUGE_PAGES = "/sys/kernel/mm/hugepages"
RDMA_DEVICES, RDMA_CLASS = "/dev/infiniband", "/sys/class/infiniband"
# The first entries of a table of GIDs. A table has 256, of which few are in use.
MOST_GIDS = 32

# A program that does not know the mark cannot start a section. No program that this one starts gets it.
MARK = os.environ.pop("KIT_LOOK", "")
# Programs of the shell that only VMs with GPUs run.
GPU_ENGINE, GPU_NODE = os.environ.pop("KIT_GPU_ENGINE", ""), os.environ.pop("KIT_GPU_NODE", "")
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
        _, found, text = text.partition(part)
        if part and not found:
            return False
    return text.endswith(last)


def section(name: str) -> str:
    """Return the line that starts a section."""
    return "@@ %s %s" % (MARK, name) if MARK else "@@ " + name


class Unfit(Exception):
    """Only Docker's client can answer."""


class Late(Exception):
    """The engine did not answer in time."""


class Request:
    """One request to the engine. It is sent at once, so that several requests wait together."""

    def __init__(self, path: str) -> None:
        self.began = time.monotonic()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(SOCKET)
        # HTTP/1.0: the engine ends the connection after its answer, and does not send it in chunks.
        self.socket.send(("GET %s HTTP/1.0\r\nHost: docker\r\n\r\n" % path).encode())

    def head_and_body(self, limit: float) -> "tuple[str, str]":
        """Return the answer. Raises Late if it is not complete `limit` seconds after the request."""
        data = b""
        while True:
            self.socket.settimeout(max(0.001, self.began + limit - time.monotonic()))
            try:
                piece = self.socket.recv(262144)
            except socket.timeout:
                raise Late from None
            if not piece:
                break
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        return head.decode("ascii", "replace"), body.decode("utf-8", "replace").strip()

    def json(self, limit: float) -> str:
        """Return the answer, a line of JSON, or "" if the engine does not have the thing."""
        head, body = self.head_and_body(limit)
        status = head.split()[1:2]
        if status == ["404"]:
            return ""
        if status != ["200"] or body[-1:] not in ("}", "]") or "\n" in body:
            raise Unfit
        return body


class Command:
    """A command that runs beside this program. `errors`: its output includes its errors."""

    def __init__(self, *argv: str, errors: bool = False) -> None:
        self.out, end = os.pipe()
        if os.fork() == 0:
            try:
                os.dup2(end, 1)
                os.dup2(end if errors else os.open(os.devnull, os.O_WRONLY), 2)
                os.execvp(argv[0], argv)  # noqa: S606  (an argv, no shell)
            finally:
                os._exit(127)
        os.close(end)

    def text(self) -> str:
        """Return what it prints until it ends. Commands that may hang run under `timeout`."""
        data = b""
        while True:
            piece = os.read(self.out, 65536)
            if not piece:
                return data.decode("utf-8", "replace")
            data += piece


def usual_engine() -> bool:
    """Return whether Docker's client would use the usual socket and plugins."""
    if any(os.environ.get(name) for name in CONTEXTS):
        return False
    settings = read(os.path.join(os.environ.get("HOME") or "/root", ".docker/config.json"))
    return not any(word in settings for word in CONTEXT_WORDS)


def read(path: str) -> bytes:
    """Return a file, or nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def lines_of(path: str) -> "list[str]":
    return read(path).decode("utf-8", "replace").splitlines()


def on_path(name: str) -> bool:
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in os.environ.get("PATH", "").split(":"))


def wait_for_compose(folder: str) -> None:
    """Wait until no Compose recreates a node of this cluster."""
    try:
        lock = os.open("%s/.lock/%s.compose" % os.path.split(folder), os.O_RDONLY)
    except OSError:
        return
    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > end:
                break
            time.sleep(0.05)
    os.close(lock)


def system() -> "list[str]":
    memory = [line.split()[1] for line in lines_of("/proc/meminfo") if line.startswith("MemTotal:")]
    names = [line.partition("=")[2].strip("\"'") for line in lines_of("/etc/os-release") if line[:12] == "PRETTY_NAME="]
    facts = [
        "arch %s" % os.uname().machine,
        "cores %d" % len(os.sched_getaffinity(0)),
        "python %s" % sys.version.split()[0],
        *("memory_kib %s" % number for number in memory),
        *huge_pages(),
        *("os %s" % name for name in names),
    ]
    for path in ("/var/lib/docker", "/var", "/"):
        try:
            disk = os.statvfs(path)
        except OSError:
            continue
        return [*facts, "disk_free_kib %d" % (disk.f_bavail * disk.f_frsize // 1024)]
    return facts


def huge_pages() -> "list[str]":
    """Return how much memory is in huge pages of all sizes, and how much of it is free, if there is any."""
    total = free = 0
    for name in entries(HUGE_PAGES):
        size = name[len("hugepages-") : -len("kB")]
        counts = [first_line("%s/%s/%s_hugepages" % (HUGE_PAGES, name, word)) for word in ("nr", "free")]
        if size.isdigit() and all(count.isdigit() for count in counts):
            total, free = total + int(size) * int(counts[0]), free + int(size) * int(counts[1])
    return ["hugepages_kib %d" % total, "hugepages_free_kib %d" % free] if total else []


def entries(folder: str) -> "list[str]":
    """Return the names in a folder; nothing if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def first_line(path: str) -> str:
    return "".join(lines_of(path)[:1])


def rdma_section() -> "list[str]":
    """Return the RDMA devices and the ports of their adapters, with the table of GIDs of each RoCE port."""
    rows = ["device %s" % name for name in entries(RDMA_DEVICES)]
    for adapter in entries(RDMA_CLASS):
        ports = "%s/%s/ports" % (RDMA_CLASS, adapter)
        for number in entries(ports):
            port = "%s/%s" % (ports, number)
            layer = first_line(port + "/link_layer")
            rows.append("port %s %s %s|%s" % (adapter, number, first_line(port + "/state"), layer))
            for index in range(MOST_GIDS) if layer == "Ethernet" else ():
                gid = first_line("%s/gids/%d" % (port, index))
                kind = first_line("%s/gid_attrs/types/%d" % (port, index))
                if gid and kind:
                    interface = first_line("%s/gid_attrs/ndevs/%d" % (port, index))
                    rows.append("gid %s %s %d %s|%s|%s" % (adapter, number, index, interface, kind, gid))
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


def compose_plugin(containers: str) -> str:
    """Return Docker's plugin for Compose as `docker info` describes it, or "" if it is missing."""
    home = os.path.join(os.environ.get("HOME") or "/root", ".docker/cli-plugins")
    for folder in (home, *PLUGINS):
        path = os.path.join(folder, "docker-compose")
        if not os.path.exists(path):
            continue
        # A container of kit that Compose made here shows that the plugin works. Otherwise the plugin has to start.
        version = string("com.docker.compose.version", containers) if os.access(path, os.X_OK) else ""
        version = version or string("Version", Command("timeout", "10", path, "docker-cli-plugin-metadata").text())
        if version:
            return '{"Name":"compose","Version":"%s"}' % version
        return '{"Name":"compose","Err":"it does not start"}'
    return ""


def string(name: str, text: str) -> str:
    """Return the first value of this name in some JSON, a string, or "" if it is missing or has an escape."""
    value = text.partition('"%s"' % name)[2].lstrip(": \n").partition('"')[2].partition('"')[0]
    return value if value.isprintable() and "\\" not in value else ""


def engine_info(wanted: str, ping: Request, *, gpus: bool) -> str:
    """Return what `docker info` shows, except for the client's part.

    The engine starts programs to answer that. So where neither GPUs nor Swarm need more, this has only its version.
    """
    if wanted == "swarm" or gpus:
        return Request("/info").json(INFO_S)
    head, _ = ping.head_and_body(INFO_S)
    fields = dict(line.partition(": ")[::2] for line in head.splitlines()[1:])
    product, _, version = fields.get("Server", "").partition(" ")[0].partition("/")
    if product != "Docker" or fields.get("Swarm") != "inactive":
        return Request("/info").json(INFO_S)
    return '{"ServerVersion":"%s","Swarm":{"LocalNodeState":"inactive"}}' % version


def manager_sections(cluster: str) -> "list[str]":
    """Return what only a manager knows."""
    # Imported only here, because it is slow to import.
    import json

    requests = [
        Request(path) for path in ("/nodes", "/services", "/secrets?" + LABELLED % ("kit.cluster%3D" + cluster))
    ]
    nodes, services, secrets = (json.loads(request.json(LIST_S) or "[]") for request in requests)
    return [
        section("nodes"),
        *(json.dumps([node["ID"], node["Spec"], node["Description"]["Hostname"], node["Status"]]) for node in nodes),
        section("services"),
        *(json.dumps([service["Spec"]["Name"], service["Spec"].get("Labels")]) for service in services),
        section("secrets"),
        *(json.dumps([secret["Spec"]["Name"], secret["Spec"].get("Labels")]) for secret in secrets),
    ]


def in_time(request: Request, what: str, info: str) -> str:
    """Return the engine's answer. A slow engine must not look like an engine without this."""
    try:
        return request.json(LIST_S)
    except Late:
        if not info:
            return ""
        os.write(2, ("the engine did not report its %s within %d s\n" % (what, LIST_S)).encode())
        os._exit(SLOW)


def engine_sections(folder: str, image: str, wanted: str, ping: Request, *, gpus: bool) -> "list[str]":
    inspected = [(tag, Request("/images/%s/json" % tag)) for tag in image.split()]
    listed = Request("/containers/json?all=1&" + LABELLED % "kit.cluster")
    sections = [section("engine")]
    try:
        info = engine_info(wanted, ping, gpus=gpus)
    except Late:
        info = ""
        sections = [section("slow"), "engine", section("engine")]
    containers = in_time(listed, "containers", info)
    if info:
        plugin = compose_plugin(containers) if wanted == "compose" else ""
        sections.append('%s,"ClientInfo":{"Plugins":[%s]}}' % (info[:-1], plugin))
    if '"ControlAvailable":true' in info:
        sections += manager_sections(os.path.basename(folder))
    sections += [section("member"), *lines_of(os.path.join(os.path.dirname(folder), ".swarm"))]
    sections.append(section("image"))
    for tag, request in inspected:
        image_id = string("Id", in_time(request, "images", info))
        if image_id and not image_id.startswith("sha256:"):
            raise Unfit
        sections += ["%s %s" % (image_id, tag)] if image_id else []
    return [*sections, section("containers"), containers]


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
        sections += [section(shown), *(lines_of(path + ".pub") if size(path) else ())]
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


def size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def gpu_query(fields: str) -> Command:
    return Command("timeout", "20", "nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits", errors=True)


def gpu_sections(query: Command, engine: Command, node: Command) -> "list[str]":
    """Return the GPUs, what decides whether the engine can give them to a container, and those that the node sees."""
    rows = query.text()
    for more in GPU_MORE[1:]:
        if "not a valid field" in rows:
            rows = gpu_query(GPU_FIELDS + more).text()
    mig = Command("timeout", "20", "nvidia-smi", "-L").text() if ", Enabled" in rows else ""
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
        section("living"),
        *living(folder, "var/runs"),
        section("waiting"),
        *waiting(folder, "var/runs")[:1000],
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
