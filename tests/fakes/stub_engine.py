"""The engine of stub_docker.py on a Unix socket, with what the look at a VM asks it."""

from __future__ import annotations

import http.server
import json
import socketserver
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.stub_docker import TOKEN


class StubEngine:
    """Answers on `socket` from the state in the file `state`. Paths in `silent` get no answer until the end."""

    def __init__(self, socket: Path, state: Path, *silent: str) -> None:
        self.state, self.silent = state, silent
        self.ended = threading.Event()
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"engine": self})
        self._server = _Server(str(socket), handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, labels: list[str]) -> tuple[int, Any]:
        """Return the status and the value for a request. Status 0 is a connection that ends."""
        state = json.loads(self.state.read_text())
        if not state["answers"]:
            return 0, None
        swarm = state["swarm"]
        if path in ("/_ping", "/info"):
            return 200, "OK" if path == "/_ping" else _info(state)
        if path.startswith("/images/"):
            name = path.removeprefix("/images/").removesuffix("/json")
            image = state["images"].get(name)
            return (200, {"Id": image, "RepoTags": [name]}) if image else (404, {"message": f"No such image: {name}"})
        if path == "/containers/json":
            return 200, [_container(row) for row in state["containers"] if _matches(row["labels"], labels)]
        held = {"/nodes": "members", "/services": "services", "/secrets": "secrets"}[path]
        if not swarm or not swarm["manager"]:
            return 503, {"message": "This node is not a swarm manager."}
        rows = {name: body.get("labels", {}) for name, body in swarm[held].items()}
        return 200, [_member(name, own) for name, own in rows.items() if _matches(own, labels)]

    def join(self, request: dict[str, str]) -> tuple[int, Any]:
        state = json.loads(self.state.read_text())
        if not state["join"] or request["JoinToken"] != TOKEN:
            return 503, {"message": "rpc error: code = Unavailable desc = connection error"}
        state["swarm"] = {"node": "n5", "manager": False, "members": {}, "services": {}, "secrets": {}}
        self.state.write_text(json.dumps(state))
        return 200, ""

    def swarm_word(self) -> str:
        swarm = json.loads(self.state.read_text())["swarm"]
        return f"active/{'manager' if swarm['manager'] else 'worker'}" if swarm else "inactive"


def _info(state: dict[str, Any]) -> dict[str, Any]:
    swarm = state["swarm"]
    fields = {
        "LocalNodeState": "active" if swarm else "inactive",
        "NodeID": swarm["node"] if swarm else "",
        "ControlAvailable": bool(swarm and swarm["manager"]),
        "RemoteManagers": None,
    }
    return {"ServerVersion": "26.1.5", "Runtimes": {"runc": {}}, "LiveRestoreEnabled": True, "Swarm": fields}


def _container(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "Id": "f" * 64,
        "Names": [f"/{row['name']}"],
        "Image": row["image"],
        "Labels": row["labels"],
        "State": "running" if row["running"] else "exited",
        "Status": "Up 2 hours" if row["running"] else "Exited (137) 2 hours ago",
    }


def _member(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """A node has all of these; a service or a secret has its ID and a name and labels in its Spec."""
    spec = {"Name": name, "Labels": labels, "Availability": "active"}
    return {
        "ID": name,
        "Spec": spec,
        "Description": {"Hostname": name},
        "Status": {"State": "ready", "Addr": ""},
    }


def _matches(labels: dict[str, str], rules: list[str]) -> bool:
    pairs = [rule.partition("=") for rule in rules]
    return all(key in labels and (not equals or labels[key] == value) for key, equals, value in pairs)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    engine: StubEngine

    def log_message(self, *_: Any) -> None:
        pass

    def address_string(self) -> str:
        return ""

    def version_string(self) -> str:
        return "Docker/26.1.5 (linux)"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.engine.requests.append(path)
        if path in self.engine.silent:
            self.engine.ended.wait(60)
            return
        labels = json.loads(parse_qs(parts.query).get("filters", ["{}"])[0]).get("label", [])
        status, value = self.engine.answer(path, labels)
        self._send(status, value)

    def do_POST(self) -> None:
        assert urlsplit(self.path).path.endswith("/swarm/join")
        self._send(*self.engine.join(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def _send(self, status: int, value: Any) -> None:
        if not status:
            return
        self.send_response(status)
        self.send_header("Swarm", self.engine.swarm_word())
        self.end_headers()
        self.wfile.write(
            value.encode() if isinstance(value, str) else json.dumps(value, separators=(",", ":")).encode() + b"\n"
        )
