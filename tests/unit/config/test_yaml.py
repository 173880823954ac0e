"""Tests what a kit.yaml means, and the messages about what it cannot mean."""

from __future__ import annotations

import shlex

import pytest

from kit.config.validate import spec_from
from kit.config.words import shown
from kit.config.yaml import MOST_BYTES, load_spec
from kit.errors import InputErrors
from kit.model.spec import ClusterSpec


def problems(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(InputErrors) as caught:
        load_spec(text, source="kit.yaml")
    assert all(p.file == "kit.yaml" and p.exit_code == 2 for p in caught.value.problems)
    return [(p.line, p.message, p.hint or "") for p in caught.value.problems]


@pytest.mark.parametrize(
    "line",
    [
        """python -c 'import x; print("a > b")'""",
        'awk "x > 1; y" f',
        r"find . -exec ls {} \;",
        "grep '>' f",
        "python train.py --special <pad>",
        "env A=1 python train.py",
        "./a=b c",
        "A=1",
    ],
)
def test_what_is_quoted_in_a_command_is_a_word(line: str) -> None:
    assert load_spec(f"command: >\n  {line}\n", source="kit.yaml").command == tuple(shlex.split(line))


@pytest.mark.parametrize("text", ["", "\n", "# note\n", "---\n", "---\n...\n", "~", "image:\nenv:\nvolumes:\nname:\n"])
def test_nothing_said_is_the_default(text: str) -> None:
    assert load_spec(text, source="kit.yaml") == ClusterSpec()


def test_a_tag_that_says_what_the_text_is_changes_nothing() -> None:
    spec = load_spec("head_runs_ranks: !!bool no\nslots: !!null ~\nnetwork: !!null\nname: !!str kit", source="kit.yaml")
    assert spec == ClusterSpec(head_runs_ranks=False, name="kit")


def test_a_whole_file() -> None:
    spec = load_spec(
        """\
name: resnet-lab
image: {flavour: ssh-layer, base: "nvcr.io/nvidia/tensorflow:23.03-tf2-py3"}
ssh:
  user: ubuntu
  port: 2222
ssh_port: "34"
network: 10.1.2.3/16
slots: 4
head_runs_ranks: no
volumes:
- /data:/data:ro
- cache:/root/.cache
env: {OMP_NUM_THREADS: 4, VERSION: 1.10, OCTAL: 010, TIME: 1:30, DAY: 2024-01-02, EMPTY: ""}
shm_size: 8GB
ulimits: {memlock: default, nofile: 1048576, stack: }
mpi:
  bind_to: none
  yield_when_idle: on
  args: --mca btl '^openib'
command: [python3, /data/train.py, --epochs, 90]
""",
        source="kit.yaml",
    )
    assert (spec.name, spec.image.flavour, spec.ssh.user, spec.ssh.port) == ("resnet-lab", "ssh-layer", "ubuntu", 2222)
    assert (spec.ssh_port, spec.slots, spec.head_runs_ranks) == (34, 4, False)
    assert spec.network == "10.1.0.0/16"
    assert spec.volumes == ("/data:/data:ro", "cache:/root/.cache")
    # What YAML would read as a number, a time or a day stays the text that was written.
    assert spec.env == {
        "OMP_NUM_THREADS": "4",
        "VERSION": "1.10",
        "OCTAL": "010",
        "TIME": "1:30",
        "DAY": "2024-01-02",
        "EMPTY": "",
    }
    assert (spec.ulimits.memlock, spec.ulimits.nofile, spec.ulimits.stack) == ("default", 1048576, 67108864)
    assert (spec.mpi.bind_to, spec.mpi.yield_when_idle) == ("none", True)
    assert spec.mpi.args == ("--mca", "btl", "^openib")
    assert spec.command == ("python3", "/data/train.py", "--epochs", "90")


def test_windows_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    assert load_spec("\ufeffname: a\r\nssh_port: 34\r\n", source="y").ssh_port == 34


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("name: kit\nnetwrok: auto", 2, "there is no setting 'netwrok'", "did you mean network?"),
        ("Name: a", 1, "there is no setting 'Name'", "did you mean name?"),
        ("ssh.port: 22", 1, "there is no setting 'ssh.port'", "write it on two lines:\nssh:\n  port: 22"),
        ("nccl.require: IB", 1, "there is no setting 'nccl.require'", "write it on two lines:\nnccl:\n  require: IB"),
        ("Image.flavour:", 1, "there is no setting 'Image.flavour'", "two lines:\nimage:\n  flavour: "),
        ("image.flavor: gpu", 1, "there is no setting 'image.flavor'", "did you mean flavour below image:?"),
        ("a.b: 1", 1, "there is no setting 'a.b'", "known settings: name"),
        ("flavour: cpu", 1, "there is no setting 'flavour'", "did you mean flavour below image:?"),
        ("port: 22", 1, "there is no setting 'port'", "did you mean ssh_port or port below ssh:?"),
        ("ssh:\n  usr: x", 2, "there is no setting 'usr' in ssh", "did you mean user?"),
        ("ssh:\n  zzz:", 2, "there is no setting 'zzz' in ssh", "known settings: user, port, key, known_hosts"),
        ("ssh_port: on", 1, "ssh_port: 'on' is not a whole number from 1 to 65535", "such as ssh_port: 33"),
        ("ssh_port: 033", 1, "ssh_port: '033' has a leading zero", "write 33"),
        ("ssh_port: 33.5", 1, "ssh_port: '33.5' is not a whole number", "ssh_port: 33"),
        ("ssh_port: 1:30", 1, "ssh_port: '1:30' is not a whole number", "ssh_port: 33"),
        ("ssh_port: 0x21", 1, "ssh_port: '0x21' is not a whole number", "ssh_port: 33"),
        ("slots: many", 1, "slots: 'many' is not auto or a whole number from 1 to 4096", "slots: 8"),
        ("slots: 010", 1, "slots: '010' has a leading zero", "write 10"),
        (
            "env:\n  A: b\n  XLA_FLAGS: >\n    --xla_a\n    --xla_b\n",
            3,
            "env.XLA_FLAGS: this value has a line break",
            "with >- in place of > or |; or pass it to each run: kit run -x XLA_FLAGS=VALUE",
        ),
        ("slots: -08", 1, "slots: '-08' has a leading zero", "write -8"),
        ("slots: +0_8", 1, "slots: '+0_8' has a leading zero", "write 8"),
        ("cpus: 010", 1, "cpus: '010' has a leading zero", "write 10"),
        ("runs: {ttl_days: 010}", 1, "runs.ttl_days: '010' has a leading zero", "write 10"),
        ("name: no", 1, "name: YAML reads 'no' as false, which is not text", 'name: "no"'),
        ("name: Kit", 1, "name: 'Kit' is not a name", "name: resnet-lab"),
        ('name: "kit\\n"', 1, "name: 'kit\\n' is not a name", "name: resnet-lab"),
        ("name: [a]", 1, "name: a list is not one piece of text", "name: resnet-lab"),
        ("env:\n  A: 1\n  DEBUG: yes", 3, "env.DEBUG: YAML reads 'yes' as true", 'DEBUG: "yes"'),
        ("env:\n  DEBUG:", 2, "'DEBUG' has no value", 'DEBUG: ""'),
        ("env: [A=1]", 1, "env: a list is not NAME: VALUE lines", "env: {HOROVOD_FUSION_THRESHOLD"),
        ("env: {1A: x}", 1, "env.1A: '1A' is not the name of a variable", "start with no digit"),
        ("image: cpu", 1, "image: 'cpu' is not KEY: VALUE lines, indented", "image: {flavour: cpu}"),
        ("image: none", 1, "image: 'none' is not KEY: VALUE lines, indented", "image: {flavour: auto}"),
        *[
            (
                f"image: {name}",
                1,
                f"image: '{name}' is not KEY: VALUE lines",
                f"write image: {{flavour: auto}}; or image: {{flavour: ssh-layer, base: {name}}}, which adds",
            )
            for name in ("ubuntu", "debian", "hvd")
        ],
        (
            "image: team/hvd:latest",
            1,
            "image: 'team/hvd:latest' is not KEY: VALUE lines, indented",
            "write image: {flavour: ssh-layer, base: team/hvd:latest}, which adds",
        ),
        *[
            (f"image: {name}", 1, "is not KEY: VALUE lines, indented", f"{{flavour: ssh-layer, base: {name}}}")
            for name in ("python:3.11-slim", "registry.example:5000/team/hvd", "pytorch/pytorch", "hvd:latest")
        ],
        ("image: flavour:cpu", 1, "is not KEY: VALUE lines, indented", "write a space after the colon: flavour: cpu"),
        (
            "image:\n  flavour: cuda-tf",
            2,
            "image.flavour: 'cuda-tf' is not auto, gpu, cuda, cpu",
            "cuda",
        ),
        (
            "image:\n  flavour: GPUs",
            2,
            "image.flavour: 'GPUs' is not auto",
            "write gpu, or cuda-tensorflow, cuda-mxnet or cuda-pytorch",
        ),
        ("image:\n  flavour: MXNet", 2, "image.flavour: 'MXNet' is not auto", "write cuda-mxnet for GPUs"),
        ("name: a\nhosts: [a, b]", 2, "there is no setting 'hosts'", "the file hosts beside kit.yaml"),
        ("ssh:\n  hosts: [a]", 2, "there is no setting 'hosts' in ssh", "did you mean known_hosts?"),
        ("command: python a.py > log", 1, "so > has no meaning in it", "[sh, -c, 'cd /data"),
        ("command: python a.py >> log", 1, "so >> has no meaning in it", "[sh, -c, 'cd /data"),
        ("command: python a.py 2>&1", 1, "so 2>&1 has no meaning in it", "[sh, -c, 'cd /data"),
        ("command: python < a.py", 1, "so < has no meaning in it", "[sh, -c, 'cd /data"),
        ("command: cd /data; ls", 1, "so ; has no meaning in it", "[sh, -c, 'cd /data"),
        ("command: |\n  cd /data\n  ls", 1, "has several lines, and no shell reads this command", "[sh, -c, 'cd /data"),
        ("command: cd /data && ls", 1, "command: no shell reads this command", "[sh, -c, 'cd /data"),
        ("image:\n  flavour: no", 2, "image.flavour: 'no' is not auto", "flavour: auto"),
        ("image:\n  flavour: ssh-layer", 1, "image: flavour ssh-layer needs a base", "base: nvcr.io"),
        ("image: {frameworks: []}", 1, "image: flavour auto needs a framework", "frameworks: [tensorflow, mxnet]"),
        ("image: {frameworks: [torch]}", 1, "item 1: 'torch' is not tensorflow, mxnet or pytorch", "pytorch?"),
        ("image: {frameworks: [mxnet, pytorch]}", 1, "PyTorch does not share an image", "frameworks: [pytorch]"),
        ("image: {flavour: cpu, frameworks: [pytorch]}", 1, "flavour cpu has no PyTorch", "remove flavour:, or"),
        (
            "image: {flavour: ssh-layer, base: 'a:1', wheels: wheels}",
            1,
            "flavour ssh-layer takes no wheels",
            "remove wheels:",
        ),
        ("image: {base: a b}", 1, "image.base: 'a b' is not the name of an image", "base: nvcr.io"),
        (
            "image: {packages: [Htop]}",
            1,
            "image.packages, item 1: 'Htop' is not the name of a Debian package",
            "write, for example: htop",
        ),
        (
            "image: {packages: ['a b']}",
            1,
            "image.packages, item 1: 'a b' is not the name of a package",
            "write, for example: htop",
        ),
        ("image: {pip: [-r x]}", 1, "image.pip, item 1: '-r x' is not a Python requirement", "pandas"),
        *[
            (f"image: {{base: '{base}'}}", 1, f"image.base: '{base}' is not the name of an image", "write, for example")
            for base in ("x:", "x//y", "a:b:c", "-x", "x/", ".x")
        ],
        ("image: {base: NVCR.io/X}", 1, "'NVCR.io/X' is not the name of an image", "in lower case: nvcr.io/x"),
        ("image: {base: Team/x}", 1, "'Team/x' is not the name of an image", "in lower case: team/x"),
        ("image: {base: 'https://nvcr.io/x'}", 1, "image.base: this is not the name of an image", "without https://"),
        ("image: {base: 'x@sha256:12'}", 1, "image.base: this is not the name of an image", "NAME@sha256:DIGEST"),
        *[
            (text, 1, "this has a port that is not from 1 to 65535", hint)
            for text, hint in (
                ("image: {base: 'r.io:99999/x'}", "base: nvcr.io"),
                ("registry: r.io:0/x", "registry: registry.example.com:5000"),
                ("registry: r.io:65536", "registry: registry.example.com:5000"),
                ("setup: {proxy: 'http://ann:pw@h:99999/'}", "proxy: http://"),
                ("setup: {proxy: 'http://[::1]:0'}", "proxy: http://"),
                ("nccl: {plugin: 'r.io:99999/x:/f'}", "plugin: "),
                ("data: {a: {from: 'nfs://h:99999/x', to: /d}}", "from: "),
                ("data: {a: {from: 'https://h:65536/x', to: /d}}", "from: "),
            )
        ],
        *[
            (f"setup: {{proxy: '{url}'}}", 1, "setup.proxy: this is not the address of a proxy", "http://HOST:PORT")
            for url in ("http://h:abc", "http://:3128", "http://h:", "http://ann:pw@", "http://h:123456")
        ],
        ("ssh: {user: a b}", 1, "ssh.user: 'a b' is not a login", "user: ubuntu"),
        ("ssh: {user: a@}", 1, "any other login belongs into ~/.ssh/config, as User", "user: ubuntu"),
        ("network: 10.0.0.0", 1, "network: '10.0.0.0' is an address", "write 10.0.0.0/24"),
        ("network: 0.0.0.0/0", 1, "network: '0.0.0.0/0' holds every address", "10.0.0.0/16, or auto"),
        ("registry: team", 1, "registry: 'team' has no server before it", "docker.io/team"),
        ("registry: https://r.io/team/", 1, "looks like a URL", "write r.io/team"),
        (
            "registry: r.io/Team",
            1,
            "registry: 'r.io/Team' is not a registry",
            "registry.example.com:5000/team",
        ),
        ("registry: r.io/team/kit:1", 1, "is not a registry", "registry.example.com:5000/team"),
        ("builder: heads", 1, "builder: 'heads' is not local or head", "did you mean head?"),
        ("network: 10.0.0.0/99", 1, "network: '10.0.0.0/99' is not an IPv4 network", "network: 10.0.0.0/16"),
        ("memory: 64GiB", 1, "memory: '64GiB' is not a size in b, kb, mb or gb", "write 64gb"),
        ("shm_size: 1Ti", 1, "is not a size in b, kb, mb or gb", "write 1024gb"),
        ("shm_size: 1.5 GB", 1, "is not a size in b, kb, mb or gb", "write 1536mb"),
        ("shm_size: 8", 1, "shm_size: '8' is not a size in b, kb, mb or gb", "shm_size: 8gb"),
        ("volumes: /a:/b", 1, "volumes: '/a:/b' is not a list", "write volumes: [/a:/b]"),
        ("volumes: ''", 1, "volumes: '' is not a list", "volumes: [/data/imagenet:/data:ro]"),
        ("volumes:\n- type: bind", 2, "volumes, item 1: a group of KEY: VALUE is not one piece", "write SOURCE:TARGET"),
        ("setup: {proxy: 'http://ann:pa/ss@p'}", 1, "setup.proxy: this is not the address of a proxy", "as %XX"),
        ("setup: {proxy: 'http://ann:%4@p'}", 1, "this is not the address", "http://USER:PASSWORD@HOST:PORT with"),
        ("image: {pip: [[a]]}", 1, "image.pip, item 1: a list is not one piece of text", "for example: pandas"),
        ("image: {frameworks: pytorch}", 1, "'pytorch' is not a list of tensorflow", "write frameworks: [pytorch]"),
        ("image: {frameworks: 'mxne, torch'}", 1, "is not a list of tensorflow", "frameworks: [mxnet, pytorch]"),
        (
            "env:\n  A: 1\n  KIT_CHECKPOINT_DIR: /nfs",
            3,
            "env.KIT_CHECKPOINT_DIR: kit sets this variable",
            "kit run --checkpoint-dir DIR",
        ),
        ("env: {KIT_NODE: gpu1}", 1, "env.KIT_NODE: kit sets this variable", "remove it"),
        ("env: {A: [1]}", 1, "env.A: a list is not one piece of text", "write A: VALUE"),
        ("env:\n  B: 1\n  A-B: 1", 3, "env.A-B: 'A-B' is not the name of a variable", "use letters"),
        ("code: no", 1, "code: YAML reads 'no' as false, which is not text", "write code: none"),
        ("volumes: [~/a:/b]", 1, "volumes, item 1: '~/a:/b' starts with ~", "the whole path"),
        (
            "volumes: [a/b:/b]",
            1,
            "volumes, item 1: 'a/b:/b' has a source that is neither",
            "write SOURCE:TARGET, such as /data/imagenet",
        ),
        (
            "volumes: [/a:/b:wx]",
            1,
            "volumes, item 1: '/a:/b:wx' has 'wx' where only a mode such as ro or rw can be",
            "write SOURCE:TARGET, such as /data/imagenet:/data:ro",
        ),
        ("volumes: [/a:/var/lib/kit/]", 1, "would hide /var/lib/kit of the nodes", "a target such as /data"),
        ("volumes: [/a:/var/lib/kit/runs]", 1, "would hide /var/lib/kit/runs of the nodes", "a target such as /data"),
        ("volumes: [/a:/]", 1, "volumes, item 1: '/a:/' would hide /opt/kit of the nodes", "a target such as /data"),
        (
            "volumes: [/opt:/opt]",
            1,
            "volumes, item 1: '/opt:/opt' would hide /opt/kit of the nodes",
            "a target such as /data",
        ),
        ("volumes: [/a:/etc/kit/ssh]", 1, "would hide /etc/kit of the nodes", "a target such as /data"),
        (
            "volumes: [/a://opt]",
            1,
            "volumes, item 1: '/a://opt' would hide /opt/kit of the nodes",
            "a target such as /data",
        ),
        ("volumes: [/a:/x/../var/./lib//kit]", 1, "would hide /var/lib/kit of the nodes", "a target such as /data"),
        ("volumes: [/a:/b, /c://b/.]", 1, "two volumes have the target '/b'", "another target"),
        ("volumes: [/a:/b, /c:/b/]", 1, "two volumes have the target '/b'", "another target"),
        ("volumes:\n-\n", 2, "an item of the list is empty", "after the -"),
        ("command: []", 1, "command: [] is empty", "command: python3"),
        ("command: KEY=s3cret python x", 1, "command: KEY=… would be the name of a program", "env KEY=…"),
        ("command: [A=1, python]", 1, "command: A=… would be the name of a program", "env A=…"),
        ("command: python 'x", 1, "has a quote or a backslash that is never closed", "as a list"),
        ("command: [echo, yes]", 1, "command, item 2: YAML reads 'yes' as true", 'put it in quotes: "yes"'),
        ("mpi: {yield_when_idle: perhaps}", 1, "'perhaps' is not auto, true or false", "yield_when_idle: auto"),
        ("ulimits: {nofile: 12}", 1, "'12' is not a whole number from 1024 to 1073741816", "nofile: 1048576"),
        (
            "runs: {ttl_days: x}",
            1,
            "runs.ttl_days: 'x' is not a number of days above 0",
            "such as ttl_days: 7",
        ),
        ("runs: {ttl_days: 1x}", 1, "'1x' is not a number of days", "ttl_days: 7"),
        ("runs: {ttl_days: 0h}", 1, "'0h' is not a number of days", "ttl_days: 7"),
        (
            "runs: {ttl_days: 0}",
            1,
            "'0' is not a number of days above 0",
            "ttl_days: 7",
        ),
        (
            "runs: {ttl_days: .nan}",
            1,
            "'.nan' is not a number of days above 0",
            "ttl_days: 7",
        ),
        ("runs: {keep: 0}", 1, "runs.keep: '0' is not a whole number from 1 to 100000", "keep: 200"),
        ("runs: {clean: some}", 1, "runs.clean: 'some' is not all or none", "clean: all"),
        ("name: a\nname: b", 2, "'name' is here a second time; it is already on line 1", "one of the two"),
        ("- a", 1, "a kit.yaml consists of KEY: VALUE lines", "name: kit"),
        ("\tname: x", 1, "there is a tab where YAML allows spaces only", "indent with spaces"),
        ("ssh:\n\tuser: x", 2, "there is a tab where YAML allows spaces only", "indent with spaces"),
        ("name: 'abc\nx: y\n", 1, "the quote that starts here is never closed", "close the quote"),
        ("name: x: y", 1, "there is a second ': ' on this line", "in quotes"),
        ("ssh:\n  user:ubuntu\n  port: 22", 2, "there is no space after the colon", "write user: ubuntu"),
        ("ssh:\n  user:ubuntu\n\n  # a\n  port: 22", 2, "there is no space after the colon", "write user: ubuntu"),
        ("name:kit\nslots: 4", 1, "there is no space after the colon", "write name: kit"),
        ("slots: 4\nname:kit\nssh_port: 5", 2, "there is no space after the colon", "write name: kit"),
        ("name:kit # a\nslots: 4", 1, "there is no space after the colon", "write name: kit"),
        ("volumes:\n- a:/b\n name: x", 3, "there is a second ': ' on this line", "in quotes"),
        ("slots: 4\nname:kit", 2, "there is no space after the colon", "write name: kit"),
        ("name:kit", 1, "there is no space after the colon", "write name: kit"),
        ("ssh:\n  user:ubuntu", 1, "ssh: 'user:ubuntu' is not KEY: VALUE", "after the colon: user: ubuntu"),
        ("a: b\nname\nc: d\n", 2, "a key has no ':' after it", "KEY: VALUE"),
        ("image:\n  base: x\n pip: []", 3, "this line does not fit those above it", "indent all keys"),
        ("image: [a, b\nname: x", 1, "a list that starts with [ is not closed", "close it"),
        ("name: @x", 1, "a value cannot start with '@'", "quotes"),
        ("name: *x", 1, "a word that starts with * is an alias", "write the value itself; put it in quotes if"),
        ("name: !x y", 1, "the tag '!x' is not allowed here", "the word with the !"),
        ("name: !!python/object/apply:os.system [id]", 1, "python/object/apply:os.system' is not allowed", "the !"),
        ("head_runs_ranks: !!bool 1", 1, "'1' is not what its tag says", "remove the word with the !!"),
        ("head_runs_ranks: !!bool foo", 1, "'foo' is not what its tag says", "remove the word with the !!"),
        ("slots: !!null 5", 1, "'5' is not what its tag says", "remove the word with the !!"),
        (" name: kit\nslots: 8\n", 1, "this line is indented, and a later one is not", "without spaces before it"),
        ("# a\n\n---\n  # b\n  name: kit\n  slots: 8\nenv:\n  A: b\n", 5, "this line is indented", "without spaces"),
        ("{a: 1}\nslots: 8\n", 2, "YAML cannot read this line", "put the value in quotes"),
        ("a: 1\n---\nb: 1", 2, "a second document starts here", "one document"),
        ("[a]: b", 1, "a key here is a list or a group", "KEY: VALUE"),
        ("name: a\0", 1, "YAML does not allow the character U+0000", "right file"),
        ("name: \ud800", 1, "a character here is not valid text", "UTF-8"),
        ('env: {A: "\\0"}', 1, "env.A: this value has a NUL character in it", "remove it"),
        ('ssh: {key: "~\\0"}', 1, "ssh.key: '~\\x00' has a NUL character in it", "remove it"),
        ("[" * 50, 1, "this is nested too deeply", "an extra bracket"),
        ("#" * (MOST_BYTES + 1), 1, "the file has 256 KiB", "right file"),
    ],
)
def test_a_bad_file_is_reported_with_what_to_write(text: str, line: int, message: str, hint: str) -> None:
    reported = problems(text)
    assert len(reported) == 1, reported
    assert reported[0][0] == line
    assert message in reported[0][1]
    assert hint in reported[0][2]


def test_each_variable_of_kit_is_reported() -> None:
    reported = problems("env:\n  KIT_RUN: a\n  A: b\n  KIT_OUTPUT_DIR: s3cret\n")
    assert [(line, message) for line, message, _ in reported] == [
        (2, "env.KIT_RUN: kit sets this variable for each run"),
        (4, "env.KIT_OUTPUT_DIR: kit sets this variable for each run"),
    ]


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    reported = problems("ssh_port: 0\nname: a\nname: b\nenv:\n  A: yes\nimage:\n  flavor: cpu\n")
    assert [line for line, _, _ in reported] == [1, 3, 5, 7]


def test_each_wrong_item_of_a_list_is_reported_with_its_line() -> None:
    lists = [
        ("volumes", ["/a:/b", "/e", "/c:/d", "~/x:/y", "/z:/d/"], {1, 3, 4}),
        ("devices", ["/dev/a", "dev/b", "/dev/a", "/dev/c"], {1, 2}),
        ("interfaces", ["eth0", "10.0.0.1", "eth0", "auto", "10.0.0.1/8", "10.0.0.2/8"], {1, 2, 3, 5}),
        ("security.capabilities", ["SYS_PTRACE", "FOO", "ALL"], {1, 2}),
        ("image.packages", ["htop", "a b", "Htop", "c d"], {1, 3}),
        ("image.pip", ["numpy", "-r x", "x @ https://u:p@h/x"], {1, 2}),
    ]
    for path, items, wrong in lists:
        section, _, key = path.rpartition(".")
        indent = "  " if section else ""
        head = f"{section}:\n{indent}{key}:\n" if section else f"{key}:\n"
        reported = problems(head + "".join(f"{indent}- {item}\n" for item in items))
        first = head.count("\n") + 1
        assert [(line, message.partition(":")[0]) for line, message, _ in reported] == [
            (first + place, f"{path}, item {place + 1}") for place in sorted(wrong)
        ]
        # The advice is about one item: a whole list in its place would be wrong.
        assert not any("[" in hint for _, _, hint in reported)


def test_each_package_that_debian_cannot_have_is_reported() -> None:
    reported = problems("image:\n  packages:\n    - Htop\n    - gcc\n    - A_b\n")
    assert [(line, message.partition(":")[0]) for line, message, _ in reported] == [
        (3, "image.packages, item 1"),
        (5, "image.packages, item 3"),
    ]


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
    )
    message = "a word that starts with * is an alias, which kit.yaml does not allow"
    assert problems(bomb) == [(2, message, "write the value itself; put it in quotes if it starts with *")]


@pytest.mark.parametrize(
    "text",
    [
        "setup: {proxy: 'ann:s3cret@proxy:3128'}",
        "setup: {proxy: 'http://ann:s3cret @proxy:3128'}",
        "setup:\n  proxy:http://ann:s3cret@proxy:3128",
        "setup: {prox: 'http://ann:s3cret@proxy:3128'}",
        "setup.proxy: http://ann:s3cret@proxy:3128",
        "setup: http://ann:s3cret@proxy:3128",
        "proxy:http://ann:s3cret@proxy:3128",
        "registry: https://ann:s3cret@reg/team",
        "registry: ann:s3cret@reg/team",
        "registry: ann:s3/cret@reg/team",
        "image: {pip: ['--index-url https://ann:s3cret@pypi.corp/simple torch']}",
        "image: {pip: ['--index-url https://ann:p/s3cret@pypi.corp/simple torch']}",
        "image: {pip: ['torch @ https://ann:s3cret@pypi.corp/torch.whl']}",
        "image: {pip: ['-e https://ann:s3cret@pypi.corp/torch']}",
        "image: https://ann:s3cret@reg/team/image:1",
        "image: {base: 'ann:s3cret@reg/team/image:1'}",
        "image: {base: 'https://s3cret@reg/team/image:1'}",
        "setup: {proxy: 'http://ann:s3cret'}",
        f"proxy:http://ann:s3cret{'x' * 80}@proxy:3128",
    ],
)
def test_a_password_in_an_address_is_never_printed(text: str) -> None:
    assert "s3" not in str(problems(text))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("env:\n  TOKEN: |\n    s3cret\n", "env.TOKEN: this value has a line break", "kit run -x TOKEN=VALUE"),
        ("env:\n  A: 1\n  TOKEN:s3cret", "there is no space after the colon", "write TOKEN: VALUE"),
        ("env:\n  A: 1\n  # a\n\n  name:s3cret\n  B: 1", "there is no space after the colon", "write name: VALUE"),
        ("env: # a\n  A: 1\n  name:s3cret", "there is no space after the colon", "write name: VALUE"),
        ("name: a\nTOKEN:s3cret\nslots: 4", "there is no space after the colon", "write TOKEN: VALUE"),
        ("TOKEN:s3cret", "there is no space after the colon", "write TOKEN: VALUE"),
        ("env:\n  TOKEN:s3cret", "env: this value is not NAME: VALUE lines", "on a line below env: TOKEN: VALUE"),
        ("env: TOKEN=s3cret", "env: this value is not NAME: VALUE lines", "such as env: {HOROVOD"),
        ("env: {TOKEN=s3cret}", "'TOKEN=…' has no value", "write NAME: VALUE, with a space"),
        ("env: {TOKEN=s3cret: 1}", "env.TOKEN=…: 'TOKEN=…' is not the name of a variable", "use letters"),
        ("env:\n  TOKEN:s3cret: 1", "env.TOKEN:…: 'TOKEN:…' is not the name of a variable", "use letters"),
        ("env:\nTOKEN=s3cret: 1", "there is no setting 'TOKEN=…'", "known settings: name"),
        ("env: {TOKEN: {s3cret: 1}}", "env.TOKEN: a group of KEY: VALUE is not one piece", "write TOKEN: VALUE"),
        ("env: {TOKEN: [s3cret]}", "env.TOKEN: a list is not one piece of text", "write TOKEN: VALUE"),
        ("env: {TOKEN: !!bool s3cret}", "this value is not what its tag says", "remove the word with the !!"),
        ("env: {TOKEN: !s3cret x}", "a tag, a word that starts with !, is not allowed", "or put it in quotes"),
        ("env: {TOKEN: *s3cret }", "a word that starts with * is an alias", "put it in quotes if it starts with *"),
        ('env: {TOKEN: "s3cret\\0"}', "env.TOKEN: this value has a NUL character", "remove it"),
        ("command: env TOKEN=s3cret python 'x", "command: 'env TOKEN=…' has a quote or a backslash", "as a list"),
        ("command: env TOKEN=s3cret; python x", "so ; has no meaning in it", "[sh, -c, 'cd /data"),
        ("mpi: {args: '-x TOKEN=\"s3cret'}", "mpi.args: '-x TOKEN=…' has a quote", "as a list"),
    ],
)
def test_the_value_of_a_variable_is_never_printed(text: str, message: str, hint: str) -> None:
    (problem,) = problems(text)
    assert message in problem[1]
    assert hint in problem[2]
    assert "s3cret" not in str(problem)


def test_each_wrong_variable_is_reported_with_its_line() -> None:
    reported = problems('env:\n  A: "a\\nb"\n  B: 1\n  KIT_NODE: x\n  C: "\\n"\n')
    assert [(line, message.partition(":")[0]) for line, message, _ in reported] == [
        (2, "env.A"), (4, "env.KIT_NODE"), (5, "env.C"),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [["s3cret"], {"s3cret": "s3cret"}, "s3cret\0", "s3cret\n"])
def test_the_value_of_a_variable_from_python_is_never_printed(value: object) -> None:
    with pytest.raises(InputErrors) as caught:
        spec_from({"env": {"TOKEN": value}})
    assert "s3cret" not in str([(problem.message, problem.hint) for problem in caught.value.problems])


@pytest.mark.parametrize(
    "text",
    ["git@host:path@main", "http://proxy:3128/a@b", "https://HOST/PATH@BRANCH", "git+gpu1:repo@main", "a/b:1@sha256:c",
     "b:1@sha256:c", "http://USER:PASSWORD@HOST:PORT", "ubuntu@gpu1:22"],
)  # fmt: skip
def test_an_address_without_a_password_stays_readable(text: str) -> None:
    assert shown(text) == f"'{text}'"


@pytest.mark.parametrize(
    "base",
    [
        "ubuntu", "nvcr.io/nvidia/tensorflow:23.03-tf2-py3", "localhost:5000/a", "NVCR.io/nvidia/x",
        "r.io:65535/a_b/c:T-1",
        f"r.io:1/x:t@sha256:{'0' * 64}", "img:99999", "team/a--b__c.d",
    ],
)  # fmt: skip
def test_a_name_of_an_image_is_accepted(base: str) -> None:
    assert load_spec(f"image: {{base: '{base}'}}", source="y").image.base == base


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("registry", "r.io:65535/x"),
        ("setup.proxy", "http://proxy:1"),
        ("setup.proxy", "https://[2001:db8::1]:3128/"),
        ("setup.proxy", "http://[2001:db8::1]"),
        ("setup.proxy", "http://ann:p@w@proxy"),
        ("nccl.plugin", "img:99999:/f"),
        ("nccl.plugin", "r.io:5000/img:99999:/f"),
    ],
)
def test_a_possible_port_is_accepted(key: str, value: str) -> None:
    section, _, last = key.rpartition(".")
    text = f"{section}: {{{last}: '{value}'}}" if section else f"{last}: '{value}'"
    assert load_spec(text, source="y")


def test_a_proxy_may_have_a_percent_encoded_password() -> None:
    proxy = "http://ann:s3cr%40et@proxy:3128/"
    assert load_spec(f"setup: {{proxy: '{proxy}'}}", source="kit.yaml").setup.proxy == proxy
