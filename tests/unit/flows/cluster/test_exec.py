"""What the engine answers in place of a command."""

from __future__ import annotations

import pytest

from kit.errors import NotReadyError
from kit.flows.cluster.exec import check_node
from kit.remote.ssh.transport import Completed

ANSWER = "Error response from daemon: No such container: kit-lab-mpinode\n"
SUDO = "sudo: unable to resolve host gpu1: Name or service not known\n"
LOCALE = "sh: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8)\n"


def ended(errors: str) -> Completed:
    return Completed(code=1, stdout=b"", stderr=errors.encode())


@pytest.mark.parametrize("warnings", ["", SUDO, LOCALE, LOCALE + SUDO])
def test_a_warning_does_not_hide_that_no_node_runs_here(warnings: str) -> None:
    with pytest.raises(NotReadyError, match="no node of the cluster runs here") as caught:
        check_node(ended(warnings + ANSWER), "gpu1")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("run: kit deploy")


@pytest.mark.parametrize("errors", [SUDO, f"{SUDO}step 1\n{ANSWER}", f"{SUDO}my server is not running\n"])
def test_a_command_that_prints_such_words_is_not_the_engine(errors: str) -> None:
    check_node(ended(errors), "gpu1")
