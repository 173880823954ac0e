"""The program `kit-data serve`: the stager of one host. kitdata.relay passes orders of the operator on to it.

An order is one line of JSON on standard input; the answers are lines of JSON on standard output, each with one key.
{"op": "hello"}, {"op": "join", "id", "address", "certificate", "key"}, {"op": "stage", "id", "request"} and
{"op": "watch"} on the lead, {"op": "stop", "id"}, {"op": "verify", "write"}, and {"op": "feed", "id"}, after which
frames go both ways (kitdata.feed). A staging goes on when the process that ordered it ends.

A stager that may mount is a mounter. {"op": "mount", "source", "write"}, with a source of the kind rclone as in a
request, mounts it at the folder `mount` of the data set's folder, read-only unless `write` is true: {"mounted":
{"already"}}, with true if it is mounted there so already. Another source is refused as "busy", and so is this one with
another `write`. The mount ends with the mounter, by SIGTERM. If rclone
ends by itself, the mount ends, and some time later the mounter. "mounted" in the answer to hello says whether there is
a mount.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from typing import Any, BinaryIO, Dict, List, cast

from kitdata.relay import SOCKET, SOCKET_PATH
from kitdata.station import Station, memory_folder

FOLDER = "KIT_DATA_FOLDER"
# The longest order: a request names every member.
MOST_LINE = 1 << 24
USAGE = "usage: kit-data serve | kit-data order [hello]"


def main(arguments: List[str]) -> int:
    if arguments == ["serve"]:
        return serve(os.environ.get(FOLDER, "/data"), os.environ.get(SOCKET, SOCKET_PATH))
    print(USAGE, file=sys.stderr)
    return 2


def serve(folder: str, path: str) -> int:
    """Carry out orders until there have been none for a while, and nothing is mounted."""
    # The first process of a container ignores this signal unless it asks for it, and would be killed only later. The
    # handler takes no lock: it may interrupt code that holds one.
    ending, signaled = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(signaled, b"."))
    os.umask(0o022)
    # A traceback may show what is secret. Before Python 3.8 there is no such hook.
    threading.excepthook = _quiet  # type: ignore[assignment,unused-ignore]
    station = Station(folder, memory_folder(os.path.dirname(path)))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(16)
    threading.Thread(target=_accept, args=(listener, station), daemon=True).start()
    while not station.finished and not select.select([ending], [], [], 0.5)[0]:
        pass
    station.close()
    # Do not wait for threads that wait for a source or another host.
    os._exit(0)


def _quiet(arguments: Any) -> None:
    """Say of an error in a thread only what kind it is, and where."""
    at = arguments.exc_traceback
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = "%s:%d" % (at.tb_frame.f_code.co_filename, at.tb_lineno) if at is not None else "?"
    print("kit-data: %s at %s" % (arguments.exc_type.__name__, where), file=sys.stderr, flush=True)


def _accept(listener: socket.socket, station: Station) -> None:
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=_answer, args=(peer, station), daemon=True).start()


def _answer(peer: socket.socket, station: Station) -> None:
    writing = threading.Lock()
    # Reading and writing are apart: a feed does both at once.
    reader = cast(BinaryIO, peer.makefile("rb"))

    def say(value: Dict[str, Any]) -> None:
        with writing:
            peer.sendall(json.dumps(value).encode() + b"\n")

    try:
        # From here on the stager does not end, also if the order itself comes later.
        with station.at_work():
            line = reader.readline(MOST_LINE)
            value = json.loads(line.decode())
            if not isinstance(value, dict):
                raise ValueError("no JSON object")
            station.carry_out(value, say, _Both(reader, peer))  # type: ignore[arg-type]
    except OSError:
        # Nobody reads the answers any more.
        pass
    except Exception as error:
        # Not the traceback, which could show a request with its secrets.
        with contextlib.suppress(OSError):
            text = "the stager cannot carry out the order: %s" % type(error).__name__
            say({"failed": {"kind": "internal", "host": None, "text": text}})
    finally:
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)
        reader.close()
        peer.close()


class _Both:
    """A connection as a stream that is read and written."""

    def __init__(self, reader: BinaryIO, peer: socket.socket) -> None:
        self.read = reader.read
        self.write = peer.sendall

    def flush(self) -> None:
        """Nothing waits here."""
