"""Groups, options and exit codes that several verbs share; the global options."""

from __future__ import annotations

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option
from kit.cli.verbs.values import (
    below,
    count,
    gpus_per_rank,
    lines,
    memory,
    port,
    span,
    variable,
    words,
)

# The help lists verbs under these.
START, CLUSTERS, WORK, LAB, MEASURE = "Start", "The cluster", "Work on it", "A cluster to try", "Measure"

HELP = Option(flags=("-h", "--help"), help="Show this help")

VERSION = Option(flags=("-V", "--version"), help="Print kit's version")

HOSTS_FILE = Option(
    flags=("--hosts",),
    value="FILE",
    kind=words,
    complete=candidates.files,
    to="hosts_file",
    help="Read this hosts file (default: hosts)",
)
GLOBAL = (
    Option(
        flags=("-C", "--folder"),
        value="DIR",
        kind=words,
        complete=candidates.folders,
        help="Read hosts and kit.yaml in this folder (default: the current one)",
    ),
    HOSTS_FILE,
    Option(
        flags=("--config",),
        value="FILE",
        kind=words,
        complete=candidates.files,
        to="config_file",
        help="Read this settings file (default: kit.yaml)",
    ),
    Option(
        flags=("--output",),
        value="FORM",
        choices=("text", "json"),
        help="Print text (default), or json: one object per line on stdout",
    ),
    Option(flags=("--json",), means="--output=json", help="Same as --output json"),
    Option(
        flags=("--progress",),
        value="HOW",
        choices=("auto", "tty", "plain", "quiet"),
        help="Show progress on stderr as bars (tty), as lines (plain) or not at all (quiet)",
    ),
    Option(flags=("-q", "--quiet"), help="Print only results, warnings and errors"),
    Option(
        flags=("-v", "--verbose"),
        help="Print more: the content of files in plans, times in progress, long cells of tables",
    ),
    Option(flags=("--no-color",), help="Print without colors, like NO_COLOR=1"),
    VERSION,
)

CLUSTER = (
    Option(flags=("--name",), value="NAME", kind=words, help="Set the cluster's name (name)"),
    Option(flags=("--network",), value="CIDR", kind=words, help="Set the network of MPI, NCCL and Horovod (network)"),
    Option(flags=("--ssh-port",), value="PORT", kind=port, help="Set the port of the containers' sshd (ssh_port)"),
    Option(flags=("--ssh-user",), value="USER", kind=words, help="Set the login on the VMs (ssh.user)"),
    Option(
        flags=("--ssh-key",),
        value="FILE",
        kind=words,
        complete=candidates.files,
        help="Set the private key of that login (ssh.key)",
    ),
    Option(flags=("--no-keep",), help="Close the connections to the VMs at the end (ssh.keep: false)"),
)

ORCHESTRATOR = Option(
    flags=("--orchestrator",),
    value="WHAT",
    choices=("compose", "swarm"),
    help="Start containers with compose or swarm (orchestrator)",
)
BUILDER = Option(
    flags=("--builder",),
    value="WHERE",
    choices=("local", "head"),
    help="Build the image with the engine of this machine (local) or of the head (builder)",
)
REGISTRY = Option(
    flags=("--registry",),
    value="REGISTRY",
    kind=words,
    help="Let hosts pull the image from this registry (registry)",
)
DRY_RUN = Option(flags=("--dry-run",), help="Print the plan, and change nothing")
NOW = Option(
    flags=("--now",),
    help="Do not wait in line, and take free slots even if they are reserved for the first run there",
)
YES = Option(flags=("-y", "--yes"), help="Skip the confirmation. Without a terminal, kit never asks")
MUST_YES = Option(flags=("-y", "--yes"), help="Skip the confirmation; required without a terminal and with --json")
NP = Option(flags=("-n", "-np", "--np"), value="N", kind=count, help="Start N ranks in total (default: every slot)")
X = Option(
    flags=("-x",),
    value="VAR[=VALUE]",
    kind=variable,
    many=True,
    to="env",
    help="Set a variable for every rank; without a value, copy this shell's. Repeatable",
)
OVERSUBSCRIBE = Option(flags=("--oversubscribe",), help="Allow more ranks than slots")
GPUS_PER_RANK = (
    Option(flags=("--gpu-per-rank",), help="Give each rank a GPU for itself, as its CUDA_VISIBLE_DEVICES"),
    Option(
        flags=("--gpus-per-rank",),
        value="N",
        kind=gpus_per_rank,
        help="Give each rank N GPUs for itself; 0: each sees all of its host (gpus_per_rank)",
    ),
)
SHARES = (
    Option(
        flags=("--cpus",),
        value="N",
        kind=count,
        help="Let the ranks of a host use only N of its CPUs together",
    ),
    Option(
        flags=("--memory",),
        value="SIZE",
        kind=memory,
        help="End the run if its ranks on a host use more memory together: 64gb",
    ),
)
NCCL_REQUIRE = Option(
    flags=("--nccl-require",),
    value="NETWORK",
    choices=("any", "IB", "PLUGIN", "Socket"),
    help="End the run if NCCL uses another network between hosts: IB, PLUGIN, Socket or any (nccl.require)",
)
REPORT_BINDINGS = Option(
    flags=("-report-bindings", "--report-bindings"), help="Report the GPUs and the cores of each rank when it starts"
)
TAG_OUTPUT = Option(flags=("--tag-output",), help="Begin each output line with its rank")
RAW = Option(
    flags=("--raw",),
    help="Pass output to a terminal unchanged. Without --raw, a terminal gets only text, color and carriage returns",
)
# Which lines of a log.
TAIL = Option(flags=("--tail",), value="N", kind=lines, help="Begin with the last N lines")
SINCE = Option(flags=("--since",), value="TIME", kind=span, help="Print only lines that are younger than this: 10m")
RANK = Option(flags=("--rank",), value="N", kind=lines, help="Print only this rank's lines")
LIMITS = (
    Option(
        flags=("--start-timeout",),
        value="TIME",
        kind=span,
        help="End the run if not all ranks have started after this time: 2m",
    ),
    Option(flags=("--timeout",), value="TIME", kind=span, help="End the run after this time: 90s, 10m, 8h, 1h30m"),
    Option(
        flags=("--stall-timeout",), value="TIME", kind=span, help="End the run if no rank writes a byte for this time"
    ),
    Option(
        flags=("--idle-gpu",), value="TIME", kind=span, help="End the run if all its GPUs were idle for this time: 30m"
    ),
    Option(flags=("--retries",), value="N", kind=lines, help="Restart a run that fails, at most N times"),
    Option(
        flags=("--retry-on",),
        value="WHAT",
        choices=("any", "lost-host"),
        help="Restart after any failure (default), or only after lost-host",
    ),
    Option(
        flags=("--min-np",),
        value="N",
        kind=count,
        help="Restart, or with --elastic go on, without lost hosts if at least N ranks remain",
    ),
    Option(
        flags=("--checkpoint-dir",),
        value="DIR",
        kind=words,
        help="Set KIT_CHECKPOINT_DIR of the ranks, and make it (default: a new folder on each host)",
    ),
)
LAUNCHER = (
    Option(
        flags=("--launcher",),
        value="WHICH",
        choices=("mpi", "ps", "torchrun", "elastic"),
        help="Launch with mpi (default), with torchrun, with elastic, or with ps: MXNet's parameter server",
    ),
    Option(
        flags=("--elastic",),
        means="--launcher=elastic",
        help="Go on with other hosts when some fail or come: for scripts with hvd.elastic.run",
    ),
    Option(
        flags=("--max-np",),
        value="N",
        kind=count,
        help="With --elastic: run at most N ranks (default: no limit)",
    ),
    Option(
        flags=("--servers",), value="N", kind=lines, help="With ps: start N servers beside the ranks, on the same hosts"
    ),
    Option(
        flags=("--max-restarts",),
        value="N",
        kind=lines,
        help="With torchrun: let it restart failed ranks, at most N times (default: 0)",
    ),
)
CODE = Option(
    flags=("--code",),
    value="DIR",
    kind=words,
    complete=candidates.folders,
    help="Take the code in this folder along, or in git+URL@REF, or none (code)",
)
WORKDIR = Option(
    flags=("--workdir",),
    value="DIR",
    kind=below,
    help="Start the ranks in this folder of the code",
)
AGAIN = Option(
    flags=("--again",),
    value="RUN",
    kind=words,
    complete=candidates.run,
    help="Start a run once more: its code, command, ranks, hosts, limits and variables. Other options change them",
)
HOSTS = Option(
    flags=("-H", "--host"),
    value="HOST,…",
    kind=words,
    complete=candidates.hosts,
    joins=True,
    to="hosts",
    help="Use only these hosts: gpu1,gpu3, gpu[1-4], head, or addresses",
)
RUN = Operand(
    name="run",
    help="A run's id, the beginning of it, or latest (default: the latest run)",
    optional=True,
    complete=candidates.run,
)
CONSENT = Option(flags=("-y", "--yes"), help="Install what is missing on this machine without asking")
FORCE = Option(flags=("-f", "--force"), help="Overwrite existing files")

LAB_NAME = Option(
    flags=("--name",), value="NAME", kind=words, help="Set the lab's name (default: the folder's lab, or lab)"
)

FAILED = (
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
    ("4", "a step failed on a host"),
)
LOCKED = ("5", "another kit is changing the cluster, or took over the lock")
JOB = (
    ("N", "the job's own exit code"),
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
    ("5", "not ready: nothing is deployed, or the image is missing"),
    ("130", "interrupted, after every rank has ended"),
)
