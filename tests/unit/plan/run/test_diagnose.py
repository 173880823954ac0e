"""Tests the diagnosis of failed runs: failures/ has one file for each case.

`source` in a file says where its text comes from. "kit's cpu image" is the output of Python 3.11, TensorFlow 2.15.1,
MXNet 1.9.1, Horovod 0.28.1 and Open MPI 4.1.4 in that image, cut to its last lines; a file without lines only says how
such a program ended there. "an H200" is the output of a rank on that GPU. "upstream" is a line from the software's
source, or from an issue that quotes it, for cases that need GPUs or a second host.
"""

from __future__ import annotations

import re
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cli.parser import parse
from kit.config.fields import settings
from kit.config.yaml import load_spec
from kit.model.run import EndedBefore, Failure
from kit.model.values import replace
from kit.plan.run.causes import RULES, Rule
from kit.plan.run.diagnose import cause, headline, regex

HERE = Path(__file__).parent
SAMPLES = sorted((HERE / "failures").glob("*.txt"))
PAGE = HERE.parents[3] / "docs/troubleshooting.md"
RULE_OFF = "-" * 74
NO_INIT = "AttributeError: module '{}' has no attribute 'init'"

rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def read(path: Path) -> tuple[dict[str, str], Failure]:
    head, _, rest = path.read_text().partition("--- lines\n")
    lines, _, mpirun = rest.partition("--- mpirun\n")
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in head.splitlines())}
    failure = Failure(
        kind=fields["kind"],  # type: ignore[arg-type]
        host="gpu3",
        rank=5 if fields["kind"] == "rank" else None,
        exit_code=int(fields["exit_code"]) if "exit_code" in fields else None,
        signal=fields.get("signal", ""),
        oom="oom" in fields,
        lines=tuple(lines.splitlines()),
        mpirun=tuple(mpirun.splitlines()),
    )
    return fields, failure


def rank(*lines: str, **more: Any) -> Failure:
    values: dict[str, Any] = {"kind": "rank", "host": "gpu3", "rank": 5, "exit_code": 1, "lines": lines}
    return Failure(**{**values, **more})


def holes(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_from_kit_s_images_and_upstream(sample: Path) -> None:
    fields, failure = read(sample)
    assert re.fullmatch(r"kit's (?:cpu|pytorch) image.*|an H[12]00, .+|upstream: .+", fields["source"])
    known = cause(failure)
    assert (known.text if known else "") == fields["says"]
    if sample.stem.startswith("none-"):
        assert known is None
        return
    assert known is not None
    assert known.hint
    assert not {"{", "}"} & set(re.sub(r"\w+: \{\w+: \w+\}", "", known.hint))
    # The name of a file starts with the name of its rule.
    rule = max(
        (rule for rule in RULES if f"{sample.stem}-".startswith(f"{rule.name}-")), key=lambda rule: len(rule.name)
    )
    assert re.fullmatch(re.sub(r"\\\{\w+\\\}", ".+", re.escape(rule.text)), known.text)


@rules
def test_each_cause_has_a_sample(rule: Rule) -> None:
    assert [path for path in SAMPLES if f"{path.stem}-".startswith(f"{rule.name}-")]


@rules
def test_each_rule_is_whole(rule: Rule) -> None:
    assert [other.name for other in RULES].count(rule.name) == 1
    assert rule.says or rule.raised or rule.kind or rule.exit_code or rule.signal or rule.oom
    for pattern in (*rule.says, *rule.raised):
        assert holes(rule.text) | holes(rule.hint) <= {*re.compile(regex(pattern)).groupindex, "host", "run"}, pattern
    assert not {"host", "run"} & holes(rule.text)
    assert not rule.text.endswith(".")
    assert not rule.hint.endswith(".")


@rules
def test_the_command_of_each_hint_is_one_of_kit(rule: Rule) -> None:
    hint = rule.hint.format_map({**dict.fromkeys(holes(rule.hint), "x"), "host": "gpu3"})
    command = re.search(r": (kit .+)$", hint)
    assert command or "kit " not in hint.replace("then deploy", "")
    for words in command.group(1).split(" && ") if command else ():
        parse(words.split()[1:])
        # Without a command, kit run starts the one of kit.yaml: by default a benchmark, on all slots.
        assert not words.startswith("kit run") or "--again" in words or " -- " in words


@rules
def test_each_setting_of_a_hint_is_one_of_kit_yaml(rule: Rule) -> None:
    hint = rule.hint.format_map(dict.fromkeys(holes(rule.hint), "x"))
    for text in re.findall(r"\w+: \{\w+: \w+\}", hint):
        load_spec(text, source="hint")
    for section, setting in re.findall(r"\b(image|mpi|ssh|ulimits)\.(\w+)", hint):
        assert f"{section}.{setting}" in settings()
    for setting in re.findall(r"\b(volumes|env|network|shm_size|ssh_port)\b:?", hint):
        assert setting in settings()


def test_the_host_is_in_the_hint() -> None:
    full = rank("MemoryError")
    assert "kit ssh gpu3 -- free -m" in str(cause(full))
    assert "kit ssh HOST -- free -m" in str(cause(rank("MemoryError", host="")))


def test_a_hint_repeats_the_run_that_failed() -> None:
    known = cause(rank(exit_code=None, signal="SIGSEGV"), "20261121-101502-77ab")
    assert known is not None
    assert known.hint.endswith("kit run --again 20261121-101502-77ab -x PYTHONFAULTHANDLER=1")
    assert "kit run --again RUN -x" in str(cause(rank(exit_code=None, signal="SIGSEGV")))


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("CUDA out of memory. Tried to allocate", "kit ssh gpu3 -- nvidia-smi"),
        ("Could not create cudnn handle: CUDNN_STATUS_", "kit ssh gpu3 -- nvidia-smi"),
        ("bind: Address already in use", "kit ssh gpu3 -- sudo ss -ltnp"),
    ],
)
def test_hints_look_for_processes_on_the_vm_because_a_node_sees_only_its_own(line: str, command: str) -> None:
    known = cause(rank(line))
    assert known is not None
    assert known.hint.endswith(f": {command}")
    assert ("--gpu-per-rank" in known.hint) is ("nvidia-smi" in command)


@pytest.mark.parametrize(
    ("extension", "way"), [("horovod.torch", "torch.distributed"), ("horovod.tensorflow", "image.frameworks")]
)
def test_no_setting_builds_horovod_for_pytorch(extension: str, way: str) -> None:
    for line in (f"ImportError: Extension {extension} has not been built: x.so not found", NO_INIT.format(extension)):
        known = cause(rank("Traceback (most recent call last):", '  File "x.py", line 1, in <module>', line))
        assert known is not None
        assert known.text == f"Horovod in the image was built without {extension}"
        assert [word for word in ("torch.distributed", "image.frameworks") if word in known.hint] == [way]


def test_out_of_memory_names_the_limit_of_the_node() -> None:
    known = cause(rank(signal="SIGKILL", exit_code=None, oom=True))
    assert known is not None
    assert "memory: in kit.yaml" in known.text
    assert "raise it and deploy again" in known.hint


def test_a_hint_may_be_copied_into_a_shell() -> None:
    known = cause(rank("PermissionError: [Errno 13] Permission denied: '/data/a b;reboot'"))
    assert known is not None
    assert known.text == "the rank has no permission to open /data/a b;reboot"
    assert known.hint.endswith("ls -la '/data/a b;reboot'")


def test_what_a_program_printed_cannot_steer_the_terminal() -> None:
    known = cause(rank("ModuleNotFoundError: No module named 'a\x1b[2Jb'"))
    assert known is not None
    assert known.text == "the image has no Python module a[2Jb"
    assert headline(Failure(kind="mpirun", mpirun=("\x1b[31mno\x07",))) == "mpirun gave up: [31mno"


def test_the_kernel_goes_before_the_program_and_the_rank_before_mpirun() -> None:
    missing, refused = "ModuleNotFoundError: No module named 'a'", "ssh: connect to host n1 port 33: Connection refused"
    oom = cause(rank(missing, signal="SIGKILL", exit_code=None, oom=True))
    assert oom is not None
    assert "ran out of memory" in oom.text
    own = cause(rank(missing, mpirun=(refused,)))
    assert own is not None
    assert "module a" in own.text
    other = cause(rank("?", mpirun=(refused,)))
    assert other is not None
    assert "n1, port 33" in other.text


@pytest.mark.parametrize(
    "line",
    [
        "ssh: connect to host 127.0.0.9 port 22: Connection refused",
        "ssh: connect to host 127.0.0.9 port 22: Network is unreachable",
        "ssh: Could not resolve hostname git.invalid: Name or service not known",
        "Host key verification failed.",
        "git@127.0.0.9: Permission denied (publickey).",
        "kex_exchange_identification: Connection closed by remote host",
    ],
)
def test_the_ssh_of_a_rank_is_not_that_of_mpirun(line: str) -> None:
    """Such as that of git, which connects to a server that is no node."""
    fatal = "fatal: Could not read from remote repository."
    ended = "subprocess.CalledProcessError: Command '['git', 'fetch']' returned non-zero exit status 128."
    assert cause(rank(line, fatal, exit_code=128)) is None
    assert cause(rank(line, fatal, ended)) is None
    assert cause(Failure(kind="mpirun", exit_code=255, mpirun=(line,))) is not None


@pytest.mark.parametrize(
    ("lines", "is_known"),
    [
        (["MemoryError", "During handling of the above exception, another exception occurred:", "ValueError: x"], True),
        (["MemoryError: 1", "The above exception was the direct cause of the following exception:", "a.E_Error"], True),
        (["MemoryError", "Exception ignored in: <function f>", "TypeError: x"], True),
        (["MemoryError", "Epoch 3: loss 0.4"], True),
        (["  MemoryError"], False),
        (["caught MemoryError, going on"], False),
        # The program printed this one and continued.
        (["MemoryError", "Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: x"], False),
        (["MemoryError", "KeyboardInterrupt"], False),
        # The name of an exception does not always end with Error.
        (["MemoryError", "Traceback (most recent call last):", '  File "a.py", line 1', "", "cv2.error: x"], False),
        (
            ["[rank1]: MemoryError", "[rank1]: Traceback (most recent call last):", "[rank1]:   f()", "StopIteration"],
            False,
        ),
        (["Traceback (most recent call last):", "  f()", "MemoryError", "Epoch 3: loss 0.4"], True),
        # Another thread wrote a line into the traceback.
        (
            [
                "MemoryError",
                "During handling of the above exception",
                "Traceback (most recent call last):",
                "[W1] x",
                "E",
            ],
            True,
        ),
        (["MemoryError", "Exception ignored in: <f>", "Traceback (most recent call last):", "  f()", "q.Empty"], True),
        # A heading of the program is not the rule above a member of an exception group.
        (["MemoryError", "---- 1 ----", "Traceback (most recent call last):", "    f()", "ValueError: x"], False),
        # This thread failed before the exception that ended the program.
        (
            ["Exception in thread Thread-1 (f):", "Traceback (most recent call last):", "MemoryError", "ValueError"],
            False,
        ),
        # This one failed, and the program went on after the exception above it.
        (["ValueError", "Epoch 3", "Exception in thread Thread-1 (f):", "Traceback (most", "MemoryError"], True),
        # NCCL printed lines while Python printed the second traceback of a chain.
        (
            [
                "MemoryError",
                "The above exception was the direct cause of the following exception:",
                "Traceback (most recent call last):",
                "gpu1:77:81 [0] socket.cc:1 NCCL WARN x",
                '  File "a.py", line 3, in <module>',
                "gpu1:77:81 [0] socket.cc:1 NCCL WARN y",
                "    f()",
                "RuntimeError: x",
            ],
            True,
        ),
        # This one has a name without Error, and a text of several lines.
        (
            ["MemoryError", "Traceback (most recent call last):", "    f()", "a.Unsupported: x", "  Hint: y"],
            False,
        ),
    ],
)
def test_only_the_exception_that_ended_the_program_counts(lines: list[str], is_known: bool) -> None:
    assert (cause(rank(*lines)) is not None) is is_known


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ({"signal": "SIGTERM"}, "ended the rank: a person"),
        ({"signal": "SIGBUS"}, "a bus error"),
        ({"exit_code": 137}, "killed the rank: a person"),
        # Compiled code often crashes in the cleanup after an exception.
        ({"signal": "SIGSEGV"}, "no /data/index.json"),
        ({"signal": "SIGABRT"}, "no /data/index.json"),
    ],
)
def test_an_exception_explains_no_signal_but_that_of_a_crash(ending: dict[str, Any], says: str) -> None:
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/index.json'"
    known = cause(rank(missing, **{"exit_code": None, **ending}))
    assert known is not None
    assert says in known.text


@pytest.mark.parametrize(
    ("line", "exception", "says"),
    [
        (
            "failed to allocate 7.81G (8387559424 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
            "RuntimeError: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
            "GPU",
        ),
        (
            "[c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "RuntimeError: bind: Address already in use",
            "port",
        ),
        # pandas goes on without numexpr, torchvision without its extension, and PyTorch without its compiler.
        (
            "A module that was compiled using NumPy 1.x cannot be run in",
            "ImportError: numpy.core.umath failed to import",
            "NumPy",
        ),
        (
            "UserWarning: Failed to load image Python extension: 'version `GLIBCXX_3.4.32' not found (required by x)",
            "ImportError: version `GLIBCXX_3.4.32' not found (required by x)",
            "GLIBCXX_3.4.32",
        ),
        (
            "/tmp/tmps1rkq3y3/main.c:5:10: fatal error: Python.h: No such file or directory",
            "torch._inductor.exc.InductorError: CppCompileError: C++ compile error",
            "Python's headers",
        ),
    ],
)
def test_an_error_that_the_program_survived_does_not_explain_another_exception(
    line: str, exception: str, says: str
) -> None:
    assert cause(rank(line, "ValueError: x")) is None
    for known in (
        cause(rank(line)),
        cause(rank(line, signal="SIGABRT", exit_code=None)),
        cause(rank(line, exception)),
    ):
        assert known is not None
        assert says in known.text


@pytest.mark.parametrize(
    ("exception", "is_known"),
    [
        ("a.ResourceExhaustedError: failed to allocate memory [Op:AddV2]", True),
        ("a.InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: x", True),
        ("a.XlaRuntimeError: INTERNAL: custom call 'xla.gpu.gemm' failed: Unable to create BlasLt handle", True),
        ("a.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed.", True),
        ("RuntimeError: the GPU ran out of memory", True),
        ("a.XlaRuntimeError: INVALID_ARGUMENT: x", False),
        # Only another rank's end.
        ("horovod.common.exceptions.HorovodInternalError: x", False),
    ],
)
def test_an_exception_for_full_memory_need_not_name_it(exception: str, is_known: bool) -> None:
    line = "failed to allocate 7.81G (8387559424 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    known = cause(rank(line, exception))
    assert (known is not None and known.text == "the GPU is out of memory") is is_known


@pytest.mark.parametrize(
    ("after", "ending", "says"),
    [
        ("", {}, "/data/.lock is read-only"),
        ("subprocess.CalledProcessError: Command 'touch' returned 1", {}, "/data/.lock is read-only"),
        ("Watchdog caught collective operation timeout: x", {}, "never reached the operation"),
        ("", {"exit_code": None, "signal": "SIGSEGV"}, "invalid memory"),
        ("[Rank 0] Connection closed by remote peer", {}, "another rank was gone"),
    ],
)
def test_a_read_only_file_system_counts_if_nothing_else_explains_the_end(
    after: str, ending: dict[str, Any], says: str
) -> None:
    known = cause(rank("touch: cannot touch '/data/.lock': Read-only file system", after, **ending))
    assert known is not None
    assert says in known.text


def test_an_exception_of_torchrun_counts_only_if_no_rank_failed() -> None:
    """Else it follows from the end of the rank, which another torchrun noticed."""
    _, failure = read(HERE / "failures/torch-store-torchrun.txt")
    assert cause(failure) is not None
    assert cause(rank("ValueError: x", mpirun=failure.mpirun)) is None


def test_a_shell_reports_a_signal_as_a_number() -> None:
    for number, name in {135: "SIGBUS", 139: "SIGSEGV", 137: "SIGKILL"}.items():
        from_shell, from_kernel = rank(exit_code=number), rank(exit_code=None, signal=name)
        assert cause(from_shell) == cause(from_kernel) is not None


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (rank(exit_code=3), "rank 5 on gpu3 ended with exit code 3"),
        (rank(exit_code=3, host=""), "rank 5 ended with exit code 3"),
        (rank(exit_code=None, rank=None), "a rank on gpu3 ended with an error"),
        (rank(exit_code=9, rank=None, host=""), "a rank that mpirun does not name ended with exit code 9"),
        (rank(exit_code=None, signal="SIGSEGV"), "rank 5 on gpu3 was killed by SIGSEGV"),
        (rank(exit_code=None, signal="SIGKILL", oom=True), "rank 5 on gpu3 was killed by SIGKILL: out of memory"),
        (rank(exit_code=137, oom=True), "rank 5 on gpu3 ended with exit code 137: out of memory"),
        (rank(exit_code=None, signal="SIGKILL", rank=0, host=""), "rank 0 was killed by SIGKILL"),
        (Failure(kind="host", host="gpu3"), "gpu3 went away"),
        (Failure(kind="host"), "a host went away"),
        (Failure(kind="mpirun"), "mpirun gave up"),
        (Failure(kind="mpirun", exit_code=1, mpirun=("", RULE_OFF, RULE_OFF)), "mpirun gave up with exit code 1"),
    ],
)
def test_the_headline(failure: Failure, line: str) -> None:
    assert headline(failure) == line


@pytest.mark.parametrize(
    ("sample", "line"),
    [
        (
            "slots",
            "There are not enough slots available in the system to satisfy the 64 slots that were requested by "
            "the application",
        ),
        ("ssh-refused", "ssh: connect to host 127.0.0.9 port 33: Connection refused"),
        ("node-lost", "ORTE has lost communication with a remote daemon"),
        ("node-start", "ORTE was unable to reliably start one or more daemons"),
        ("mpi-option", 'unknown option "--nosuch"'),
        ("mpi-connect-daemon", "A process or daemon was unable to complete a TCP connection to another process"),
        (
            "binding",
            "A request was made to bind to that would result in binding more processes than cpus on a resource",
        ),
        # What torchrun printed.
        (
            "torch-store-torchrun",
            "torch.distributed.DistNetworkError: The client socket has timed out after 4000ms while trying to connect "
            "to (127.0.0.9, 29671).",
        ),
        ("torch-rendezvous", "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError"),
        (
            "torch-rendezvous-connect",
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
            "failed. See inner exception for details.",
        ),
        # mpirun printed nothing better.
        ("mpi-network", "WARNING: An invalid value was given for oob_tcp_if_include"),
        ("killed", "Primary job terminated normally, but 1 process returned a non-zero exit code"),
    ],
)
def test_the_headline_quotes_the_informative_line_of_mpirun(sample: str, line: str) -> None:
    _, failure = read(HERE / f"failures/{sample}.txt")
    assert headline(Failure(kind="mpirun", mpirun=failure.mpirun)) == f"mpirun gave up: {line}"


PIECES = sorted({piece for rule in RULES for p in (*rule.says, *rule.raised) for piece in re.split(r"…|\{\w+:?|\}", p)})
LINES = st.one_of(
    st.text(max_size=80), st.lists(st.sampled_from([*PIECES, "x", "'", RULE_OFF]), max_size=6).map("".join)
)
FAILURES = st.builds(
    Failure,
    kind=st.sampled_from(["rank", "host", "mpirun"]),
    host=st.sampled_from(["", "gpu3"]),
    rank=st.none() | st.integers(0, 9),
    exit_code=st.none() | st.integers(-1, 300),
    signal=st.sampled_from(["", "SIGKILL", "SIGBUS", "SIGRTMIN+3"]),
    oom=st.booleans(),
    lines=st.lists(LINES, max_size=8).map(tuple),
    mpirun=st.lists(LINES, max_size=8).map(tuple),
)


@given(FAILURES)
def test_any_output_gets_a_printable_headline(failure: Failure) -> None:
    known = cause(failure)
    line = headline(failure)
    assert line
    for text in (line, *((known.text, known.hint) if known else ())):
        assert text.isprintable()
        assert "{" not in text or "{" in str(failure) or re.search(r"\w+: \{\w+: \w+\}", text)


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01 12:00:00 step 100 loss 0.5 acc 0.7 images/s 123.4 " * 2,
        "x" * 100_000,
        "Mismatched " * 400,
        "NotFoundError: " + "a" * 3000,
        "NCCL WARN Connect to <" * 200,
        ": " * 2000,
        "a." * 2000,
        "Error: Error: ImportError: undefined " * 100,
    ],
)
@pytest.mark.timeout(100)
def test_ten_thousand_lines_take_no_time(line: str) -> None:
    """They take some seconds. A pattern that goes back and forth in a line would take hours."""
    lines = (line,) * 10_000
    assert cause(rank(*lines, exit_code=3, mpirun=lines)) is None


@pytest.mark.timeout(100)
def test_a_pattern_takes_no_time_on_lines_of_its_own_parts() -> None:
    """The regular expression searches a text that has them: all in turn, only the first one, or all but the last."""
    for pattern in sorted({pattern for rule in RULES for pattern in (*rule.says, *rule.raised)}):
        assert not pattern.startswith("…"), "a search begins anywhere, so this would only go back and forth"
        parts = [part for part in re.split(r"…|\{\w+(?::[^}]+)?\}", pattern) if part]
        lines = [("".join(parts) + " ") * 200, (parts[0] + "x ") * 1000, ("".join(parts[:-1]) + "a") * 1000]
        re.search(regex(pattern), "\n".join([line[:2000] for line in lines] * 20))


def seen(rule: Rule) -> str:
    """Return what the rule matches, for a reader: its first pattern, or how the process ended."""
    if pattern := next(iter((*rule.says, *rule.raised)), ""):
        plain = re.sub(r"\{\w+:?([^}]*)\}", r"\1…", pattern).strip()
        return f"`{re.sub('…+', '…', plain)}`"
    if rule.oom:
        return "the kernel's count of OOM kills"
    if rule.signal:
        return f"only {rule.signal}"
    return f"exit code {rule.exit_code}" if rule.exit_code else f"no connection to a {rule.kind}"


def row(rule: Rule) -> str:
    words = dict.fromkeys(holes(rule.text) | holes(rule.hint), "…")
    hint = re.sub(r": (kit .+)$", r": `\1`", rule.hint.format_map({**words, "host": "HOST", "run": "RUN"}))
    return f"| {rule.text.format_map(words)} | {seen(rule)} | {hint} |"


def test_the_table_of_causes_is_what_kit_reports() -> None:
    table = ["| kit reports | what it matches, for example | what to do |", "|---|---|---|", *map(row, RULES)]
    assert "\n".join(table) + "\n" in PAGE.read_text(), "\n" + "\n".join(table)


def test_code_that_is_not_ready_says_what_to_do() -> None:
    gone = Failure(kind="code", host="gpu2", lines=("the snapshot 1f2e3d of the code is not here",))
    full = Failure(kind="code", host="gpu2", lines=("no space left for the working folder",))
    assert headline(full) == "the code is not ready on gpu2: no space left for the working folder"
    hints = [found.hint for found in map(cause, (gone, full)) if found]
    assert hints == [
        "run the command again: kit sends the code to this host first",
        "free space there (kit ssh gpu2 -- df -h), then run the command again",
    ]


def test_a_rank_that_ended_before_is_named() -> None:
    line = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:3"
    found = cause(rank(line, before=EndedBefore(rank=2, host="gpu2")), "2026")
    assert found is not None
    assert found.text == "rank 2 on gpu2 had ended without an error, and this rank still needed it"
    assert "kit logs 2026 --rank 2" in found.hint
    # So does this one, which only survived the end of rank 0, with PyTorch's store, in a warning.
    store = "[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=4): failed to recv, got 0 bytes"
    abort = Failure(
        kind="rank", host="gpu1", rank=1, signal="SIGABRT", before=EndedBefore(rank=0, host="gpu1"),
        lines=(store, "terminate called without an active exception"),
    )  # fmt: skip
    assert cause(abort) == cause(replace(abort, before=None))
    # What the rank itself says counts more.
    own = cause(rank("torch.OutOfMemoryError: CUDA out of memory.", before=EndedBefore(rank=2, host="gpu2")))
    assert own is not None
    assert "rank 2" not in own.text
