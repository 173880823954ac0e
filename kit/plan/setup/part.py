"""What one area plans for one host: its steps, what prevents them, what a reboot would finish, and remarks."""

from __future__ import annotations

from msgspec import Struct, field

from kit.errors import KitError
from kit.model.plan import Step
from kit.model.setup.result import Remark


class Part(Struct, kw_only=True):
    """The plan of one area for one host. Each area fills its own."""

    steps: list[Step] = field(default_factory=list)
    problems: list[KitError] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
