"""Asks a VM's engine over its socket, and leaves to Docker's client what only that can answer.

kit.remote.scripts puts this before observe.py.
"""

import fcntl
import os
import time

# The C module: `socket` around it takes as long to import as the rest of this program needs.
MYPY = False
if MYPY:
    import socket

    from kit.remote.scripts.command import Command
    from kit.remote.scripts.kernel import lines_of, read
    from kit.remote.scripts.sections import section
else:
    import _socket as socket

SOCKET = "/var/run/docker.sock"
# The client may then have another engine, or plugins in another folder.
CONTEXTS = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_API_VERSION", "DOCKER_CLI_PLUGIN_EXTRA_DIRS")
CONTEXT_WORDS = (b"currentContext", b"cliPluginsExtraDirs")
PLUGINS = tuple("/usr/%s/docker/cli-plugins" % place for place in ("local/lib", "local/libexec", "lib", "libexec"))
# The exit code for an engine that is slow.
SLOW = 75
LOCK_S, INFO_S, LIST_S = 15.0, 15.0, 10.0
LABELLED = "filters=%%7B%%22label%%22%%3A%%5B%%22%s%%22%%5D%%7D"


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


def usual_engine() -> bool:
    """Return whether Docker's client would use the usual socket and plugins."""
    if any(os.environ.get(name) for name in CONTEXTS):
        return False
    settings = read(os.path.join(os.environ.get("HOME") or "/root", ".docker/config.json"))
    return not any(word in settings for word in CONTEXT_WORDS)


def wait_for_compose(folder: str) -> None:
    """Wait until nothing recreates or removes the node of this cluster."""
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
