"""Reads what ranks report to the rendezvous server. It is pickled, and loading a pickle can run any code."""

import base64
import io
import pickle
from typing import Any, Tuple

# What a rank reports is shorter than this by far.
MOST = 1 << 20


class Refused(ValueError):
    """A report of a rank that is more than plain data."""


class Plain(pickle.Unpickler):
    """Loads texts, numbers, bytes, lists, tuples and dictionaries, and nothing that can run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise Refused("%s.%s" % (module, name))


def plain(value: bytes) -> Any:
    """Return what a rank has sent. Raises Refused for anything but plain data."""
    if len(value) > MOST:
        raise Refused("%d bytes" % len(value))
    try:
        return Plain(io.BytesIO(base64.b64decode(value))).load()
    except Refused:
        raise
    except Exception as error:
        raise Refused(str(error)) from error


def addresses_of(value: bytes, peer: str) -> Tuple[Any, bytes]:
    """Return the addresses at `peer`, and the key, of a rank's notification service. Raises Refused."""
    try:
        addresses, key = plain(value)
        pairs = [(str(host), int(port)) for endpoints in addresses.values() for host, port in endpoints]
        whole = {"kit": [pair for pair in pairs if pair[0] == peer]}
    except Refused:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise Refused(str(error)) from error
    if not isinstance(key, bytes) or not whole["kit"]:
        raise Refused("no key, or no address of %s" % peer)
    return whole, key
