"""start.sh on an engine with userns-remap, which stores the image's files as those of another user; and odd homes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.node import PLACE, in_namespace, needs_mounts, prepared, program, stub

OWNER = """case "$*" in *'%u /') echo 300000 ;; *) exec $real "$@" ;; esac"""


@needs_mounts
@pytest.mark.parametrize(("lines", "strict"), [((), "yes"), ((stub("stat", OWNER),), "no")])
def test_sshd_checks_owners_unless_the_image_is_another_users(
    tmp_path: Path, lines: tuple[str, ...], strict: str
) -> None:
    done = in_namespace(
        *prepared(tmp_path), program("start.sh"), *lines, "sh /opt/kit/bin/start.sh", "cat /run/kit/sshd_config"
    )
    assert f"StrictModes {strict}\n" in done.stdout, done.stderr


@needs_mounts
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chown 300000 /etc/kit", "/etc/kit is not root's"),
        ("chown 300000 /etc/kit/ssh", "/etc/kit/ssh is not root's"),
        ("chmod 777 /etc", "/etc can be written by others"),
        ("export KIT_USER=300000:5", "belong to the user of the ranks, 300000"),
    ],
)
def test_then_the_node_checks_itself_what_sshd_would(tmp_path: Path, line: str, message: str) -> None:
    done = in_namespace(*prepared(tmp_path), program("start.sh"), stub("stat", OWNER), line, "sh /opt/kit/bin/start.sh")
    assert (done.returncode, message in done.stderr) == (78, True), done.stderr


@needs_mounts
def test_a_link_as_the_home_folder_of_ranks_is_named(tmp_path: Path) -> None:
    link = "mkdir -p /var/lib/kit/home; ln -s /nowhere /var/lib/kit/home/ranks"
    done = in_namespace(
        *prepared(tmp_path), program("start.sh"), "export KIT_USER=1000:1000", link, "sh /opt/kit/bin/start.sh"
    )
    assert done.returncode == 78
    assert "start.sh: /var/lib/kit/home/ranks is a link, so it cannot be" in done.stderr


@needs_mounts
@pytest.mark.parametrize(("user", "modes"), [("", "644 644"), ("1000:1000", "600 600")])
def test_earlier_runs_are_closed_to_ranks_of_another_user(tmp_path: Path, user: str, modes: str) -> None:
    run = "/var/lib/kit/runs/r1"
    done = in_namespace(
        *prepared(tmp_path), program("start.sh"), f"export KIT_USER={user}",
        f"mkdir -p {run}/output {run[:-2]}r2 {PLACE}/away; cd {run}",
        f"touch log record.json output/mine {PLACE}/away/log {PLACE}/file; chmod 644 log output/mine {PLACE}/away/log",
        f"ln -s {PLACE}/away {run[:-2]}r3; ln -s {PLACE}/file link",
        "sh /opt/kit/bin/start.sh", f"stat -c %a log record.json output/mine {PLACE}/away/log {PLACE}/file",
    )  # fmt: skip
    assert done.stdout.split() == [*modes.split(), "644", "644", "644"], done.stderr
