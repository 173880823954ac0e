"""The folder of a data set, made for real: who may see it, and what another user of the VM may not prepare."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.remote.scripts import script

SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]


def make(path: Path, shell: str = "sh") -> subprocess.CompletedProcess[str]:
    """Make the folder, with /opt/kit below its disk."""
    words = script("make_data_folder", str(path))[1:]
    argv = [shutil.which(shell) or shell, *(word.replace("/opt/kit", f"{path.parents[3]}/opt") for word in words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_made_once_and_other_users_do_not_see_it(tmp_path: Path, shell: str) -> None:
    files = tmp_path / "kit-data" / "lab" / "web" / "files"
    for _ in range(2):
        done = make(files, shell)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert files.is_dir()
        (files / "one").touch()
    assert (tmp_path / "kit-data").stat().st_mode & 0o777 == 0o700
    assert files.stat().st_mode & 0o777 == 0o755
    # kit finds the data by this list when kit.yaml does not name the disk any more.
    assert (tmp_path / "opt/.data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "opt/.data/lab/.dirs").read_text() == f"{tmp_path}/kit-data/lab\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_says_what_rclone_has_mounted(tmp_path: Path, shell: str) -> None:
    place = tmp_path / "lab/crawl/mount"
    place.mkdir(parents=True)
    line = (
        "40 30 0:{n} / {place} {mode},nosuid,nodev,relatime shared:{n} - {kind} {source} {mode},user_id=0,allow_other"
    )
    mounts = [
        line.format(n=61, place=place, mode="ro", kind="fuse.rclone", source=r"s3://bucket/old"),
        # It is the last one that a program sees.
        line.format(n=62, place=place, mode="rw", kind="fuse.rclone", source=r"s3://bucket/a\040new\134"),
        line.format(n=63, place=f"{place}-2", mode="ro", kind="fuse.rclone", source="s3://bucket/other"),
        line.format(n=64, place=tmp_path, mode="ro", kind="fuse.rclone", source="s3://bucket/above"),
    ]
    (tmp_path / "mountinfo").write_text("\n".join([*mounts, ""]))
    words = script("data_state", "lab", str(place.parent))[1:]
    for path in ("/proc/self/mountinfo", "/opt/kit", "/dev/shm"):
        words = [word.replace(path, f"{tmp_path}/{path.rpartition('/')[2]}") for word in words]
    argv = [shutil.which(shell) or shell, *(word.replace("command -v docker", "false") for word in words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    now, _, rest = done.stdout.partition("\n")
    assert re.fullmatch(r"now \d{10}", now)
    assert rest == f"set {place.parent}\nmounted rw s3://bucket/a\\040new\\134\nend\n"


def test_the_usual_places_are_on_no_list(tmp_path: Path) -> None:
    words = script("make_data_folder", "/opt/kit/.data/lab/web/files")
    done = subprocess.run([word.replace("/opt/kit", f"{tmp_path}/opt") for word in words], check=False, timeout=30)
    assert done.returncode == 0
    assert [path.name for path in (tmp_path / "opt/.data/lab").iterdir()] == ["web"]


def test_a_missing_disk_is_not_made(tmp_path: Path) -> None:
    done = make(tmp_path / "nvme" / "kit-data" / "lab" / "web" / "files")
    assert done.returncode == 1
    assert done.stderr == f"there is no folder {tmp_path}/nvme on this host\n"
    assert not (tmp_path / "nvme").exists()


@pytest.mark.parametrize("at", ["kit-data", "kit-data/lab", "kit-data/lab/web", "kit-data/lab/web/files"])
def test_a_link_is_refused(tmp_path: Path, at: str) -> None:
    link = tmp_path / "disk" / at
    link.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    link.symlink_to(tmp_path / "elsewhere")
    done = make(tmp_path / "disk" / "kit-data" / "lab" / "web" / "files")
    assert done.returncode == 1
    assert done.stderr == f"{link} is a link, or another user's: remove it first\n"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kit-data").touch()
    done = make(tmp_path / "kit-data" / "lab" / "web" / "files")
    assert done.returncode == 1
    assert "File exists" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kit-data").mkdir()
    os.chown(tmp_path / "kit-data", 12345, 12345)
    done = make(tmp_path / "kit-data" / "lab" / "web" / "files")
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}/kit-data is a link, or another user's: remove it first\n"
    assert list((tmp_path / "kit-data").iterdir()) == []


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Return a folder of the VM to which another user's link in /dev/shm leads, as if its folders were data sets."""
    victim = tmp_path / "victim"
    (victim / "web" / "coming").mkdir(parents=True)
    (victim / "web" / "coming" / "mail").touch()
    (victim / "sshd").mkdir()
    (tmp_path / "shm" / "kit-data").mkdir(parents=True)
    (tmp_path / "shm" / "kit-data" / "lab").symlink_to(victim)
    return victim


def on_vm(folder: Path, shell: str, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script on a VM with the /dev/shm and the /opt/kit of this folder, and without Docker."""
    words = script(name, *arguments)[1:]
    for path, here in (("/dev/shm", "shm"), ("/opt/kit", "opt")):
        words = [word.replace(path, f"{folder}/{here}") for word in words]
    argv = [shutil.which(shell) or shell, *(word.replace("command -v docker", "false") for word in words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_link_above_the_folder_of_a_data_set_leads_nowhere(tmp_path: Path, planted: Path, shell: str) -> None:
    before = sorted(planted.rglob("*"))
    folder = "/dev/shm/kit-data/lab/web"
    done = on_vm(tmp_path, shell, "data_state", "lab")
    assert "set" not in done.stdout
    done = on_vm(tmp_path, shell, "data_state", "lab", folder)
    assert done.stdout.splitlines()[1:] == [f"set {tmp_path}/shm/kit-data/lab/web", "end"]
    done = on_vm(tmp_path, shell, "data_remove", "lab", "web", folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "lab/web, or a folder above or in it, is a link, or another user's; nothing was removed\n" in done.stderr
    for data in ((), (folder,)):
        done = on_vm(tmp_path, shell, "remove", "lab", "/opt/kit/lab", "all", "--", *data)
        assert (done.returncode, done.stdout) == (0, "")
    assert sorted(planted.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_folder_above_of_another_user_leads_nowhere(tmp_path: Path) -> None:
    data = tmp_path / "shm" / "kit-data" / "lab" / "web"
    (data / "coming").mkdir(parents=True)
    (data / "coming" / "mail").touch()
    os.chown(tmp_path / "shm" / "kit-data", 12345, 12345)
    assert "set" not in on_vm(tmp_path, "sh", "data_state", "lab").stdout
    done = on_vm(tmp_path, "sh", "data_remove", "lab", "web", "/dev/shm/kit-data/lab/web")
    assert (done.returncode, (data / "coming" / "mail").exists()) == (1, True)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_link_that_comes_during_a_removal_leads_nowhere(
    tmp_path: Path, planted: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a dir: of another user, who moves kit's folders away while kit waits for the lock or the engine."""
    data = tmp_path / "dir" / "kit-data" / "lab" / "web"
    for name in ("coming", "files"):
        (data / name).mkdir(parents=True)
        (data / name / "part").touch()
    (planted.parent / "theirs").mkdir()
    (planted.parent / "theirs" / "lab").symlink_to(planted)
    (tmp_path / "bin").mkdir()
    flock = tmp_path / "bin" / "flock"
    flock.write_text(f"#!/bin/sh\ncd {tmp_path} && mv dir/kit-data moved && mv theirs dir/kit-data\n")
    flock.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    before = sorted(planted.rglob("*"))
    done = on_vm(tmp_path, shell, "data_remove", "lab", "web", str(data))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"removed {data}\n", "")
    assert sorted(planted.rglob("*")) == before
    # Its own are gone, wherever they are now.
    assert not (tmp_path / "moved" / "lab").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_removal_goes_through_a_link_of_root_to_the_disk(tmp_path: Path, shell: str) -> None:
    data = tmp_path / "disk" / "kit-data" / "lab" / "web"
    (data / "files").mkdir(parents=True)
    (data / "files" / "part").touch()
    (tmp_path / "dir").symlink_to("disk")
    folder = f"{tmp_path}/dir/kit-data/lab/web"
    done = on_vm(tmp_path, shell, "data_remove", "lab", "web", folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"removed {folder}\n", "")
    assert list((tmp_path / "disk").iterdir()) == []


def test_the_umask_of_the_login_does_not_open_kits_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        done = on_vm(tmp_path, "sh", "make_data_folder", "/opt/kit/.data/lab/web/files")
    finally:
        os.umask(before)
    assert done.returncode == 0
    assert (tmp_path / "opt").stat().st_mode & 0o777 == 0o700
