"""What tells little by itself: warnings, the end of another rank, a signal with no word."""

from __future__ import annotations

from kit.plan.run.causes.rule import BUILD, Rule

# A run may live with these: they count only for a rank that did not end by its own exception or exit code.
WARNINGS = (
    Rule(
        name="mpi-network",
        text="Open MPI has no interface in the network that it was told to use, and took any other",
        hint="write the VMs' own network as network: in kit.yaml, then run: kit deploy",
        says=(
            "Did not find interface matching this subnet",
            "An invalid value was given for btl_tcp_if_include",
            "An invalid value was given for oob_tcp_if_include",
            "unable to find any relevant network interfaces",
        ),
    ),
    Rule(
        name="mpi-shm",
        text="the memory that processes share, /dev/shm, is too small for Open MPI",
        hint="set shm_size in kit.yaml to 8gb, say, then run: kit deploy",
        says=("there is not enough space for /dev/shm/",),
    ),
    Rule(
        name="memlock-low",
        text="the network card may pin very little memory",
        hint="set ulimits: {{memlock: unlimited}} in kit.yaml, then run: kit deploy",
        says=("RLIMIT_MEMLOCK",),
    ),
    Rule(
        name="horovod-waiting",
        text="ranks waited for others that did not come to the same operation",
        hint="all ranks must do the same number of steps; the missing ones stand in the output; what runs now: kit ps",
        says=("One or more tensors were submitted to be reduced",),
    ),
    Rule(
        name="mpi-broken",
        text="a connection between mpirun's daemons broke",
        hint="see what is left, run: kit ps",
        says=("tcp_peer_send_blocking: send() to socket",),
    ),
    Rule(
        name="mpi-garbled",
        text="a rank failed in Open MPI, and mpirun garbled the message that says why (a fault of Open MPI 4.1)",
        hint="run it again: the message comes through most of the time",
        says=("ORTE_ERROR_LOG: … in file …/show_help.c",),
    ),
)

# What is no cause by itself: the end of another rank, or a failure that says no more than that it was one.
AFTERMATH = (
    Rule(
        name="nccl-error",
        text="{call} failed, and NCCL's own log alone says why",
        hint="let it say so: kit run -x NCCL_DEBUG=INFO",
        says=(
            "{call:nccl} failed: unhandled ",
            "{call:nccl} failed: internal error",
            "{call:nccl} failed: invalid usage",
        ),
    ),
    Rule(
        name="aftermath",
        text="this rank was only told that another had gone: the cause is in that one's output",
        hint="look at the other ranks' last lines, each with its rank: kit run --tag-output",
        says=(
            "Connection closed by remote peer",
            "Call to recv from {address} failed : ",
            "readv failed: Connection reset by peer",
            "failed: remote process exited or there was a network error",
        ),
        raised=("HorovodInternalError", "Horovod has been shut down."),
    ),
)

# Where nothing was printed that is known: only how it ended.
ENDINGS = (
    Rule(
        name="host-gone",
        text="the VM, its container or the network to it went away while the run was on",
        hint="see what is left, run: kit ps",
        kind="host",
    ),
    Rule(
        name="bus-error",
        text="a bus error: most often /dev/shm is full",
        hint="set shm_size in kit.yaml to 8gb, say, then run: kit deploy",
        signal="SIGBUS",
    ),
    Rule(
        name="segfault",
        text="compiled code used memory that is not its own: most often packages that were not built for each other",
        hint="see where in the program: kit run -x PYTHONFAULTHANDLER=1",
        signal="SIGSEGV",
    ),
    Rule(
        name="illegal-instruction",
        text="the CPU lacks an instruction that the program was built for, such as AVX for TensorFlow",
        hint="go on without the host (-H), or see its CPU: kit ssh {host} -- lscpu",
        signal="SIGILL",
    ),
    Rule(
        name="abort",
        text="compiled code gave up by itself, mostly after a line that says why",
        hint="see where in the program: kit run -x PYTHONFAULTHANDLER=1",
        signal="SIGABRT",
    ),
    Rule(
        name="mpirun-killed",
        text="something outside the run killed mpirun on the head: a person, or a service that watches over memory",
        hint="what the kernel says: kit ssh {host} -- sudo dmesg",
        kind="mpirun",
        signal="SIGKILL",
    ),
    Rule(
        name="killed",
        text="something outside the run killed the rank: a person, or a service that watches over memory",
        hint="what the kernel says: kit ssh {host} -- sudo dmesg",
        signal="SIGKILL",
    ),
    Rule(
        name="terminated",
        text="something outside the run ended the rank: a person, or the VM as it shut down",
        hint="see whether the host is still there, run: kit ps",
        signal="SIGTERM",
    ),
    Rule(
        name="no-command",
        text="a command of the program is not in the image",
        hint=f"add its package to image.packages or image.pip in kit.yaml, then {BUILD}",
        exit_code=127,
    ),
    Rule(
        name="no-program",
        text="a command of the program may not be executed",
        hint="chmod +x, or name the interpreter: kit run -- python3 FILE",
        exit_code=126,
    ),
)
