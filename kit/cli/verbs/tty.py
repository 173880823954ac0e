"""What `kit exec -t` and `kit run -it` need of your terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.session import Session


def check_terminal(session: Session, flag: str, *, otherwise: str = "") -> None:
    """Raise InputError if the command could not get kit's terminal. `flag` is the one that asks for it.

    `otherwise` is what to write where there is no terminal.
    """
    if session.json:
        raise InputError(f"{flag} prints no JSON", hint=f"leave out {flag}")
    if session.terminal.piped is not None:
        raise InputError(
            f"{flag} needs a terminal, but standard input is not one", hint=otherwise or f"leave out {flag}"
        )
