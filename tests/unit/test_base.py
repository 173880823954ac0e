"""scripts/base: a base is pulled by the digest of the lock, and one that is made here says what it was made from."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from kit.remote.engine.packages import MADE_FROM

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "ab" * 32
STATUS = b"Package: bash\nArchitecture: amd64\nVersion: 5.2-1\nDescription: a shell\n\nPackage: tar\nVersion: 1.34\n"
FACTS = b"Package: bash\nArchitecture: amd64\nVersion: 5.2-1\nPackage: tar\nVersion: 1.34\n"
DOCKER = """\
#!/bin/sh
echo "$*" >>"$CALLS"
case $1 in
  image) grep -qxF "$3" "$IMAGES" ;;
  pull) [ -n "$REGISTRY" ] ;;
  import) cat >/dev/null ;;
esac
"""


class Machine:
    """A clone with a lock, and an engine that has `images`."""

    def __init__(self, folder: Path, lock: str) -> None:
        self.folder = folder
        (folder / "images").mkdir()
        (folder / "images" / "bases.lock").write_text(lock)
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "base", folder / "scripts")
        self.bin = folder / "bin"
        self.bin.mkdir()
        archive = folder / "base.tar"
        with tarfile.open(archive, "w") as tar:
            entry = tarfile.TarInfo("./var/lib/dpkg/status")
            entry.size = len(STATUS)
            tar.addfile(entry, io.BytesIO(STATUS))
        programs = {
            "docker": DOCKER,
            "mmdebstrap": f'#!/bin/sh\nfor word; do echo "$word" >>"$CALLS.made"; done\ncat {archive}\n',
            "apt-get": f'#!/bin/sh\nif [ "$1" = indextargets ]; then cat {folder}/archives 2>/dev/null; fi\n',
            "id": "#!/bin/sh\necho 0\n",
        }
        for name, text in programs.items():
            path = self.bin / name
            path.write_text(text)
            path.chmod(0o755)

    def base(
        self, *words: str, images: tuple[str, ...] = (), registry: bool = False, code: int = 0
    ) -> tuple[list[str], str]:
        """Return what the program asked the engine, and what it said."""
        calls, names = self.folder / "calls", self.folder / "names"
        calls.write_text("")
        names.write_text("".join(f"{name}\n" for name in images))
        environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "IMAGES": str(names),
            "REGISTRY": "yes" if registry else "",
        }
        done = subprocess.run(
            ["bash", self.folder / "scripts" / "base", *words],
            env=environment, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return calls.read_text().splitlines(), done.stderr


@pytest.fixture
def locked(tmp_path: Path) -> Machine:
    return Machine(tmp_path, f"# a comment\ndebian:bookworm-slim {DIGEST}\n")


@pytest.fixture
def unlocked(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "# a comment\n")


def test_a_locked_base_is_pulled_by_its_digest(locked: Machine) -> None:
    wanted = f"debian:bookworm-slim@{DIGEST}"
    # The engine has an image of that tag, which may be another one.
    calls, _ = locked.base("bookworm", images=("debian:bookworm-slim",), registry=True)
    assert calls == [f"image inspect {wanted}", f"pull --quiet {wanted}"]
    assert locked.base("bookworm", images=(wanted,))[0] == [f"image inspect {wanted}"]


def test_a_base_that_is_made_here_names_its_packages(unlocked: Machine) -> None:
    calls, _ = unlocked.base("bookworm")
    label = f"LABEL {MADE_FROM}=sha256:{hashlib.sha256(FACTS).hexdigest()}"
    assert calls[:2] == ["image inspect debian:bookworm-slim", "pull --quiet debian:bookworm-slim"]
    assert calls[2] == f'import --change CMD ["bash"] --change {label} - debian:bookworm-slim'


def test_without_a_registry_a_locked_base_is_made_with_a_warning(locked: Machine) -> None:
    calls, said = locked.base("bookworm")
    assert calls[-1].startswith("import ")
    assert calls[-1].endswith(" debian:bookworm-slim")
    assert "KIT_UNLOCKED_BASES=1" in said
    # It does not make it twice.
    assert not [call for call in locked.base("bookworm", images=("debian:bookworm-slim",))[0] if "import" in call]


def test_the_lock_can_be_ignored(locked: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_UNLOCKED_BASES", "1")
    assert locked.base("bookworm", images=("debian:bookworm-slim",))[0] == ["image inspect debian:bookworm-slim"]


def test_an_unlocked_base_needs_only_its_tag(unlocked: Machine) -> None:
    assert unlocked.base("bookworm", images=("debian:bookworm-slim",))[0] == ["image inspect debian:bookworm-slim"]


def test_ubuntu_is_pulled_under_its_own_name(unlocked: Machine) -> None:
    calls, _ = unlocked.base("noble", registry=True)
    assert calls == ["image inspect ubuntu:24.04", "pull --quiet ubuntu:24.04"]


@pytest.mark.parametrize("of_apt", [True, False])
def test_ubuntu_is_made_from_the_mirror_that_this_machine_has(
    unlocked: Machine, monkeypatch: pytest.MonkeyPatch, *, of_apt: bool
) -> None:
    keyring = unlocked.folder / "keyring.gpg"
    keyring.touch()
    monkeypatch.setenv("KIT_UBUNTU_KEYRING", str(keyring))
    if of_apt:
        (unlocked.folder / "archives").write_text("http://mirror.example/ubuntu/\nhttp://other.example/ubuntu/\n")
    else:
        monkeypatch.setenv("KIT_UBUNTU_MIRROR", "http://mirror.example/ubuntu/")
    calls, said = unlocked.base("noble")
    assert calls[-1].startswith("import ")
    assert calls[-1].endswith(" ubuntu:24.04")
    assert "from Ubuntu's packages" in said
    sources = (unlocked.folder / "calls.made").read_text().splitlines()[-3:]
    start = f"deb [signed-by={keyring}] http://mirror.example/ubuntu/"
    assert sources == [f"{start} {suite} main universe" for suite in ("noble", "noble-updates", "noble-security")]


def test_without_a_mirror_of_ubuntu_nothing_is_made(unlocked: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KIT_UBUNTU_MIRROR", raising=False)
    calls, said = unlocked.base("noble", code=1)
    assert calls == ["image inspect ubuntu:24.04", "pull --quiet ubuntu:24.04"]
    assert "KIT_UBUNTU_MIRROR=URL" in said
    assert not (unlocked.folder / "calls.made").exists()
