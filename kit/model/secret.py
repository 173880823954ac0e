"""Secret: bytes that never print."""

from __future__ import annotations

from typing import NoReturn


class Secret:
    """Holds bytes that only `reveal()` returns. repr, str and format show nothing of them.

    It is not a dataclass, because `dataclasses.asdict` of a plan would expose its field.
    """

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        return self._value

    def digest(self) -> str:
        import hashlib  # noqa: PLC0415  (slow to import, and a dry run has no secret)

        return hashlib.sha256(self._value).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __deepcopy__(self, _memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled")

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__
