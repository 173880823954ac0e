"""Attacks by files that you got from a stranger: hosts, kit.yaml, and what they name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.cli.complete import answer
from kit.cli.main import main
from kit.cli.verbs.table import VERBS
from kit.config.edit import tuned
from kit.config.hosts import parse_hosts
from kit.config.settings import load, load_hosts, load_spec
from kit.config.text import text_of
from kit.config.yaml import load_spec as spec_of
from kit.errors import InputError, InputErrors
from kit.flows.lab.lab import lab_down, lab_gpu, lab_link_rate, lab_status
from kit.plan.lab import lab_of
from kit.remote.lab import access
from kit.remote.ssh import kept
from kit.remote.tune.wire import read_text

SOON_S = 5.0
BOMBS = {
    "brackets": "[" * 30_000,
    "braces": "{" * 30_000,
    "dashes": "- " * 30_000,
    "questions": "? " * 30_000,
    "merge keys": "a0: &a0 {k: v}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)),
    "aliases": "a: &a [x]\n" + "".join(f"b{n}: [*a, *a]\n" for n in range(1000)),
    "a tag that constructs": "name: !!python/object/apply:os.system ['touch pwned']",
    "no time": "ssh_port: !!timestamp x",
    "no number": "slots: !!int x",
    "an option as user": "ssh: {user: -oProxyCommand=touch pwned}",
    "a newline in a user": 'ssh: {user: "a\\nProxyCommand touch pwned"}',
    "a NUL in a user": 'ssh: {user: "a\\0b"}',
    "a newline at the end of a user": 'ssh: {user: "root\\n"}',
    "a newline at the end of a name": 'name: "kit\\n"',
    "a path as name": "name: ../../etc",
    "a newline in a key": 'ssh: {key: "/k\\nProxyCommand=touch pwned"}',
    "a newline in known_hosts": 'ssh: {known_hosts: "/k\\nProxyCommand=touch pwned"}',
}
HOSTS = {
    "an option as address": "-oProxyCommand=touch_pwned\n",
    "an option as user": "-oProxyCommand=x@10.0.0.1\n",
    "an option as user=": "10.0.0.1 user=-oProxyCommand=x\n",
    "an option as name": "10.0.0.1 name=-oProxyCommand\n",
    "a path as name": "10.0.0.1 name=../../x\n",
    "an option as internal address": "10.0.0.1 internal=-x\n",
    "a NUL": "10.0.0.1 user=a\0b\n",
    "a vertical tab in a key": '10.0.0.1 key="/k\x0bProxyCommand=x"\n',
}


# What a data set must not get from a kit.yaml: keys of the VMs, the system of a node, other options of a mount.
DATA = {
    "kit's folder as a source": "a: {from: 'gpu1:/opt/./kit//lab/ssh', to: /d}",
    "the folder above it": "a: {from: 'gpu1:/opt/x/..', to: /d}",
    "all of a host": "a: {from: 'gpu1://', to: /d}",
    "kit's folder for copies": "a: {from: s3://b/x, to: /d, dir: //opt//kit/.data/other}",
    "the engine's sockets for copies": "a: {from: s3://b/x, to: /d, dir: /run/docker}",
    "a node's keys": "a: {from: s3://b/x, to: //etc/./kit}",
    "a node's programs": "a: {from: s3://b/x, to: /usr/bin/}",
    "a second mount point": "a: {from: s3://b/x, to: '/d:/etc'}",
    "a path as name": "../a: {from: s3://b/x, to: /d}",
    "an option as name": "-a: {from: s3://b/x, to: /d}",
    "the name of a service": "mpihead: {from: s3://b/x, to: /d}",
    "another server by the path": "a: {from: 'nfs://h/x,addr=10.6.6.6', to: /d, stage: none}",
    "another server by the options": "a: {from: nfs://h/x, to: /d, stage: none, options: 'hard,addr=10.6.6.6'}",
    "another device by the options": "a: {from: 'lustre://10.0.0.5@tcp/fs', to: /d, options: 'device=/dev/sda'}",
    "writing by the options": "a: {from: nfs://h/x, to: /d, stage: none, options: rw}",
    "a template of Swarm": "a: {from: 'nfs://h/{{.Node.ID}}', to: /d, stage: none}",
    "settings of an rclone remote": "a: {from: 'rclone:local,sftp_ssh=evil:/', to: /d}",
    "a backend of rclone without a remote": "a: {from: 'rclone::local:/etc', to: /d}",
    "a newline in a source": 'a: {from: "s3://b/x\\ny", to: /d}',
    "a newline in a folder": 'a: {from: s3://b/x, to: "/d\\ny"}',
    "a NUL in a source": 'a: {from: "s3://b/x\\0y", to: /d}',
}
VOLUMES = ("/opt/kit", "/opt/kit/", "/opt/kit/x/ssh", "/opt/./kit/x", "//opt//kit/x", "/data/../opt/kit/x")


def soon(work: Callable[[], object]) -> InputError:
    """Return the error of the work, which must take less than SOON_S of CPU time. A busy machine makes it no longer."""
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        work()
    assert time.process_time() - began < SOON_S
    return caught.value


@pytest.mark.parametrize("text", DATA.values(), ids=DATA.keys())
def test_a_data_set_reaches_nothing_but_its_source(text: str) -> None:
    error = soon(lambda: spec_of(f"data:\n  {text}\n", source="kit.yaml"))
    assert isinstance(error, InputErrors)
    assert all(problem.line == 2 and problem.hint for problem in error.problems)


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS.keys())
def test_no_kit_yaml_gets_past_the_loader(text: str) -> None:
    soon(lambda: spec_of(text, source="kit.yaml"))


@pytest.mark.parametrize(
    "text", ["name: " + "[" * 13 + "]" * 13, "[" * 30_000, "- " * 30_000], ids=lambda text: text[:9]
)
def test_what_is_nested_too_deeply_is_not_built(text: str) -> None:
    error = soon(lambda: spec_of(text, source="kit.yaml"))
    assert isinstance(error, InputErrors)
    assert "nested too deeply" in error.problems[0].message


@pytest.mark.parametrize("text", HOSTS.values(), ids=HOSTS.keys())
def test_no_hosts_file_gets_past_the_parser(text: str) -> None:
    soon(lambda: parse_hosts(text, source="hosts"))


@pytest.mark.parametrize("source", VOLUMES)
def test_no_volume_is_a_folder_of_kit(source: str) -> None:
    """A rank could read its cluster's private keys there, and write what root reads."""
    for text in (f"volumes: ['{source}:/x']", f"volumes: ['{source}:/x:ro']\norchestrator: swarm"):
        assert "kit's own folder" in soon(lambda text=text: spec_of(text, source="kit.yaml")).problems[0].message  # type: ignore[attr-defined, misc]
    assert spec_of("volumes: ['/opt/kitten:/x', '/opt:/vm/opt:ro']", source="kit.yaml").volumes


@pytest.fixture
def marked_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that every ssh and docker of this test writes when kit starts it."""
    mark, programs = tmp_path / "started", tmp_path / "bin"
    programs.mkdir()
    for name in ("ssh", "docker", "scp", "sftp"):
        program = programs / name
        program.write_text(f"#!/bin/sh\necho {name} >>{mark}\nexit 255\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    return mark


# Words that each verb needs before it reads its files.
OPERANDS = {
    "attach": ("20260101-000000-abcd",),
    "cp": ("x", "gpu1:/x"),
    "exec": ("--", "true"),
    "forward": ("gpu1", "8888"),
    "hosts add": ("gpu1",),
    "hosts cordon": ("gpu1", "--why", "its fan is loud"),
    "hosts drop": ("gpu1",),
    "hosts uncordon": ("gpu1",),
    "image push": (),
    "pull": ("20260101-000000-abcd",),
    "queue hold": ("20260101-000000-abcd",),
    "queue move": ("20260101-000000-abcd", "first"),
    "queue release": ("20260101-000000-abcd",),
    "queue rm": ("20260101-000000-abcd",),
    "runs rm": ("20260101-000000-abcd", "--yes"),
    "data rm": ("pictures", "--yes"),
    "data stop": ("pictures",),
    "runs show": ("20260101-000000-abcd",),
    "ssh": ("gpu1",),
    "tensorboard": ("20260101-000000-abcd",),
    "stop": ("20260101-000000-abcd",),
    "top": ("--once",),
    "wait": ("20260101-000000-abcd",),
    "down": ("--yes",),
    "local": ("--", "true"),
    "run": ("--np", "1", "--", "true"),
}
# Verbs that do not read kit.yaml, or only to show what is on this machine.
WITHOUT = {
    "init", "schema", "completion", "version", "predict", "bench report", "bench compare", "bench list",
    "lab up", "lab down", "lab status", "lab link-rate", "lab gpu", "lab fault",
}  # fmt: skip
VERBS_WITH_FILES = [verb.name for verb in VERBS if verb.name not in WITHOUT]


@pytest.mark.parametrize("verb", VERBS_WITH_FILES)
@pytest.mark.parametrize("bad", ["kit.yaml", "hosts"])
def test_no_verb_connects_before_both_files_are_valid(
    verb: str, bad: str, tmp_path: Path, marked_ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "hosts").write_text("gpu1\n" if bad != "hosts" else "gpu1 user=-oProxyCommand=x\n")
    (folder / "kit.yaml").write_text("name: x\nregistry: r.example.com/x\n" + ("bogus: 1\n" if bad != "hosts" else ""))
    words = ["-C", str(folder), *verb.split(), *OPERANDS.get(verb, ())]
    code = main(words, environ={**os.environ, "HOME": str(tmp_path)})
    shown = capsys.readouterr().err
    reads_no_hosts = verb == "local" or verb.startswith("image ")
    if bad != "hosts" or not reads_no_hosts:
        assert code == 2, shown
        assert "bogus" in shown if bad != "hosts" else "is not a login" in shown
    assert not marked_ssh.exists()


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"k{n}: 1\n" for n in range(20_000)),
        "".join(f"k{n}:\n" for n in range(20_000)),
        "name: x\n" * 20_000,
        "volumes:\n" + "- !x a\n" * 20_000,
        "volumes:\n" + "-\n" * 20_000,
        "image:\n  frameworks:\n" + "  - tensorflw\n" * 12_000,
    ],
    ids=["keys", "keys without a value", "second times", "tags", "empty items", "items"],
)
def test_thousands_of_problems_of_a_kit_yaml_end_after_50_messages(text: str) -> None:
    error = soon(lambda: spec_of(text, source="kit.yaml"))
    assert isinstance(error, InputErrors)
    assert len(error.problems) == 51
    lines = text.count("\n")
    shown = [problem.line or 0 for problem in error.problems]
    assert shown == sorted(shown)
    first, *_, more = error.problems[-1].message.split(" ", 1)
    assert "more problems from this line on" in more
    # Each problem is counted once: those of the lines before the first, such as volumes:, do not count.
    assert lines - 3 <= 50 + int(first) <= lines + 1


@pytest.mark.parametrize(
    "text",
    ["a b\n" * 20_000, "".join(f"h{n} bla=1\n" for n in range(20_000)), "x=1\n" * 20_000],
    ids=["second words", "unknown settings", "no address"],
)
def test_thousands_of_problems_of_a_hosts_file_end_after_50_messages(text: str) -> None:
    error = soon(lambda: parse_hosts(text, source="hosts"))
    assert isinstance(error, InputErrors)
    assert [problem.message for problem in error.problems][-1] == "19950 more problems from this line on"


@pytest.mark.parametrize(
    "text",
    [
        " /*" * 300_000,
        "a" + " " * 300_000 + "b= ",
        "gpu[1-10000]\n" * 5_000,
        "gpu[1-9999,9999]\n" * 50,
        "a" + "[1]" * 100_000,
        "a-" * 1_000_000,
        "a key=" + '"a"' * 300_000 + '"',
    ],
    ids=["comments", "blanks", "repeated ranges", "numbers twice", "brackets", "a long name", "quotes"],
)
def test_no_hosts_file_takes_minutes(text: str) -> None:
    soon(lambda: parse_hosts(text, source="hosts"))


def test_comments_are_cut_as_before() -> None:
    text = "/* a\nb */gpu1 /* c *//* d */ slots=2\nhttp/*x*/ \n/* never\nclosed"
    error = soon(lambda: parse_hosts(text, source="hosts"))
    assert isinstance(error, InputErrors)
    assert [(problem.line, problem.message[:20]) for problem in error.problems] == [
        (3, "'http/*x*/' is not a"),
        (4, "the comment that sta"),
    ]
    assert parse_hosts("/* a\nb */gpu1 /* c *//* d */ slots=2\n", source="hosts").hosts[0].line == 2


def folder_with(tmp_path: Path, name: str, kind: str) -> Path:
    """Return a folder in which the file is a named pipe, or a link to a device."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "hosts").write_text("gpu1\n")
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(kind)
    return folder


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "/dev/urandom", "/dev/tty"])
@pytest.mark.parametrize("name", ["hosts", "kit.yaml"])
def test_files_that_never_end_are_refused(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_of, "__kwdefaults__", {"patience_s": 0.2})
    folder = folder_with(tmp_path, name, kind)
    soon(lambda: load(folder, flags={}, environ={}))


def test_a_pipe_with_a_writer_is_a_file(tmp_path: Path) -> None:
    """`kit --hosts <(COMMAND)` works, and a command may think before it writes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("w") as file:
            time.sleep(0.2)
            file.write("gpu1\n")
            file.flush()
            time.sleep(0.2)
            file.write("gpu2\n")

    thread = threading.Thread(target=write)
    thread.start()
    assert load_hosts(tmp_path, hosts_flag=pipe, environ={}).names == ("gpu1", "gpu2")
    thread.join()
    assert load_spec(tmp_path, config_flag="/dev/null", flags={}, environ={}).name


def test_completion_waits_for_no_pipe(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "hosts", "pipe")
    began = time.monotonic()
    assert answer("bash", ["-C", str(folder), "ssh", ""], {"HOME": str(tmp_path)}) == ""
    # With the patience of other verbs, it would wait for 30 s.
    assert time.monotonic() - began < 25


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_kit_lab_and_kit_tune_read_no_device(kind: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "kit.yaml", kind)
    soon(lambda: access.read(folder / "kit.yaml"))
    soon(lambda: read_text(folder / "kit.yaml"))


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_known_hosts_must_be_a_file(kind: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "known_hosts", kind)
    (folder / "kit.yaml").write_text("ssh: {known_hosts: known_hosts}\n")
    assert "is not a file" in str(soon(lambda: load(folder, flags={}, environ={})))
    # The name of a kept connection follows from the file's bytes.
    assert kept._state(str(folder / "known_hosts")) == ""


@pytest.mark.parametrize("name", ["x/../../y", "lab\n", "la\nb", "-lab", "", "lab'", "a" * 41])
def test_a_lab_has_a_plain_name_in_every_verb(name: str, tmp_path: Path) -> None:
    """Before kit asks any engine."""
    from kit.events import Note  # noqa: PLC0415

    class Silent:
        def report(self, event: Note) -> None: ...

    for work in (
        lambda: lab_status(name, folder=tmp_path),
        lambda: lab_link_rate("none", name, folder=tmp_path),
        lambda: lab_gpu("gpu1", name, folder=tmp_path),
        lambda: lab_down(name, folder=tmp_path),
    ):
        assert "cannot name a lab" in str(soon(work))
    assert lab_of(f"# Made by kit for the lab '{name}'. `kit lab down` removes it. [0123456789ab]\n") is None


def test_a_long_line_is_read_at_once() -> None:
    """kit tune looks for its own lines with regular expressions."""
    began = time.process_time()
    tuned(" " * 200_000 + "\n" + "a" * 200_000)
    assert time.process_time() - began < SOON_S


def test_kit_itself_ends_soon_and_small(tmp_path: Path) -> None:
    """The whole program, with a limit on its memory: a link to a device as hosts file."""
    folder = folder_with(tmp_path, "hosts", "/dev/zero")
    limited = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); "
    program = (
        limited
        + f"sys.argv = ['kit', '-C', {str(folder)!r}, 'ps']; runpy.run_module('kit.cli.main', run_name='__main__')"
    )
    environ = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, "has more than 8 MiB" in done.stderr) == (2, True), done.stderr
