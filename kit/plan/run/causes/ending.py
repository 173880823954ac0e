"""Rules that say little by themselves: warnings, the end of another rank, a signal without output."""

from __future__ import annotations

from kit.plan.run.causes.rule import BUILD, Rule

# TensorFlow's and XLA's exceptions for full memory do not always name it, or the GPU, as the log before them does. The
# dot excludes HorovodInternalError, which only says that another rank is gone.
_MEMORY = (
    "ResourceExhausted",
    "RESOURCE_EXHAUSTED",
    ".InternalError",
    ": INTERNAL: ",
    ": FAILED_PRECONDITION: ",
    "out of memory",
)
# Programs survive what these lines of a log report. kit ignores such a line if an exception ended the rank, unless the
# exception has one of the words beside the line, because then it may follow from what the line reports.
SURVIVED = {
    # At its start, TensorFlow asks for less memory until it gets it.
    " from device: CUDA_ERROR_OUT_OF_MEMORY": _MEMORY,
    " bytes on host: CUDA_ERROR_OUT_OF_MEMORY": _MEMORY,
    "Dst tensor is not initialized": _MEMORY,
    # Optional extensions are left out with such a line.
    "A module that was compiled using NumPy 1.x cannot be run in": ("numpy", "Numpy", "_ARRAY_API"),
    "' not found (required by ": ("' not found (required by ", "CalledProcessError"),
    "fatal error: Python.h: ": ("CalledProcessError", "ompil", "Inductor", "Error building extension"),
    # PyTorch tries one address after the other, and torchrun then connects to the store of another process.
    "[c10d] The server socket has failed to ": (),
    # Shells and tools go on without a cache or a lock file.
    ": Read-only file system": ("CalledProcessError",),
}

# A run can survive these. They count only if the rank did not end by its own exception or exit code.
WARNINGS = (
    Rule(
        name="mpi-network",
        text="Open MPI found no interface in the configured network and used other interfaces",
        hint="set network: in kit.yaml to the VMs' own network, then run: kit deploy",
        says=(
            "Did not find interface matching this subnet",
            "An invalid value was given for btl_tcp_if_include",
            "An invalid value was given for oob_tcp_if_include",
            "unable to find any relevant network interfaces",
        ),
    ),
    Rule(
        name="mpi-shm",
        text="the shared memory, /dev/shm, is too small for Open MPI",
        hint="set shm_size in kit.yaml, to 8gb for example, then run: kit deploy",
        says=("there is not enough space for /dev/shm/",),
    ),
    Rule(
        name="memlock-low",
        text="the limit on pinned memory (memlock) is very low for the network card",
        hint="set ulimits: {{memlock: unlimited}} in kit.yaml, then run: kit deploy",
        says=("RLIMIT_MEMLOCK",),
    ),
    Rule(
        name="horovod-waiting",
        text="ranks waited for others that did not reach the same operation",
        hint="make all ranks run the same number of steps; the output names the missing ranks; see what is "
        "running: kit ps",
        says=("One or more tensors were submitted to be reduced",),
    ),
    Rule(
        name="mpi-broken",
        text="a connection between mpirun's daemons broke",
        hint="see what is still running: kit ps",
        says=("tcp_peer_send_blocking: send() to socket",),
    ),
    Rule(
        name="mpi-garbled",
        text="a rank failed in Open MPI, but Open MPI 4.1 garbled the message that says why (a known bug)",
        hint="run it again: the message usually comes through",
        says=("ORTE_ERROR_LOG: … in file …/show_help.c",),
    ),
)

# What a rank prints that only noticed the end of another one.
NOTICED = Rule(
    name="aftermath",
    text="this rank only noticed that another rank was gone; the cause is in that rank's output",
    hint="look at the last lines of the other ranks; if one of them ended without an error, make all ranks run the "
    "same number of steps; print the rank of each line: kit logs {run} --tag-output",
    says=(
        "Connection closed by remote peer",
        "Call to recv from {address} failed : ",
        "readv failed: Connection reset by peer",
        "failed: remote process exited or there was a network error",
        ", remote process exited or there was a network error",
        "NCCL error: remote process exited or there was a network error",
        "Connection closed by peer [",
        "Read error [{address}]:{port}: Connection reset by peer",
        "This most likely indicates that another task died",
    ),
    raised=(
        "HorovodInternalError",
        "Horovod has been shut down.",
        # Rank 0 keeps PyTorch's store. Ranks that end later survive the same words in a warning.
        "store->get('…') got error: ",
        "DistNetworkError: failed to recv, got 0 bytes",
        "DistNetworkError: Failed to recv, got 0 bytes",
        "DistNetworkError: Broken pipe",
    ),
)

# Not causes by themselves: the end of another rank, or an error without details.
AFTERMATH = (
    Rule(
        name="nccl-error",
        text="{call} failed, and only NCCL's own log says why",
        hint="print NCCL's log: kit run --again {run} -x NCCL_DEBUG=INFO",
        says=(
            "{call:nccl} failed: unhandled ",
            "{call:nccl} failed: internal error",
            "{call:nccl} failed: invalid usage",
            "{call:NCCL} error in: …, unhandled ",
            "{call:NCCL} error in: …, internal error",
            "{call:NCCL} error in: …, invalid usage",
        ),
    ),
    NOTICED,
    # pytorch/pytorch#190489: the thread cannot take Python's lock any more.
    Rule(
        name="abort-open-group",
        text="Python ended while compiled code still had a thread; often a PyTorch program that ended, by an error or "
        "not, with its process group open",
        hint="read in the lines above it why the program ended; call torch.distributed.destroy_process_group() before "
        "its end; where Gloo is used, end it with os._exit(0): Gloo's threads outlive the group",
        says=("terminate called without an active exception",),
        signal="SIGABRT",
    ),
)

# Used if no known line was printed: only how the process ended is known.
ENDINGS = (
    Rule(
        name="host-gone",
        text="the VM, its container, or the network to it failed during the run",
        hint="see what is still running: kit ps",
        kind="host",
    ),
    Rule(
        name="bus-error",
        text="a bus error; usually /dev/shm is full",
        hint="set shm_size in kit.yaml, to 8gb for example, then run: kit deploy",
        signal="SIGBUS",
    ),
    Rule(
        name="segfault",
        text="compiled code accessed invalid memory; usually two packages were built for different "
        "versions of a library",
        hint="find the line in the program: kit run --again {run} -x PYTHONFAULTHANDLER=1",
        signal="SIGSEGV",
    ),
    Rule(
        name="illegal-instruction",
        text="the CPU lacks an instruction that the program was built for, such as AVX for TensorFlow",
        hint="leave out the host (-H), or look at its CPU: kit ssh {host} -- lscpu",
        signal="SIGILL",
    ),
    Rule(
        name="abort",
        text="compiled code aborted, usually after a line that says why",
        hint="find the line in the program: kit run --again {run} -x PYTHONFAULTHANDLER=1",
        signal="SIGABRT",
    ),
    Rule(
        name="mpirun-killed",
        text="something outside the run killed mpirun on the head: a person, or a service that limits memory",
        hint="look at the kernel log: kit ssh {host} -- sudo dmesg",
        kind="mpirun",
        signal="SIGKILL",
    ),
    Rule(
        name="killed",
        text="something outside the run killed the rank: a person, or a service that limits memory",
        hint="look at the kernel log: kit ssh {host} -- sudo dmesg",
        signal="SIGKILL",
    ),
    Rule(
        name="terminated",
        text="something outside the run ended the rank: a person, or a shutdown of the VM",
        hint="check that the host is still up: kit ps",
        signal="SIGTERM",
    ),
    Rule(
        name="no-command",
        text="the image lacks a command that the program runs",
        hint=f"add its package to image.packages or image.pip in kit.yaml, then {BUILD}",
        exit_code=127,
    ),
    Rule(
        name="no-program",
        text="a command that the program runs is not executable",
        hint="use chmod +x, or name the interpreter: kit run -- python3 FILE",
        exit_code=126,
    ),
)
