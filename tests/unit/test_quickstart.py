"""scripts/quickstart with programs that only note how it calls them: your settings stay out, and the lab goes."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "quickstart"
# `run` trains until somebody ends it, if a test waits for that.
KIT = """#!/bin/bash
shift 2
echo "$* ${!KIT_*}" >>"$LOG"
echo "${KIT_IMAGE_FLAVOUR:-none}" >>"$LOG.flavours"
if [ "$1" = run ] && [ -p "$LOG.training" ]; then echo >"$LOG.training"; exec sleep 60; fi
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "scripts").mkdir(parents=True)
    (folder / ".venv/bin").mkdir(parents=True)
    shutil.copy(SCRIPT, folder / "scripts")
    for name in ("scripts/venv", "scripts/engine", "scripts/base", ".venv/bin/kit"):
        (folder / name).write_text(KIT if name.endswith("kit") else "#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def environment(log: Path) -> Mapping[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KIT_")}
    return {**clean, "LOG": str(log)}


def test_your_settings_do_not_lead_it_to_your_vms(clone: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    yours = {"KIT_HOSTS": "/home/me/hosts", "KIT_CONFIG": "/home/me/kit.yaml", "KIT_SSH_USER": "me", "KIT_PYTHON": "p"}
    done = subprocess.run(
        [clone / "scripts/quickstart", "--hosts", "2"],
        env={**environment(log), **yours},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines() == [
        "image build --yes KIT_IMAGE_FLAVOUR KIT_PYTHON",
        "lab up --yes --name quickstart --hosts 2 --slots 2 KIT_IMAGE_FLAVOUR KIT_PYTHON",
        "deploy KIT_IMAGE_FLAVOUR KIT_PYTHON",
        "run --np 4 --npernode 2 KIT_IMAGE_FLAVOUR KIT_PYTHON",
        "lab down --name quickstart KIT_IMAGE_FLAVOUR KIT_PYTHON",
    ]


@pytest.mark.parametrize(
    ("yours", "flavour"),
    [
        ({}, "cpu"),
        ({"KIT_IMAGE_FLAVOUR": ""}, "cpu"),
        ({"KIT_IMAGE_FLAVOUR": "gpu"}, "gpu"),
        ({"KIT_IMAGE_FRAMEWORKS": "pytorch"}, "none"),
    ],
)
def test_the_image_is_for_hosts_without_gpus_unless_you_name_another(
    clone: Path, tmp_path: Path, yours: Mapping[str, str], flavour: str
) -> None:
    log = tmp_path / "log"
    subprocess.run([clone / "scripts/quickstart"], env={**environment(log), **yours}, capture_output=True, check=True)
    assert set(Path(f"{log}.flavours").read_text().split()) == {flavour}


def test_the_lab_goes_when_the_terminal_is_closed(clone: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(f"{log}.training")
    terminal, its_end = pty.openpty()
    script = subprocess.Popen(
        [clone / "scripts/quickstart"],
        env=environment(log),
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        start_new_session=True,
    )
    os.close(its_end)
    # Opening it waits for the training.
    Path(f"{log}.training").read_text()
    os.close(terminal)
    # As the shell does that ran it.
    os.killpg(script.pid, signal.SIGHUP)
    script.wait(timeout=60)
    assert log.read_text().splitlines()[-1].strip() == "lab down --name quickstart KIT_IMAGE_FLAVOUR"
