"""The login that kit sends to a registry, and the warning if it keeps one back."""

from __future__ import annotations

import os

from kit.events import Reporter, Warned
from kit.model.registry import RegistryLogin
from kit.remote.machine import credentials


def login_to(registry: str, reporter: Reporter | None) -> RegistryLogin | None:
    """Return your login to this registry, or None. Warn the reporter if the environment's login is for another one."""
    login = credentials.find_login(registry, os.environ)
    warning = credentials.withheld(registry, os.environ)
    if warning is not None and reporter is not None:
        text, hint = warning
        reporter.report(Warned(text=text, hint=hint))
    return login
