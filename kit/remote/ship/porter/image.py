"""An image as a porter's cargo: which of its layers this host's engine has, and how the others get into it."""

import os
import time
from typing import Any, Callable, Dict, Set

from . import names, source
from .archive import Archive, fits, part_config
from .engine import EngineError, SocketEngine
from .layers import Layers, digest_of

FOLDER = "kit-ship"


class Cargo:
    """The image of one ship. `loaded` counts the layers that the engine has, which are the first ones of `chain`."""

    def __init__(self, order: Dict[str, Any], engine: SocketEngine) -> None:
        self._engine = engine
        self._image = str(order["image"])
        self._config = str(order["config"]).encode()
        self._owner = str(order["owner"])
        self.chain = [names.digest(layer) for layer in order["layers"]]
        # A source has every layer.
        self.loaded = len(self.chain) if order.get("source") else 0
        self.folder = names.below(engine.root(), FOLDER, self._owner)

    def held(self) -> int:
        """Return how many layers of the chain the engine has."""
        self.loaded = fits(self._engine, self._config, self.chain, self._owner)
        return self.loaded

    def fill(self, wanted: Set[str], layers: Layers) -> str:
        """Take layers out of the engine. Return how."""
        return source.fill(self._engine, self._image, self.chain, wanted, layers)

    def load(self, layers: Layers, again: Callable[[str], None], say: Callable[[Dict[str, Any]], None]) -> float:
        """Load each layer as soon as it and all below it are here, so that the engine unpacks while others come.

        `again` requests a layer that the engine refused. Return the seconds that the engine was busy.
        """
        busy = 0.0
        held = count = self.loaded
        while count < len(self.chain):
            while not layers.wait_whole(self.chain[count], 60.0):
                pass
            first = count
            while count < len(self.chain) and layers.whole(self.chain[count]):
                count += 1
            start = time.monotonic()
            if not self._load_some(layers, first, count, again, say):
                count = first
            else:
                self.loaded = count
            busy += time.monotonic() - start
        if held == len(self.chain):
            self._load_some(layers, count, count, again, say)
        self._engine.remove_parts(self._owner)
        return busy

    def _load_some(
        self,
        layers: Layers,
        first: int,
        count: int,
        again: Callable[[str], None],
        say: Callable[[Dict[str, Any]], None],
    ) -> bool:
        """Load the layers from `first` to `count`. Return False if one was refused, and must come again."""
        chain = self.chain[:count]
        files = {layer: layers.path(layer) for layer in chain[first:]}
        sizes = [(layer, os.path.getsize(files[layer]) if layer in files else 0) for layer in chain]
        whole = count == len(self.chain)
        config = self._config if whole else part_config(self._config, chain, self._owner)
        try:
            self._engine.load(Archive(config, sizes, files, self._image if whole else ""))
        except EngineError as error:
            # The engine verifies each layer itself, by the same hash.
            wrong = [layer for layer in files if digest_of(files[layer]) != layer]
            if not wrong:
                raise
            for layer in wrong:
                again(layer)
            say({"note": str(error)})
            return False
        return True
