"""What becomes of an engine's words when it starts no stager."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.errors import NotReadyError
from kit.remote import scripts
from kit.remote.data.refusals import refusal

AT = "/var/lib/docker/volumes/06a2981c/_data"
HELP = "\n\nRun 'docker run --help' for more information"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            f"docker: Error response from daemon: error while mounting volume '{AT}': failed to mount local volume: "
            f"mount :/x:{AT}, flags: 0x1, data: addr=10.0.0.9,nfsvers=4.1: no such device{HELP}",
            "web cannot be read: the engine cannot mount NFS from 10.0.0.9: no such device",
            "the kernel of gpu2 has no NFS client: kit ssh gpu2 -- sudo modprobe nfs",
        ),
        (
            f"docker: Error response from daemon: disk on fire{HELP}",
            "the stager cannot start: docker: Error response from daemon: disk on fire",
            "look at the host's engine: kit ssh gpu2 -- sudo docker ps",
        ),
        ("", "the stager cannot start: engine", "look at the host's engine: kit ssh gpu2 -- sudo docker ps"),
    ],
)
def test_an_engine_that_starts_no_stager(text: str, message: str, hint: str) -> None:
    error = refusal("engine", text, "web", "gpu2")
    assert (error.message, error.hint, error.host) == (message, hint, "gpu2")


@pytest.mark.parametrize("end", ["", HELP, ".\nSee 'docker run --help'."])
def test_a_folder_of_a_host_that_is_missing_is_named_without_the_words_of_docker(end: str) -> None:
    text = 'docker: Error response from daemon: invalid mount config for type "bind": bind source path does not exist: '
    error = refusal("no-source", f"{text}/srv/words{end}", "words", "gpu2")
    assert (error.message, error.hint) == ("/srv/words does not exist here", "check from: of words in kit.yaml")


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("staging", "web is being staged here, as an earlier kit.yaml says", "wait until it has ended: kit data ls"),
        ("mounted", "web is still mounted here", "unmount it first: kit data rm web"),
    ],
)
def test_a_stager_mounts_nothing_and_a_mounter_stages_nothing(word: str, message: str, hint: str) -> None:
    error = refusal(word, "", "web", "gpu2")
    assert isinstance(error, NotReadyError)
    assert (error.message, error.hint, error.host) == (message, hint, "gpu2")


def test_a_stager_of_an_older_image_needs_a_deploy() -> None:
    """Its own words, which data_order.sh recognizes, would say only how to call a program that nobody called."""
    error = refusal("version", "usage: kit-data serve | kit-data order", "web", "gpu2")
    assert isinstance(error, NotReadyError)
    assert (error.message, error.hint) == ("the cluster's image has the stager of an older kit", "run: kit deploy")
    assert error.host == "gpu2"


def test_each_word_of_the_script_has_its_own_message() -> None:
    words = set(re.findall(r"refuse ([a-z-]+)", Path(scripts.__file__).with_name("data_order.sh").read_text()))
    # `engine` comes with the engine's own words, `folder` and `no-source` with the system's.
    plain = words - {"engine", "folder", "no-source"}
    assert plain > {"version", "no-node", "no-stager"}
    assert not [word for word in plain if "the stager cannot start" in refusal(word, "", "web", "gpu2").message]
