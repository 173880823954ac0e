"""The code of a run: the same bytes on every host, before any rank starts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes import git_server
from tests.fakes.repository import git, repository
from tests.fakes.sshd import Sshd
from tests.integration.rig import VM, Cluster, everywhere, until

# Each rank prints what it runs, where, and on which host.
TRAIN = """
import os, sys
print(os.environ["KIT_NODE"], {word!r}, os.getcwd() == os.environ["KIT_WORKDIR"], open("data/more.txt").read().strip())
"""
NAMES = ("gpu1", "gpu2", "gpu3", "gpu4")
# A submodule whose URL is a folder of this machine needs the last three.
GIT = {
    **{f"GIT_{who}_NAME": "you" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "you@example.com" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "train.py").write_text(TRAIN.format(word="first"))
    (code / "data" / "more.txt").write_text("more\n")
    return code


def latest(cluster: Cluster) -> str:
    """Return the id of the run that started last: a run writes its record once."""
    newest = 'cd "/opt/kit/$1/var/runs" && ls -t */record.json | head -n 1'
    return cluster.head.script(newest, cluster.name).strip().partition("/")[0]


def printed(text: str, word: str) -> list[str]:
    lines = sorted(line for line in text.splitlines() if line.split()[:1] in [[name] for name in NAMES])
    assert lines == sorted(f"{name} {word} True more" for name in NAMES for _ in range(2))
    return lines


def test_every_rank_runs_what_is_in_the_folder(cluster: Cluster, folder: Path) -> None:
    first = cluster.kit("run", "--np", "8", "--code", str(folder), "--", "python3", "train.py")
    assert first.returncode == 0, first.stderr
    printed(first.stdout, "first")
    assert "left this machine" in first.stderr

    # Nothing has changed, so nothing is sent.
    again = cluster.kit("run", "--np", "8", "--code", str(folder), "--", "python3", "train.py")
    printed(again.stdout, "first")
    assert "left this machine" not in again.stderr

    (folder / "train.py").write_text(TRAIN.format(word="second"))
    second = cluster.kit("run", "--np", "8", "--code", str(folder), "--", "python3", "train.py")
    printed(second.stdout, "second")

    run = latest(cluster)
    record = json.loads(cluster.head.text("cat", f"/opt/kit/{cluster.name}/var/runs/{run}/record.json"))
    digest = record["code"]["digest"]
    assert record["code"]["files"] == 2
    has = f"/opt/kit/{cluster.name}/code/manifests/{digest}"
    for name, sums in everywhere(cluster.hosts, lambda host: host.text("sha256sum", has)).items():
        assert sums.split()[0] == digest, name
    # Ranks read the store, and cannot write to it.
    for host in cluster.hosts:
        assert cluster.inside(host, "touch", f"/etc/kit/code/manifests/{digest}").returncode != 0


def test_an_edit_changes_no_run_that_lives_and_what_it_makes_stays(cluster: Cluster, folder: Path) -> None:
    wait = "until [ -e go ]; do sleep 0.1; done; cat data/more.txt; echo made >result.txt"
    with cluster.running("run", "--np", "1", "--code", str(folder), "--", "sh", "-c", wait) as run:
        cluster.wait_for_ranks(run, {name: [0] if name == "gpu1" else [] for name in NAMES})
        work = f"/opt/kit/{cluster.name}/var/runs/{latest(cluster)}/work"
        (folder / "data" / "more.txt").write_text("edited\n")
        other = cluster.kit("run", "--np", "1", "-H", "gpu2", "--code", str(folder), "--", "cat", "data/more.txt")
        assert other.stdout == "edited\n"
        cluster.head.text("touch", f"{work}/go")
        assert run.wait(120) == 0
        assert run.stdout is not None
        assert "more" in run.stdout.read()
    settled = 'while [ -e "$1/train.py" ]; do sleep 0.1; done; cd "$1" && find . -type f | sort'
    assert cluster.head.script(settled, work).split() == ["./go", "./result.txt"]


def test_every_host_keeps_what_its_ranks_made_and_nothing_else(cluster: Cluster, folder: Path) -> None:
    script = (
        "echo $OMPI_COMM_WORLD_RANK >>made-here; touch -r train.py /tmp/times-$$; echo 1 >>train.py; "
        "touch -r /tmp/times-$$ train.py; rm /tmp/times-$$"
    )
    done = cluster.kit("run", "--np", "4", "--npernode", "1", "--code", str(folder), "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    runs = f"/opt/kit/{cluster.name}/var/runs"
    run = latest(cluster)

    def settled(host: VM) -> bool:
        return host.ssh("test", "-e", f"{runs}/{run}/work.json").returncode != 0

    until("every host has settled the run", lambda: all(everywhere(cluster.hosts, settled).values()))
    left = everywhere(cluster.hosts, lambda host: host.script('cd "$1/work" && find . -type f | sort', f"{runs}/{run}"))
    assert left == dict.fromkeys(NAMES, "./made-here\n./train.py\n")
    # The next run does not see what this one made.
    again = cluster.kit("run", "--np", "8", "--code", str(folder), "--", "python3", "train.py")
    printed(again.stdout, "first")
    listed = cluster.kit("run", "--np", "4", "--npernode", "1", "--code", str(folder), "--", "ls", "-A")
    assert sorted(listed.stdout.split()) == sorted(["data", "train.py"] * 4)


def test_a_run_starts_again_with_its_code(cluster: Cluster, folder: Path) -> None:
    command = ("sh", "-c", 'cat more.txt; echo "$PWD" "$KIT_WORKDIR" "$A"')
    options = ("--np", "8", "--workdir", "data", "-x", "A=typed")
    first = cluster.kit("run", *options, "--code", str(folder), "--", *command)
    assert first.returncode == 0, first.stderr
    shown = json.loads(cluster.kit("runs", "show", "--json").stdout)
    assert (shown["np"], shown["exit_code"], shown["code"]["folder"]) == (8, 0, str(folder))
    assert (cluster.hosts[0].text("stat", "-c", "%F", shown["log"])).strip() == "regular file"
    (folder / "data" / "more.txt").write_text("less\n")
    second = cluster.kit("run", "--again", shown["id"])
    assert second.returncode == 0, second.stderr

    def lines(out: str) -> list[str]:
        # Each run has its own folder.
        return sorted(re.sub(r"/\d{8}-\d{6}-[0-9a-f]{4}/", "/ID/", line) for line in out.splitlines())

    work = "/var/lib/kit/runs/ID/work"
    assert lines(second.stdout) == lines(first.stdout) == sorted(["more", f"{work}/data {work} typed"] * 8)
    again = json.loads(cluster.kit("runs", "show", "--json").stdout)
    assert (again["id"] != shown["id"], again["code"], again["places"]) == (True, shown["code"], shown["places"])


def test_ranks_get_a_repository_as_git_has_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of a repository, then a clone with edits: modes, links, submodules, and what the record has."""
    for name, value in GIT.items():
        monkeypatch.setenv(name, value)
    repository(tmp_path / "lib", {"words.txt": "of the submodule\n"})
    script = '#!/bin/sh\necho "$KIT_NODE $(cat $1)"\n'
    origin = repository(tmp_path / "origin", {"start.sh": script, ".gitignore": "*.log\n"})
    (origin / "start.sh").chmod(0o755)
    (origin / "again").symlink_to("start.sh")
    git(origin, "submodule", "--quiet", "add", str(tmp_path / "lib"), "lib")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "all of it")
    commit = git(origin, "rev-parse", "HEAD")
    (origin / "start.sh").write_text("exit 1\n")

    run = ("run", "--np", "4", "--npernode", "1")
    source = f"git+{origin}@{commit}"
    fetched = cluster.kit(*run, "--code", source, "--", "sh", "-c", "./again lib/words.txt; readlink again; ls -A1")
    assert fetched.returncode == 0, fetched.stderr
    files = [".gitignore", ".gitmodules", "again", "lib", "start.sh"]
    expected = [f"{name} of the submodule" for name in NAMES] + ["start.sh"] * 4 + files * 4
    assert sorted(fetched.stdout.splitlines()) == sorted(expected)
    code = json.loads(cluster.kit("runs", "show", "--json").stdout)["code"]
    assert (code["commit"], code["folder"], code["dirty"]) == (commit, source, False)

    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--recurse-submodules", str(origin), str(clone))
    (clone / "lib" / "words.txt").write_text("of the edited submodule\n")
    (clone / "new.txt").write_text("not added yet\n")
    (clone / "made.log").write_text("ignored\n")
    edited = cluster.kit(*run, "--code", str(clone), "--", "sh", "-c", "./again lib/words.txt; ./again new.txt; ls -A1")
    assert edited.returncode == 0, edited.stderr
    files.append("new.txt")
    words = ("of the edited submodule", "not added yet")
    assert sorted(edited.stdout.splitlines()) == sorted([f"{name} {w}" for name in NAMES for w in words] + files * 4)
    shown = json.loads(cluster.kit("runs", "show", "--json").stdout)
    assert (shown["code"]["commit"], shown["code"]["dirty"]) == (commit, True)
    assert "+of the edited submodule" in shown["diff"]


def test_a_host_that_lost_the_code_starts_nothing_and_the_next_run_sends_it(cluster: Cluster, folder: Path) -> None:
    run = ("run", "--np", "8", "--code", str(folder), "--", "python3", "train.py")
    assert cluster.kit(*run).returncode == 0
    cluster.hosts[2].text("rm", "-rf", f"/opt/kit/{cluster.name}/code")
    lost = cluster.kit(*run)
    assert lost.returncode == 4, lost.stderr
    assert "gpu3" in lost.stderr
    assert lost.stdout == ""
    assert cluster.marked() == {}
    (folder / "train.py").write_text(TRAIN.format(word="second"))
    # The folder has other code by now, so the host gets that of the run from the head.
    again = cluster.kit("run", "--again", "latest")
    assert again.returncode == 0, again.stderr
    printed(again.stdout, "first")
    assert "left this machine" not in again.stderr
    cluster.hosts[2].text("rm", "-rf", f"/opt/kit/{cluster.name}/code")
    assert cluster.kit(*run[:3], "--again", "latest").returncode == 4
    next_one = cluster.kit(*run)
    assert next_one.returncode == 0, next_one.stderr
    printed(next_one.stdout, "second")


def test_a_folder_that_cannot_be_sent_starts_nothing(cluster: Cluster, folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    refused = cluster.kit("run", "--code", str(folder), "--", "true")
    assert refused.returncode == 2
    assert "out" in refused.stderr
    assert "→" in refused.stderr


def test_the_head_fetches_a_commit_with_your_login(cluster: Cluster, tmp_path: Path) -> None:
    """A private repository with a submodule: the head fetches both, and no disk of a VM gets the login."""
    lib = repository(tmp_path / "served" / "lib", {"more.txt": "more\n"})
    origin = repository(tmp_path / "served" / "net", {"train.py": TRAIN.format(word="first")})
    module = '[submodule "data"]\n\tpath = data\n\turl = ../../lib/.git\n'
    (origin / ".gitmodules").write_text(module)
    git(origin, "update-index", "--add", "--cacheinfo", f"160000,{git(lib, 'rev-parse', 'HEAD')},data")
    git(origin, "add", ".gitmodules")
    git(origin, "commit", "-qm", "data")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    gateway = f"{cluster.head.address.rpartition('.')[0]}.1"
    with git_server.serving(origin.parent, address=gateway) as address:
        run = ("run", "--np", "8", "--code", f"git+http://{git_server.LOGIN}@{address}/net/.git@main", "--")
        first = cluster.kit(*run, "python3", "train.py", **cache)
        assert first.returncode == 0, first.stderr
        printed(first.stdout, "first")
        commit = git(origin, "rev-parse", "HEAD")
        assert f"code: gpu1 fetched commit {commit[:10]} of http://{address}/net/.git in" in first.stderr
        assert "code: went from gpu1 to 3 hosts in" in first.stderr

        again = cluster.kit(*run, "python3", "train.py", **cache)
        printed(again.stdout, "first")
        assert "fetched" not in again.stderr

        (origin / "train.py").write_text(TRAIN.format(word="second"))
        git(origin, "commit", "-qm", "second", "train.py")
        second = cluster.kit(*run, "python3", "train.py", **cache)
        printed(second.stdout, "second")
        # A host that was replaced, and a head that was.
        for host in (cluster.hosts[3], cluster.head):
            host.text("rm", "-rf", f"/opt/kit/{cluster.name}/code")
            assert cluster.kit("run", "--again", "latest", **cache).returncode in (0, 4)
            lost = cluster.kit("run", "--again", "latest", **cache)
            assert lost.returncode == 0, lost.stderr
            printed(lost.stdout, "second")
    # This machine has no file of it.
    assert sorted(path.name for path in (tmp_path / "cache" / "kit" / "git").glob("*/*")) == ["known"]
    secret = git_server.LOGIN.partition(":")[2]
    look = 'grep -rlF "$1" /opt/kit /root /tmp /var/log /home 2>/dev/null || true'
    assert set(everywhere(cluster.hosts, lambda host: host.script(look, secret)).values()) == {""}
    assert secret not in "".join((first.stderr, again.stderr, second.stderr))


def test_the_head_fetches_over_ssh_with_keys_that_stay_here(cluster: Cluster, tmp_path: Path) -> None:
    files = {"train.py": TRAIN.format(word="first"), "data/more.txt": "more\n"}
    origin = repository(tmp_path / "served" / "net", files)
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    gateway = f"{cluster.head.address.rpartition('.')[0]}.1"
    with contextlib.closing(Sshd(tmp_path / "host", address=gateway)) as sshd:
        key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
        (tmp_path / "known").write_text(f"[{gateway}]:{sshd.port} {key}\n")
        # ssh finds a person's files by the list of users, and not by HOME.
        config = (f"Host {gateway}", f"IdentityFile {tmp_path}/mine", f"UserKnownHostsFile {tmp_path}/known")
        (tmp_path / "config").write_text("".join(f"{line}\n" for line in config))
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
        (tmp_path / "bin" / "ssh").chmod(0o755)
        path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SSH_AUTH_SOCK": ""}
        source = f"git+ssh://git@{gateway}:{sshd.port}{origin}@main"
        done = cluster.kit("run", "--np", "8", "--code", source, "--", "python3", "train.py", **path)
        assert done.returncode == 0, done.stderr
        printed(done.stdout, "first")
        assert re.search(r"code: gpu1 fetched commit .* in \d+\.\d s, with your SSH keys", done.stderr)
        # One connection to see which commit that is, and one of the head.
        assert (sshd.connections, sshd.extras) == (2, [])
    private = (tmp_path / "mine").read_text().splitlines()[1]
    look = 'grep -rlF "$1" /opt/kit /root /tmp 2>/dev/null || true'
    assert cluster.head.script(look, private) == ""


def test_this_machine_fetches_what_the_head_cannot_reach(cluster: Cluster, tmp_path: Path) -> None:
    files = {"train.py": TRAIN.format(word="first"), "data/more.txt": "more\n"}
    origin = repository(tmp_path / "served" / "net", files)
    with git_server.serving(origin.parent, public=True) as address:
        source = f"git+http://{address}/net/.git"
        done = cluster.kit("run", "--np", "8", "--code", source, "--", "python3", "train.py")
        assert done.returncode == 0, done.stderr
        printed(done.stdout, "first")
        assert f"code: gpu1 cannot fetch http://{address}/net/.git: " in done.stderr
        assert "this machine fetches it" in done.stderr
