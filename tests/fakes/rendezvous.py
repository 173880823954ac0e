"""Stand-ins for what kitelastic.meeting takes of Horovod: a store over HTTP, and the wire to a rank.

They have Horovod's names and do as little as its own: that server answers everybody, and that wire loads any pickle.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from types import ModuleType
from typing import Any

DIGEST_LENGTH = 32


def digest(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


class PingResponse:
    def __init__(self, service_name: str, source_address: str) -> None:
        self.service_name = service_name
        self.source_address = source_address


class AckResponse:
    """Has no data."""


class Wire:
    def __init__(self, key: bytes) -> None:
        self._key = key


class Client:
    """Asks a rank's notification service."""


class Driver:
    """Notes which ranks have registered."""

    def __init__(self) -> None:
        self.registered: list[tuple[Any, ...]] = []

    def register_worker_server(self, *words: Any) -> None:
        self.registered.append(words)


class KVStoreHandler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        _, scope, key = self.path.split("/")
        self._put_value(scope, key, self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def _put_value(self, scope: str, key: str, value: bytes) -> None:
        self.server.values[scope, key] = value  # type: ignore[attr-defined]  # that of RendezvousHTTPServer

    def log_message(self, *words: Any) -> None:
        """Print nothing."""


class RendezvousHTTPServer(ThreadingMixIn, HTTPServer):
    def __init__(self, address: tuple[str, int], handler: Any, verbose: int) -> None:
        super().__init__(address, handler)
        self.verbose = verbose
        self.values: dict[tuple[str, str], bytes] = {}


class RendezvousServer:
    def __init__(self, verbose: int = 0) -> None:
        self._verbose = verbose
        self._httpd: Any = None
        self._listen_thread: Any = None

    def stop(self) -> None:
        self._httpd.shutdown()
        self._listen_thread.join()
        self._httpd.server_close()


def in_thread(target: Any) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def modules() -> dict[str, ModuleType]:
    """Return the modules by name, for sys.modules."""
    contents: dict[str, dict[str, Any]] = {
        "horovod": {},
        "horovod.runner": {},
        "horovod.runner.common": {},
        "horovod.runner.common.util": {},
        "horovod.runner.common.util.network": {
            "__name__": __name__, "Wire": Wire, "PingResponse": PingResponse, "AckResponse": AckResponse,
        },
        "horovod.runner.common.util.secret": {
            "DIGEST_LENGTH": DIGEST_LENGTH,
            "check_digest": lambda key, message, found: hmac.compare_digest(digest(key, message), found),
        },
        "horovod.runner.elastic": {},
        "horovod.runner.elastic.rendezvous": {
            "PUT_WORKER_ADDRESSES": "worker_addresses", "create_rendezvous_handler": lambda _driver: KVStoreHandler,
        },
        "horovod.runner.elastic.worker": {"WorkerNotificationClient": Client},
        "horovod.runner.http": {},
        "horovod.runner.http.http_server": {
            "KVStoreHandler": KVStoreHandler, "RendezvousHTTPServer": RendezvousHTTPServer,
            "RendezvousServer": RendezvousServer,
        },
        "horovod.runner.util": {},
        "horovod.runner.util.threads": {"in_thread": in_thread},
    }  # fmt: skip
    made = {name: ModuleType(name) for name in contents}
    for name, content in contents.items():
        vars(made[name]).update(content)
        above, _, last = name.rpartition(".")
        if above:
            setattr(made[above], last, made[name])
    return made
