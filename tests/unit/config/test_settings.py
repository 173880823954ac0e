"""Precedence, paths, and the files that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.config.fields import settings
from kit.config.settings import load, load_hosts, load_spec, passed_over, variables
from kit.errors import InputError, InputErrors
from kit.model.spec import ClusterSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hosts").write_text("n1\nn2 key=keys/a\nn3 key=~/b\nn4 key=/c\n")
    return tmp_path


def test_flags_beat_environment_beats_file_beats_defaults(folder: Path) -> None:
    def network(flags: dict[str, object], environ: dict[str, str]) -> str:
        return load(folder, flags=flags, environ=environ).spec.network

    assert network({}, {}) == "auto"
    (folder / "kit.yaml").write_text("network: 10.1.0.0/16\nssh:\n  user: filed\n  port: 2222\n")
    assert network({}, {}) == "10.1.0.0/16"
    assert network({"network": None}, {"KIT_NETWORK": ""}) == "10.1.0.0/16"
    assert network({"network": None}, {"KIT_NETWORK": "10.2.0.0/16"}) == "10.2.0.0/16"
    assert network({"network": "10.3.0.0/16"}, {"KIT_NETWORK": "10.2.0.0/16"}) == "10.3.0.0/16"
    ssh = load(folder, flags={"ssh.user": "flagged"}, environ={"KIT_SSH_USER": "set"}).spec.ssh
    assert (ssh.user, ssh.port) == ("flagged", 2222)  # the rest of a section stays the file's


@pytest.mark.parametrize(
    ("flags", "environ", "beaten"),
    [
        ({}, {}, set()),
        ({"ssh.user": "me"}, {}, {"user"}),
        ({"ssh.port": 2200}, {}, {"port"}),
        ({"ssh.key": "/k"}, {}, {"key"}),
        ({"ssh.user": "me", "ssh.key": "/k"}, {"KIT_SSH_VM_PORT": "2200"}, {"user", "port", "key"}),
        ({}, {"KIT_SSH_USER": "me"}, {"user"}),
        ({}, {"KIT_SSH_USER": ""}, set()),
        ({"ssh.user": None}, {}, set()),
        # What is not the login's stays the line's.
        ({"slots": 8, "network": "10.0.0.0/8"}, {"KIT_NAME": "x"}, set()),
    ],
)
def test_flags_and_variables_beat_a_line_of_the_hosts_file(
    folder: Path, flags: dict[str, object], environ: dict[str, str], beaten: set[str]
) -> None:
    (folder / "hosts").write_text("n1\nn2 user=u port=2222 key=/a slots=3 internal=10.0.0.2\n")
    (folder / "kit.yaml").write_text("ssh: {user: filed, port: 22, key: /f}\n")
    first, second = load(folder, flags=flags, environ=environ).inventory.hosts
    assert (first.user, first.port, first.key) == (None, None, None)
    line = {"user": "u", "port": 2222, "key": "/a"}
    assert {name: getattr(second, name) for name in line} == {n: None if n in beaten else v for n, v in line.items()}
    assert (second.slots, second.internal) == (3, "10.0.0.2")


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("KIT_NAME", "lab", "name", "lab"),
        ("KIT_SSH_PORT", "44", "ssh_port", 44),
        ("KIT_SSH_VM_PORT", "2222", "ssh.port", 2222),
        ("KIT_SSH_USER", "ubuntu", "ssh.user", "ubuntu"),
        ("KIT_SLOTS", "4", "slots", 4),
        ("KIT_SLOTS", "auto", "slots", "auto"),
        ("KIT_HEAD_RUNS_RANKS", "no", "head_runs_ranks", False),
        ("KIT_MPI_YIELD_WHEN_IDLE", "true", "mpi.yield_when_idle", True),
        ("KIT_SHM_SIZE", "8gb", "shm_size", "8gb"),
        ("KIT_COMMAND", "python3 'a b.py'", "command", ("python3", "a b.py")),
        ("KIT_IMAGE_FLAVOUR", "cuda-mxnet", "image.flavour", "cuda-mxnet"),
    ],
)
def test_a_variable_sets_its_field(folder: Path, variable: str, text: str, path: str, value: object) -> None:
    assert variables()[variable] == path
    value_read: object = load_spec(folder, flags={}, environ={variable: text})
    for part in path.split("."):
        value_read = getattr(value_read, part)
    assert value_read == value


def test_no_two_fields_share_a_variable_or_a_flag() -> None:
    named = [s for s in settings().values() if not s.is_section]
    # No verb sets hugepages: kit setup --hugepages means setup.hugepages.
    assert len({s.flag for s in named if s.path != "hugepages"}) == len(named) - 1
    assert len(variables()) == sum(s.variable is not None for s in named)


def test_a_bad_variable_or_flag_is_named(folder: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        load_spec(folder, flags={"ssh.port": "x", "image.flavour": "cud"}, environ={"KIT_NETWORK": "10.0.0.0/99"})
    assert {(str(p), p.hint) for p in caught.value.problems} == {
        (
            "--ssh-vm-port: 'x' is not a whole number from 1 to 65535",
            "write a whole number from 1 to 65535, such as --ssh-vm-port 22",
        ),
        (
            "--image-flavour: 'cud' is not auto, gpu, cuda, cpu, pytorch, cuda-tensorflow, cuda-mxnet, cuda-pytorch or "
            "ssh-layer",
            "did you mean cuda, cuda-tensorflow or cuda-mxnet?",
        ),
        ("KIT_NETWORK: '10.0.0.0/99' is not an IPv4 network", "write, for example: KIT_NETWORK=10.0.0.0/16"),
    }


@pytest.mark.parametrize("variable", ["KIT_SETUP_PROXY", "KIT_REGISTRY"])
@pytest.mark.parametrize("login", ["ann:s3cret@", "https://ann:s3cret@", "https://ann:s3cret%@"])
def test_a_password_in_a_variable_is_never_printed(folder: Path, variable: str, login: str) -> None:
    wrong = f"{login}'proxy"
    with pytest.raises(InputErrors) as caught:
        load_spec(folder, flags={}, environ={variable: wrong})
    (problem,) = caught.value.problems
    assert problem.message.startswith(f"{variable}: ")
    assert "s3cret" not in f"{problem.message} {problem.hint}"


def test_a_section_that_a_flag_spoils_names_the_flag(folder: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        load_spec(folder, flags={"image.flavour": "ssh-layer"}, environ={})
    assert str(caught.value).startswith("--image-flavour: flavour ssh-layer needs a base")


def test_an_unknown_flag_gets_a_near_one(folder: Path) -> None:
    with pytest.raises(InputError, match=r"there is no setting 'ssh\.usr'") as caught:
        load_spec(folder, flags={"ssh.usr": "x"}, environ={})
    assert caught.value.hint == "did you mean ssh.user?"


def test_paths_in_files_begin_in_the_folder_of_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    (folder / "kit.yaml").write_text(
        "ssh: {key: id, known_hosts: ~/known}\nvolumes: [./data:/data:ro, ../up:/up, /abs:/abs, named:/named]\n"
    )
    assert [h.key for h in load_hosts(folder, environ={}).hosts] == [None, str(folder / "keys/a"), "/home/me/b", "/c"]
    spec = load_spec(folder, flags={}, environ={})
    assert spec.ssh.key == str(folder / "id")
    assert spec.ssh.known_hosts == "/home/me/known"
    assert spec.volumes == (
        f"{folder}/data:/data:ro",
        f"{folder.parent}/up:/up",
        "/abs:/abs",
        "named:/named",
    )
    typed = load_spec(folder, flags={"ssh.key": "typed"}, environ={"KIT_SSH_KNOWN_HOSTS": "~/set"})
    assert typed.ssh.key == str(here / "typed")
    assert typed.ssh.known_hosts == "/home/me/set"


@pytest.mark.parametrize(
    ("text", "given", "code"),
    [
        ("", "", None),
        ("code: .\n", "", "{folder}"),
        ("code: src/app\n", "", "{folder}/src/app"),
        ("code: ../up\n", "", "{folder.parent}/up"),
        ("code: ~/app\n", "", "{home}/app"),
        ("code: ./none\n", "", "{folder}/none"),
        ("code: none\n", "", None),
        ("code:\n", "", None),
        ("code: .\n", "sub", "{here}/sub"),
        ("code: .\n", "none", None),
        ("", ".", "{here}"),
        ("code: .\n", "|sub", "{here}/sub"),
        ("code: .\n", "|none", None),
        ("code: .\n", "/abs|none", "/abs"),
    ],
)
def test_code_is_a_folder_or_none(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    given: str,
    code: str | None,
) -> None:
    here = folder / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (folder / "kit.yaml").write_text(text)
    flag, _, variable = given.partition("|")
    spec = load_spec(folder, flags={"code": flag or None}, environ={"KIT_CODE": variable})
    assert spec.code_source == (code and code.format(folder=folder, here=here, home=Path.home()))


def test_code_from_a_repository(folder: Path) -> None:
    url = "git+https://me:token@example.com/code.git@v1"
    (folder / "kit.yaml").write_text(f"name: a\ncode: {url}\n")
    assert load_spec(folder, flags={}, environ={}).code_source == url
    assert load_spec(folder, flags={"code": "git+/srv/code"}, environ={}).code_source == "git+/srv/code"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("https://me:token@example.com/code.git", "this looks like a URL"),
        ("ssh://a:token@b/c", "this looks like a URL"),
        ("git+https://me:token@example.com", "this looks like no repository"),
        ("git+https://me:token@example.com/a@", "this has an @ with nothing before or after it"),
        ("git+ext::sh -c token", "this looks like no repository"),
        ("git+--upload-pack=token:x", "this looks like no repository"),
        ("git+../token", "this looks like no repository"),
    ],
)
def test_code_from_what_is_no_repository(folder: Path, value: str, message: str) -> None:
    """And no message has a password."""
    (folder / "kit.yaml").write_text(f"name: a\ncode: {value}\n")
    for flags in ({}, {"code": value}):
        with pytest.raises(InputError, match=rf"code: {message}") as caught:
            load_spec(folder, flags=flags, environ={})
        assert "git+https://HOST/PATH@BRANCH" in (caught.value.hint or "")
        assert "token" not in f"{caught.value} {caught.value.hint}"


def test_vms_do_not_have_the_folders_of_this_machine(folder: Path) -> None:
    """kit local has them: it uses load_spec."""
    (folder / "kit.yaml").write_text("name: 7!\nvolumes:\n- /data:/data\n- ./code:/code:ro\n- .:/here\n- ../up:/up\n")
    with pytest.raises(InputErrors) as caught:
        load(folder, flags={}, environ={})
    name, *volumes = caught.value.problems
    assert str(name).startswith(f"{folder}/kit.yaml:1: name:")
    assert [problem.line for problem in volumes] == [4, 5, 6]
    assert "volumes, item 2: './code:/code:ro' starts at a folder of this machine" in volumes[0].message
    assert volumes[0].hint
    assert "such as /data:/code:ro; for your own code, write code: ." in volumes[0].hint
    assert caught.value.exit_code == 2
    (folder / "kit.yaml").write_text("volumes: [/data:/data, named:/named]\n")
    assert load(folder, flags={}, environ={}).spec.volumes == ("/data:/data", "named:/named")
    (folder / "kit.yaml").write_text("volumes: [.:/here]\n")
    assert load_spec(folder, flags={}, environ={}).volumes == (f"{folder}:/here",)


def test_flags_and_variables_name_other_files(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "vms").write_text("m1\n")
    (other / "c.yaml").write_text("name: other\n")
    (other / "vms2").write_text("m2\n")
    environ = {"KIT_HOSTS": str(other / "vms"), "KIT_CONFIG": str(other / "c.yaml")}
    loaded = load(folder, flags={}, environ=environ)
    assert (loaded.inventory.names, loaded.spec.name, loaded.folder) == (("m1",), "other", folder)
    assert load(folder, hosts_flag=other / "vms2", flags={}, environ=environ).inventory.names == ("m2",)


def test_no_hosts_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no hosts file") as caught:
        load(tmp_path, flags={}, environ={})
    assert "`kit init`" in (caught.value.hint or "")
    assert "`kit lab up`" in (caught.value.hint or "")
    assert load_spec(tmp_path, flags={}, environ={}) == ClusterSpec()


def test_hosts_that_are_given_as_a_file_are_named_as_hosts(tmp_path: Path) -> None:
    def hint(flag: str) -> str:
        with pytest.raises(InputError, match="there is no hosts file") as caught:
            load(tmp_path, hosts_flag=flag, flags={}, environ={})
        return caught.value.hint or ""

    assert "`kit init`" in hint("gpu1")
    (tmp_path / "hosts").write_text("gpu1\ngpu2\n")
    assert hint("gpu[1-2]") == "--hosts names a file; to use only some hosts, where the verb can: -H gpu[1-2]"
    assert "`kit init`" in hint("gpu3")
    (tmp_path / "hosts").write_text("gpu1 slots=no\n")
    assert "`kit init`" in hint("gpu1")


@pytest.mark.parametrize("name", ["hosts.txt", "hostfile"])
def test_a_hosts_file_of_another_name_is_not_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("n1\n")
    with pytest.raises(InputError, match=f"kit reads hosts, but this folder has {name}") as caught:
        load(tmp_path, flags={}, environ={})
    assert caught.value.hint == f"mv {tmp_path / name} {tmp_path / 'hosts'}"


def test_a_kit_yml_is_not_ignored(folder: Path) -> None:
    (folder / "kit.yml").write_text("slots: 4\n")
    with pytest.raises(InputError, match=r"kit reads kit\.yaml, but this folder has kit\.yml") as caught:
        load_spec(folder, flags={}, environ={})
    assert caught.value.hint == f"mv {folder / 'kit.yml'} {folder / 'kit.yaml'}"
    assert load_spec(folder, config_flag=str(folder / "kit.yml"), flags={}, environ={}).slots == 4
    (folder / "kit.yaml").write_text("slots: 8\n")
    assert load_spec(folder, flags={}, environ={}).slots == 8


def test_a_kit_yaml_that_was_named_must_be_there(folder: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        load(folder, config_flag="nowhere.yaml", flags={}, environ={})


def test_a_folder_that_is_missing_has_no_defaults(folder: Path) -> None:
    for read in (load, load_spec):
        with pytest.raises(InputError, match="there is no folder") as caught:
            read(folder / "typo", flags={}, environ={})
        assert "`kit -C DIR init`" in (caught.value.hint or "")


def test_a_file_is_no_folder(folder: Path) -> None:
    (folder / "kit.yaml").write_text("")
    for read in (load, load_spec):
        with pytest.raises(InputError, match="is a file, not a folder") as caught:
            read(folder / "kit.yaml", flags={}, environ={})
        assert caught.value.hint == "-C takes a folder; name files with --hosts FILE and --config FILE"


def test_a_dash_is_not_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for flag, environ in (("-", {}), (None, {"KIT_HOSTS": "-"})):
        with pytest.raises(InputError, match="there is no hosts file '-'") as caught:
            load_hosts(folder, hosts_flag=flag, environ=environ)
        assert caught.value.hint == "to read standard input: --hosts /dev/stdin"
    for flag, environ in (("-", {}), (None, {"KIT_CONFIG": "-"})):
        with pytest.raises(InputError, match="there is no file '-'") as caught:
            load_spec(folder, config_flag=flag, flags={}, environ=environ)
        assert caught.value.hint == "to read standard input: --config /dev/stdin"
    (folder / "-").write_text("n1\n")
    assert load_hosts(folder, hosts_flag="-", environ={}).names == ("n1",)


def test_the_problems_of_both_files_come_together(folder: Path) -> None:
    (folder / "hosts").write_text("n1 slot=1\n")
    (folder / "kit.yaml").write_text("nmae: x\n")
    with pytest.raises(InputErrors) as caught:
        load(folder, flags={}, environ={})
    assert [(Path(p.file or "").name, p.line) for p in caught.value.problems] == [("hosts", 1), ("kit.yaml", 1)]


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [(b"n1\nn\xff2\n", "is not text in UTF-8: byte 0xff", 2), (b"#" * (9 << 20), "has more than 8 MiB", None)],
)
def test_a_file_that_is_not_text_is_refused(folder: Path, content: bytes, message: str, line: int | None) -> None:
    (folder / "hosts").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_hosts(folder, environ={})
    assert (caught.value.message, caught.value.line) == (message, line)
    assert caught.value.hint


def test_a_folder_instead_of_a_file_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="this is a folder, not a file"):
        load_hosts(folder, hosts_flag=folder, environ={})
    with pytest.raises(InputError, match="cannot be read"):
        load_hosts(folder, hosts_flag="a\0b", environ={})
    with pytest.raises(InputError, match="there is no hosts file '~nobody-here/x'"):
        load_hosts(folder, hosts_flag="~nobody-here/x", environ={})


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ("/data:/data:ro,z", "has a label for SELinux"),
        ("/data:/data:Z", "has a label for SELinux"),
        ("scratch:/s:rshared", "has a propagation"),
        ("/data:/data:nocopy", "has nocopy"),
    ],
)
def test_what_swarm_cannot_do_is_refused_with_its_line(folder: Path, volume: str, message: str) -> None:
    (folder / "kit.yaml").write_text(f"volumes:\n  - /fine:/fine:ro\n  - {volume}\norchestrator: swarm\n")
    with pytest.raises(InputError) as caught:
        load_spec(folder, flags={}, environ={})
    assert f"volumes, item 2: '{volume}' {message}" in caught.value.message
    assert caught.value.hint
    assert (caught.value.file, caught.value.line) == (str(folder / "kit.yaml"), 3)
    # Compose can, and a flag decides.
    assert load_spec(folder, flags={"orchestrator": "compose"}, environ={}).volumes[1] == volume


def test_a_base_of_another_distribution_has_packages_with_other_names(folder: Path) -> None:
    (folder / "kit.yaml").write_text("image: {flavour: ssh-layer, base: 'a:1', packages: [ImageMagick]}\n")
    assert load_spec(folder, flags={}, environ={}).image.packages == ("ImageMagick",)


def test_an_image_without_frameworks_has_a_flavour_that_needs_none(folder: Path) -> None:
    (folder / "kit.yaml").write_text("image: {flavour: ssh-layer, base: 'a:1', frameworks: []}\n")
    assert load_spec(folder, flags={}, environ={}).image.frameworks == ()


@pytest.mark.parametrize("volume", ["/d:/d", "/d:/d:ro,rslave", "vol:/s:nocopy", "vol:/s:ro"])
def test_what_swarm_can_do(folder: Path, volume: str) -> None:
    (folder / "kit.yaml").write_text(f"orchestrator: swarm\nvolumes: ['{volume}']\n")
    assert load_spec(folder, flags={}, environ={}).orchestrator == "swarm"


@pytest.mark.parametrize("name", ["hosts", "kit.yaml"])
@pytest.mark.parametrize("named", [False, True], ids=["default", "named"])
def test_a_link_to_nowhere_is_no_missing_file(folder: Path, name: str, named: bool) -> None:
    """Defaults would mean another cluster than that of the kit.yaml on a share that is not mounted."""
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/mnt/share/missing")
    flag: dict[str, Any] = {"hosts_flag" if name == "hosts" else "config_flag": str(folder / name)} if named else {}
    with pytest.raises(InputError, match="is a link to '/mnt/share/missing', which does not exist") as caught:
        load(folder, flags={}, environ={}, **flag)
    assert caught.value.file == str(folder / name)


def test_hosts_of_the_folder_above_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "src dir").mkdir()
    (folder / "hosts").write_text("10.0.0.1\n")
    with pytest.raises(InputError, match="there is no hosts file") as caught:
        load_hosts(folder / "src dir", environ={})
    assert (caught.value.hint or "").startswith(f"the folder above has one: kit -C {folder} …; ")
    monkeypatch.chdir(folder / "src dir")
    with pytest.raises(InputError, match="there is no hosts file") as caught:
        load_hosts(Path(), environ={})
    assert (caught.value.hint or "").startswith("the folder above has one: kit -C .. …; ")


def test_kit_yaml_of_the_folder_above(folder: Path) -> None:
    """A folder with hosts is another project, and wants the defaults."""
    (folder / "kit.yaml").write_text("name: prod\n")
    below = folder / "src"
    below.mkdir()
    assert passed_over(below, environ={}) == f"kit -C {folder} …"
    assert passed_over(below, environ={"KIT_CONFIG": "x.yaml"}) == ""
    assert passed_over(below, config_flag="x.yaml", environ={}) == ""
    (below / "hosts").touch()
    assert passed_over(below, environ={}) == ""
    assert passed_over(folder, environ={}) == ""
