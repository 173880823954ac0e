"""Load another script of this folder, whose name is no module's."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def beside(name: str) -> ModuleType:
    """Return the script as a module."""
    path = str(Path(__file__).with_name(name))
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks for its own module there.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module
