"""Command lines → what they mean. A table a line, and one rule for all words: never anything but 0 or 2."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cli import walk
from kit.cli.main import main
from kit.cli.parser import parse
from kit.cli.verbs.elsewhere import FAMILIAR, INSTEAD, OPTIONS
from kit.cli.verbs.grammar import Operand, Verb
from kit.cli.verbs.options import GLOBAL, NP
from kit.cli.verbs.table import VERBS
from kit.errors import InputError

MEANINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("deploy", "deploy", {"dry_run": False, "folder": None, "name": None, "output": None}),
    ("deploy --dry-run --network 10.0.0.0/16", "deploy", {"dry_run": True, "network": "10.0.0.0/16"}),
    ("-C /data deploy", "deploy", {"folder": "/data"}),
    ("deploy -C /data", "deploy", {"folder": "/data"}),
    ("deploy -C/data", "deploy", {"folder": "/data"}),
    (
        "run --gpu-per-rank --report-bindings",
        "run",
        {"gpu_per_rank": True, "gpus_per_rank": None, "report_bindings": True},
    ),
    ("run -report-bindings --gpus-per-rank 0", "run", {"gpus_per_rank": 0, "ignore_busy_gpus": False}),
    ("local --gpus 2", "local", {"gpus": "2"}),
    ("local --gpus 0,1", "local", {"gpus": "device=0,1"}),
    ("local --gpus device=GPU-5c3b,MIG-0a/7/0", "local", {"gpus": "device=GPU-5c3b,MIG-0a/7/0"}),
    ("local --gpus none", "local", {"gpus": "none"}),
    ("--hosts a deploy --hosts b", "deploy", {"hosts_file": "b"}),
    ("--output=json deploy", "deploy", {"output": "json"}),
    ("--json deploy", "deploy", {"output": "json"}),
    ("deploy --json", "deploy", {"output": "json"}),
    # The command's own.
    ("run --json hvd_check --json", "run", {"output": "json", "command": ("hvd_check", "--json")}),
    ("run -- hvd_check --json", "run", {"output": None, "command": ("hvd_check", "--json")}),
    ("-qv ps", "ps", {"quiet": True, "verbose": True}),
    ("ps -qC /data", "ps", {"quiet": True, "folder": "/data"}),
    ("run", "run", {"np": None, "npernode": None, "command": (), "env": [], "hosts": None}),
    ("run --np 8 --npernode 2", "run", {"np": 8, "npernode": 2, "command": ()}),
    ("run -np 8 -npernode 2", "run", {"np": 8, "npernode": 2}),
    ("run -n 8", "run", {"np": 8}),
    ("run -n 8 -n 4", "run", {"np": 4}),
    ("run -H gpu1 -H gpu[3-4] --host gpu2", "run", {"hosts": "gpu1,gpu[3-4],gpu2"}),
    ("setup --only docker --only driver,mtu", "setup", {"only": ("docker", "driver", "mtu")}),
    ("bench --ranks 1,2 --ranks 4 --networks host --networks bare", "bench", {"ranks": (1, 2, 4)}),
    ("run --queue --array 0-2 --array 8", "run", {"array": (0, 1, 2, 8)}),
    ("run -n=8", "run", {"np": 8}),
    ("run --timeout 1h30m --stall-timeout 90", "run", {"timeout": 5400.0, "stall_timeout": 90.0}),
    ("completion zsh", "completion", {"shell": "zsh"}),
    (
        "predict --step-ms 1.5s --cycle-ms 5ms --latency-us 0.1ms",
        "predict",
        {"step_ms": 1500, "cycle_ms": 5, "latency_us": 100},
    ),
    ("predict --step-ms 290", "predict", {"step_ms": 290}),
    ("tune --minutes 90s", "tune", {"minutes": 1.5}),
    ("lab up --link-rate 1Gbps", "lab up", {"link_rate": "1gbit"}),
    ("run -n8 ls", "run", {"np": 8, "command": ("ls",)}),
    ("run --np=8 ls", "run", {"np": 8, "command": ("ls",)}),
    (
        "run -np 2 python train.py --np 9 -x A",
        "run",
        {"np": 2, "command": ("python", "train.py", "--np", "9", "-x", "A")},
    ),
    ("run -- --odd -q", "run", {"quiet": False, "command": ("--odd", "-q")}),
    ("run -q -- -q", "run", {"quiet": True, "command": ("-q",)}),
    ("run ls --help", "run", {"command": ("ls", "--help")}),
    ("run ls -- -l", "run", {"command": ("ls", "--", "-l")}),
    ("run -npe", "run", {"error": True}),
    ("run -x A=1 -x B -xC=3", "run", {"env": [("A", "1"), ("B", None), ("C", "3")]}),
    ("run -x A=b=c", "run", {"env": [("A", "b=c")]}),
    ("run -x A=", "run", {"env": [("A", "")]}),
    ("run -H gpu[1-4],gpu7 --oversubscribe --tag-output", "run", {"hosts": "gpu[1-4],gpu7", "oversubscribe": True}),
    ("local -np 2", "local", {"np": 2, "command": ()}),
    ("local --np 2 -- tf_benchmark --np 3", "local", {"np": 2, "command": ("tf_benchmark", "--np", "3")}),
    ("logs", "logs", {"run": None, "follow": False, "tail": None, "nodes": False}),
    ("logs gpu1 -f --tail 0", "logs", {"run": "gpu1", "follow": True, "tail": 0}),
    ("logs --tail 5 -f gpu1", "logs", {"run": "gpu1", "follow": True, "tail": 5}),
    ("logs --nodes gpu[1-2]", "logs", {"run": "gpu[1-2]", "nodes": True}),
    ("attach --rank 0 --tail 5 --since 1h30m", "attach", {"run": None, "rank": 0, "tail": 5, "since": 5400.0}),
    ("exec -- nvidia-smi -L", "exec", {"hosts": None, "command": ("nvidia-smi", "-L")}),
    ("exec -H gpu[1-2] -- a", "exec", {"hosts": "gpu[1-2]", "command": ("a",)}),
    ("exec gpu[1-2] -- a -- b", "exec", {"hosts": "gpu[1-2]", "command": ("a", "--", "b")}),
    ("ssh gpu1", "ssh", {"host": "gpu1", "command": ()}),
    ("ssh gpu1 -- ls -l", "ssh", {"host": "gpu1", "command": ("ls", "-l")}),
    ("down --images -y", "down", {"images": True, "yes": True, "dry_run": False}),
    ("lab up --hosts 4 --slots 2 --link-rate 200mbit", "lab up", {"lab_hosts": 4, "slots": 2, "hosts_file": None}),
    ("--hosts f lab up --hosts 3", "lab up", {"lab_hosts": 3}),
    ("lab down", "lab down", {"name": None}),
    ("image build -f", "image build", {"force": True}),
    ("image tag", "image tag", {}),
]


@pytest.mark.parametrize(("line", "verb", "meaning"), MEANINGS, ids=[line for line, _, _ in MEANINGS])
def test_meaning(line: str, verb: str, meaning: dict[str, Any]) -> None:
    if meaning == {"error": True}:
        with pytest.raises(InputError):
            parse(line.split())
        return
    invocation = parse(line.split())
    assert invocation.verb is not None
    assert invocation.verb.name == verb
    assert {name: getattr(invocation.args, name) for name in meaning} == meaning


# Wrong words → (what is wrong, what to write), each in part.
WRONG = [
    ("depoly", "no verb 'depoly'", "kit deploy"),
    ("up", "no verb 'up'", "kit deploy"),
    ("image bild", "no verb 'image bild'", "kit image build"),
    ("image", "needs one of: build, push, tag, render", "kit image --help"),
    ("xyzzy", "no verb 'xyzzy'", "kit --help"),
    ("push", "no verb 'push'", "kit image push"),
    ("scale 4", "no verb 'scale'", "add VMs to the hosts file, or remove them from it; then: kit deploy"),
    ("deploy --tag v1", "no option --tag for kit deploy", "kit image tag prints it"),
    ("image build -t v1", "no option -t for kit image build", "kit image tag prints it"),
    ("run --tag ls", "no option --tag for kit run", "--tag-output; for another image, set image: in kit.yaml"),
    ("run --mca btl tcp ls", "no option --mca for kit run", 'mpi: {args: "--mca NAME VALUE"}'),
    ("run -mca btl tcp ls", "no option -mca for kit run", 'mpi: {args: "--mca NAME VALUE"}'),
    ("run -i bash", "no option -i for kit run", "kit run -it --np 1 -- bash"),
    ("run -e A=1 ls", "no option -e for kit run", "-x NAME=VALUE"),
    ("ps --hostfile h", "no option --hostfile for kit ps", "--hosts FILE"),
    ("run --nq 3", "no option --nq for kit run", "--np"),
    ("--outptu json ps", "no option --outptu", "--output"),
    # An option of a verb, before the verb.
    ("--np 4 run hostname", "no option --np", "write it after its verb, as in: kit run --np"),
    ("-np 4 run hostname", "no option -np", "write it after its verb, as in: kit run -np"),
    ("--dry-run deploy", "no option --dry-run", "write it after its verb, as in: kit deploy --dry-run"),
    ("--dry-run data stage", "no option --dry-run", "write it after its verb, as in: kit data stage --dry-run"),
    ("--name lab hosts cordon gpu1", "no option --name", "write it after its verb, as in: kit hosts cordon --name"),
    ("--dry-run run -- deploy", "no option --dry-run", "write it after its verb, as in: kit run --dry-run"),
    ("--minutes 10 tune", "no option --minutes", "write it after its verb, as in: kit tune --minutes"),
    ("lab --slots 2 up", "no option --slots", "write it after its verb, as in: kit lab up --slots"),
    ("lab --hosts 2 up", "--hosts before kit lab up means: Read this hosts file", "as in: kit lab up --hosts"),
    ("--hosts 2 lab up", "--hosts before kit lab up means: Read this hosts file", "as in: kit lab up --hosts"),
    ("completion", "shell is missing", "give bash, zsh, fish: kit completion [options] shell"),
    ("run --np", "--np needs a value", "kit run"),
    ("run --np -- ls", "--np needs a value", "kit run"),
    ("-C", "-C needs a value", "kit --help"),
    ("run --np 0", "--np: '0' is not a whole number of 1 or more", "kit run"),
    ("run --gpus-per-rank 65", "--gpus-per-rank: '65' is more than the 64 GPUs of a host", "kit run"),
    ("local --gpus 0", "--gpus: '0' names no GPUs: write all, none", "kit local"),
    ("local --gpus a100", "--gpus: 'a100' names no GPUs", "kit local"),
    ("local --gpus 1,1", "--gpus: '1,1' names a GPU twice", "kit local"),
    ("run --np -1", "--np: '-1' is not a whole number of 1 or more", "kit run"),
    ("run -np two", "--np: 'two' is not a whole number", "kit run"),
    ("run -np ٣", "--np: '٣' is not a whole number", "kit run"),
    ("run -x 1=2", "-x: '1=…' is not VAR or VAR=value", "kit run"),
    ("run -x MY-KEY=s3cret", "-x: 'MY-KEY=…' is not VAR or VAR=value", "kit run"),
    ("run -x MY-KEY", "-x: 'MY-KEY' is not VAR or VAR=value", "kit run"),
    ("run -x KEY:s3cret", "-x: 'KEY:…' is not VAR or VAR=value", "kit run"),
    ("run --dry-run=yes", "--dry-run takes no value", "kit run"),
    ("ps --json=yes", "--json takes no value", "kit ps"),
    ("ps --output xml", "--output: 'xml' is not one of: text, json", "kit ps"),
    ("deploy --ssh-port 70000", "--ssh-port: '70000' is not a port", "kit deploy"),
    ("deploy --name=", "--name: the value is empty", "kit deploy"),
    ("lab stop", "there is no verb 'lab stop'", "did you mean: kit lab down"),
    ("lab start", "there is no verb 'lab start'", "did you mean: kit lab up"),
    ("lab ls", "there is no verb 'lab ls'", "did you mean: kit lab status"),
    ("lab frobnicate", "there is no verb 'lab frobnicate'", "kit lab has: up, status, down, link-rate"),
    ("image bild", "there is no verb 'image bild'", "did you mean: kit image build"),
    ("data delete", "there is no verb 'data delete'", "did you mean: kit data rm"),
    ("runs ls", "there is no verb 'runs ls'", "did you mean: kit runs list"),
    ("hosts cordn gpu3", "there is no verb 'hosts cordn'", "did you mean: kit hosts cordon"),
    ("hosts zz", "there is no verb 'hosts zz'", "kit hosts has: list, cordon"),
    ("runs rm --older-than 7", "--older-than: '7' has no unit: write 7d, 12h or 30m", "kit runs rm"),
    ("ps gpu1", "'gpu1' is one word too many", "kit ps"),
    ("ps -q gpu1", "'gpu1' is one word too many: -q takes no value", "kit ps"),
    ("ps -- ls", "-- begins a command", "kit ps"),
    ("ssh", "host is missing", "kit ssh [options] host"),
    ("hosts add gpu1 gpu2", "'gpu2' is one word too many", "hosts are one word: kit hosts add gpu1,gpu2"),
    ("ssh gpu1 ls", "'ls' is one word too many", "put -- before a command"),
    ("ssh gpu1 -q ls", "'ls' is one word too many: -q takes no value", "put -- before a command"),
    ("exec gpu1", "the command is missing", "kit exec [options] [hosts] -- command"),
    ("run --timeout 1h30", "--timeout: '1h30' is not a time", "kit run"),
    ("completion tcsh", "shell: 'tcsh' is not one of: bash, zsh, fish", "kit completion"),
    ("logs --tail x", "--tail: 'x' is not a whole number", "kit logs"),
    ("exec gpu1 -H gpu2 -- ls", "hosts are given twice: 'gpu1' and by -H", "kit exec"),
    ("predict --step-ms 0", "--step-ms: '0' is not a number above 0", "kit predict"),
    ("tune --minutes 3h", "--minutes: '3h' is not a time from 1 to 120 minutes", "kit tune"),
    ("lab up --link-rate fast", "--link-rate: 'fast' is not a rate such as 200mbit", "kit lab up"),
]


@pytest.mark.parametrize(("line", "wrong", "write"), WRONG, ids=[line for line, _, _ in WRONG])
def test_wrong_words_say_what_to_write(line: str, wrong: str, write: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(line.split())
    assert wrong in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint is not None
    assert write in caught.value.hint


@pytest.mark.parametrize("line", ["exec '' -- rm -r x", "stop ''", "ssh ''", "runs rm ''", "pull r1 ''", "cp '' x"])
def test_an_empty_word_is_not_the_default(line: str) -> None:
    """As kit exec "$HOST" where HOST is not set: neither all hosts, nor the latest run."""
    with pytest.raises(InputError, match=r": the value is empty$"):
        parse(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    ["", "--help", "-h", "help", "run --help", "run --np 3 -h", "help run", "image --help", "lab -h", "--help ps"],
)
def test_help_is_requested(line: str) -> None:
    assert parse(line.split()).help


def test_a_verb_may_begin_another(monkeypatch: pytest.MonkeyPatch) -> None:
    short = Verb(words=("bench",), purpose="x.", handler=lambda _: 0, group="x", options=(NP,))
    longer = Verb(
        words=("bench", "report"), purpose="x.", handler=lambda _: 0, group="x", operands=(Operand(name="a", help=""),)
    )
    monkeypatch.setattr(walk, "VERBS", (short, longer))
    assert parse(["bench", "--np", "2"]).verb is short
    invocation = parse(["-q", "bench", "report", "-v", "report"])
    assert invocation.verb is longer
    assert (invocation.args.a, invocation.args.quiet, invocation.args.verbose) == ("report", True, True)
    with pytest.raises(InputError, match="there is no option --np"):
        parse(["bench", "report", "--np", "2", "x"])
    with pytest.raises(InputError, match="there is no verb 'bench else'"):
        parse(["bench", "else"])


def test_every_verb_has_its_place() -> None:
    names = [verb.name for verb in VERBS]
    assert len(set(names)) == len(names)
    for verb in VERBS:
        assert not verb.purpose.endswith(".")
        assert not [option.flags for option in verb.options if option.help.endswith(".")]
        assert verb.examples
        assert callable(verb.handler)
        # Flags of one verb are unlike each other, and a global one is taken over by lab up's --hosts only.
        flags = [flag for option in (*verb.options, *GLOBAL) for flag in option.flags]
        twice = {flag for flag in flags if flags.count(flag) > 1}
        assert twice == ({"--hosts"} if verb.name == "lab up" else set()), verb.name


def test_examples_parse() -> None:
    for verb in VERBS:
        for example in verb.examples:
            # Of two commands in a line the first is the verb's own, and the second is one, too.
            for place, command in enumerate(example.split(" && ")):
                start = command.index("kit ") + 4
                words = shlex.split(command[start:].split(" > ")[0].split(" | ")[0].rstrip('")'))
                assert parse(words).verb == verb or place, example


def test_familiar_words_name_verbs() -> None:
    for guess in FAMILIAR.values():
        assert parse([*guess.split(), "--help"]).help


def test_words_of_other_tools_are_none_of_kits() -> None:
    names = {verb.name for verb in VERBS}
    for other in OPTIONS:
        assert set(other.verbs) <= names
        for verb in VERBS:
            if verb.name in other.verbs or not other.verbs:
                assert not set(other.flags) & {flag for option in verb.options for flag in option.flags}, verb.name
    assert not {*FAMILIAR, *INSTEAD} & names


@pytest.mark.parametrize("line", ["--version", "-V", "-q --version", "deploy --version", "--version ssh"])
def test_the_version_is_an_option_too(line: str) -> None:
    verb = parse(line.split()).verb
    assert verb is not None
    assert verb.name == "version"


def test_the_version_of_a_command_is_its_own() -> None:
    invocation = parse(["run", "python3", "--version"])
    assert invocation.args.command == ("python3", "--version")
    assert invocation.verb is not None
    assert invocation.verb.name == "run"


WORDS = st.one_of(
    st.sampled_from(
        sorted({flag for verb in VERBS for option in (*verb.options, *GLOBAL) for flag in option.flags})
        + sorted({word for verb in VERBS for word in verb.words})
        + ["--", "-", "--help", "-h", "json", "text", "2", "gpu1", "A=1", "--np=3", "", "=", "--=", "-qv"]
    ),
    st.text(max_size=12),
)


@given(st.lists(WORDS, max_size=8))
def test_any_words_end_with_0_or_2(words: list[str]) -> None:
    assert main(words, environ={}, handle=lambda verb, session: 0) in (0, 2)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=6))
def test_a_command_is_taken_verbatim(command: list[str]) -> None:
    assert parse(["run", "-np", "2", "--", *command]).args.command == tuple(command)
    assert parse(["exec", "--", *command]).args.command == tuple(command)
