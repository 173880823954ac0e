"""The rendezvous server of an elastic run: Horovod's, on the cluster's address alone and for the cluster's hosts alone.

Horovod's own server listens on every address of the head, and unpickles whatever anybody sends to it.
"""

import io
import pickle
import socketserver
import struct
import sys
from typing import Any, Callable, Set

from horovod.runner.common.util import network, secret
from horovod.runner.elastic.rendezvous import PUT_WORKER_ADDRESSES, create_rendezvous_handler
from horovod.runner.elastic.worker import WorkerNotificationClient
from horovod.runner.http.http_server import KVStoreHandler, RendezvousHTTPServer, RendezvousServer
from horovod.runner.util.threads import in_thread

from kitelastic.plain import MOST, Refused, addresses_of

# The answers of a rank's notification service.
ANSWERS = {(network.__name__, kind.__name__): kind for kind in (network.PingResponse, network.AckResponse)}


class Answer(pickle.Unpickler):
    """Loads plain data and the answers of a rank's notification service."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ANSWERS:
            return ANSWERS[module, name]
        raise Refused("%s.%s" % (module, name))


class Wire(network.Wire):  # type: ignore[misc]
    """Horovod's wire, which would unpickle anything that the other end signs. The other end names the key itself."""

    def read(self, rfile: Any) -> Any:
        digest = rfile.read(secret.DIGEST_LENGTH)
        length = struct.unpack("i", rfile.read(4))[0]
        if not 0 <= length <= MOST:
            raise Refused("%d bytes" % length)
        message = rfile.read(length)
        if not secret.check_digest(self._key, message, digest):
            raise Refused("another key")
        return Answer(io.BytesIO(message)).load()


class Client(WorkerNotificationClient):  # type: ignore[misc]
    """Reports to a rank that the hosts have changed."""

    def _probe(self, addresses: Any) -> Any:
        ours: Any = self
        ours._wire = Wire(ours._wire._key)
        return super()._probe(addresses)


def handler_of(driver: Any, allowed: Set[str], formed: Callable[[], None]) -> Any:
    """Return Horovod's handler, for hosts with `allowed` addresses.

    It calls `formed` for each rank that has met the others.
    """
    inherited = create_rendezvous_handler(driver)

    class Handler(inherited):  # type: ignore[misc, valid-type]
        def parse_request(self) -> bool:
            if self.client_address[0] not in allowed:
                self.close_connection = True
                return False
            return bool(super().parse_request())

        def _put_value(self, scope: str, key: str, value: bytes) -> None:
            if scope == PUT_WORKER_ADDRESSES:
                host, local_rank = key.rsplit(":", 1)
                driver.register_worker_server(host, int(local_rank), *addresses_of(value, self.client_address[0]))
                return
            # Gloo's own addresses: bytes that only ranks read.
            KVStoreHandler._put_value(self, scope, key, value)

        def do_DELETE(self) -> None:  # noqa: N802  (the name of http.server)
            # Each rank deletes its entry when it is connected to all others.
            super().do_DELETE()
            if self.path.split("/")[1:2] == ["global"]:
                formed()

    return Handler


class Server(RendezvousServer):  # type: ignore[misc]
    """`address`: the head's, in the cluster's network."""

    def __init__(self, address: str) -> None:
        super().__init__(0)
        self._address = address
        self.port = 0

    def start(self, handler_cls: Any) -> int:
        address = self._address

        class Bound(RendezvousHTTPServer):  # type: ignore[misc]
            daemon_threads = True

            def server_bind(self) -> None:
                # HTTPServer would look up the host's name, which can take long.
                socketserver.TCPServer.server_bind(self)
                self.server_name, self.server_port = address, int(self.server_address[1])

            def handle_error(self, _: Any, client_address: Any) -> None:
                error = sys.exc_info()[1]
                # A rank that ends while it waits for the others is no failure of this server.
                if not isinstance(error, (OSError, RuntimeError)):
                    sys.stderr.write("kit-elastic: %s: %r\n" % (client_address[0], error))

        self._httpd = Bound((address, 0), handler_cls, 0)
        self._listen_thread = in_thread(target=self._httpd.serve_forever)
        self.port = self._httpd.server_address[1]
        return self.port
