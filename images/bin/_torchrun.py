"""Becomes torchrun, with a rendezvous that loads nothing but its own state: _torchrun.py TORCHRUN [ARGUMENT...].

torchrun is root, also if ranks are another user. It unpickles a value of its store, into which every rank and everybody
who reaches its port can write, and a pickle can run any code. kit-torchrun starts this with torchrun's own Python.
Python 3.6.
"""

import datetime
import io
import os
import pickle
import sys
from importlib import import_module
from typing import Any

RENDEZVOUS = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
# The state, and the type of the hosts in it.
STATE, NODE = "_RendezvousState", "_NodeDesc"
# Up to Python 3.7, pickle names the type of a set.
PLAIN = {
    ("builtins", "set"): set,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
}


class Pickle:
    """All that the rendezvous may use of pickle. An attribute that is missing here ends torchrun, which is safe."""

    PickleError = pickle.PickleError
    dumps = staticmethod(pickle.dumps)

    def __init__(self, rendezvous: Any) -> None:
        self._state = getattr(rendezvous, STATE)
        own = {(RENDEZVOUS, name): getattr(rendezvous, name) for name in (STATE, NODE)}
        allowed = {**PLAIN, **own}

        class Loader(pickle.Unpickler):
            def find_class(self, module: str, name: str) -> Any:
                if (module, name) in allowed:
                    return allowed[module, name]
                raise pickle.UnpicklingError("%s.%s" % (module, name))

        self._loader = Loader

    def loads(self, data: bytes) -> Any:
        """Return the state in `data`. Raises UnpicklingError, which torchrun reports, for anything else."""
        try:
            state = self._loader(io.BytesIO(data)).load()
        except Exception as error:
            raise pickle.UnpicklingError("no state of a rendezvous: %s" % error) from error
        if type(state) is not self._state:
            raise pickle.UnpicklingError("no state of a rendezvous: %s" % type(state).__name__)
        return state


def close(rendezvous: Any) -> None:
    """Let the rendezvous load its own state only. Raises AttributeError if it does not load it as kit knows."""
    if rendezvous.pickle is not pickle:
        raise AttributeError("pickle")
    rendezvous.pickle = Pickle(rendezvous)


def main() -> None:
    """Run torchrun's program."""
    del sys.argv[0]
    # What Python would have put there for torchrun. A later import must not find kit's files.
    if sys.path[:1] == [os.path.dirname(os.path.abspath(__file__))]:
        sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
    torchrun = import_module("torch.distributed.run")
    try:
        close(import_module(RENDEZVOUS))
    except (ImportError, AttributeError):
        version = getattr(sys.modules["torch"], "__version__", "of this image")
        sys.exit(
            "kit-torchrun: PyTorch %s: kit does not know how its torchrun reads what ranks write, so it does not start "
            "it as root; use another version of PyTorch, or run without --launcher torchrun" % version
        )
    sys.exit(torchrun.main())


if __name__ == "__main__":
    main()
