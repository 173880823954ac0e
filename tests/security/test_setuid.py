"""A rank and a user of the VM together: a program that a rank leaves there must not make its caller root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.remote.scripts import script

NOBODY = 65534


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that everybody can enter, in place of /opt."""
    folder = Path(tempfile.mkdtemp(prefix="kit-setuid-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: run the tests as root")
@pytest.mark.parametrize("was_there", [False, True], ids=["new", "open before"])
def test_nobody_reaches_a_program_that_a_rank_left(root: Path, was_there: bool) -> None:
    cluster = root / "kit" / "lab"
    if was_there:
        # As the lock of the cluster, or the administrator, has made it.
        cluster.parent.mkdir()
        cluster.parent.chmod(0o755)
    subprocess.run(script("write_file", str(cluster), "compose.yaml", "600", "1"), input=b"x", check=True)
    var = cluster / "var"
    var.mkdir()
    # Root in the container owns what it mounts: it opens the folder, and makes a program of root that all can start.
    var.chmod(0o777)
    program = var / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    assert subprocess.run([program, "-u"], capture_output=True, text=True, check=True).stdout == "0\n"
    with pytest.raises(PermissionError):
        subprocess.run([program, "-u"], user=NOBODY, group=NOBODY, extra_groups=[], check=True)
    # Also not by a file of the cluster that all can read, or a link to it.
    link = root / "link"
    link.symlink_to(program)
    with pytest.raises(PermissionError):
        subprocess.run([link, "-u"], user=NOBODY, group=NOBODY, extra_groups=[], check=True)
