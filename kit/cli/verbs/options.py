"""Groups, options and exit codes that several verbs share; the global options."""

from __future__ import annotations

from kit.cli.verbs.grammar import Operand, Option, count, lines, port, span, variable, words

# Under these the help lists verbs.
START, CLUSTERS, WORK, MEASURE = "Start", "The cluster", "Work on it", "Measure"

HELP = Option(flags=("-h", "--help"), help="Show this help.")

GLOBAL = (
    Option(flags=("-C", "--folder"), value="DIR", kind=words, help="Folder of hosts and kit.yaml (default: this one)."),
    Option(flags=("--hosts",), value="FILE", kind=words, to="hosts_file", help="The hosts file (default: hosts)."),
    Option(flags=("--config",), value="FILE", kind=words, to="config_file", help="The cluster's file (kit.yaml)."),
    Option(
        flags=("--output",),
        value="FORM",
        choices=("text", "json"),
        help="text, or json: one object a line on stdout.",
    ),
    Option(flags=("--json",), means="--output=json", help="Short for --output json."),
    Option(
        flags=("--progress",),
        value="HOW",
        choices=("auto", "tty", "plain", "quiet"),
        help="auto, tty (bars), plain (lines) or quiet; it goes to stderr.",
    ),
    Option(flags=("-q", "--quiet"), help="No progress: only results, warnings and errors."),
    Option(flags=("-v", "--verbose"), help="More: the content of files in plans, times in progress."),
    Option(flags=("--no-color",), help="No colours (NO_COLOR does the same)."),
)

CLUSTER = (
    Option(flags=("--name",), value="NAME", kind=words, help="Name of the cluster (name in kit.yaml)."),
    Option(flags=("--network",), value="CIDR", kind=words, help="Network of MPI, NCCL and Horovod (network)."),
    Option(flags=("--ssh-port",), value="PORT", kind=port, help="Port of the containers' own sshd (ssh_port)."),
    Option(flags=("--ssh-user",), value="USER", kind=words, help="Login on the VMs (ssh.user)."),
    Option(flags=("--ssh-key",), value="FILE", kind=words, help="Private key of that login (ssh.key)."),
)

ORCHESTRATOR = Option(
    flags=("--orchestrator",),
    value="WHAT",
    choices=("compose", "swarm"),
    help="What starts the containers: compose or swarm (orchestrator).",
)
BUILDER = Option(
    flags=("--builder",), value="WHO", choices=("local", "head"), help="Whose engine builds it (builder in kit.yaml)."
)
REGISTRY = Option(
    flags=("--registry",), value="REGISTRY", kind=words, help="Registry that hosts pull the image from (registry)."
)
DRY_RUN = Option(flags=("--dry-run",), help="Print what would be done, and change nothing.")
YES = Option(flags=("-y", "--yes"), help="Do not ask (nor is asked where there is no terminal).")
CONSENT = Option(flags=("-y", "--yes"), help="Install what is missing on this machine without asking.")
NP = Option(flags=("-n", "-np", "--np"), value="N", kind=count, help="Ranks in all (default: every slot).")
X = Option(
    flags=("-x",),
    value="VAR[=VALUE]",
    kind=variable,
    many=True,
    to="env",
    help="A variable for every rank; without a value, this shell's. May be given again.",
)
OVERSUBSCRIBE = Option(flags=("--oversubscribe",), help="Allow more ranks than slots.")
TAG_OUTPUT = Option(flags=("--tag-output",), help="Begin each line of output with its rank.")
LIMITS = (
    Option(flags=("--start-timeout",), value="TIME", kind=span, help="End it unless all ranks are up by then: 2m."),
    Option(flags=("--timeout",), value="TIME", kind=span, help="End it after this time: 90s, 10m, 8h."),
    Option(flags=("--stall-timeout",), value="TIME", kind=span, help="End it when no rank says anything for so long."),
    Option(flags=("--retries",), value="N", kind=lines, help="Start it again when it fails, at most N times."),
    Option(
        flags=("--retry-on",),
        value="WHAT",
        choices=("any", "lost-host"),
        help="any failure (default), or lost-host only.",
    ),
    Option(flags=("--min-np",), value="N", kind=count, help="Again without lost hosts, if N ranks or more stay."),
    Option(
        flags=("--checkpoint-dir",),
        value="DIR",
        kind=words,
        help="KIT_CHECKPOINT_DIR of the ranks (default: a folder on the head, for this run).",
    ),
)
LAUNCHER = (
    Option(
        flags=("--launcher",),
        value="WHICH",
        choices=("mpi", "ps"),
        help="mpi (default), or ps: MXNet's parameter server.",
    ),
    Option(flags=("--servers",), value="N", kind=lines, help="With ps: servers beside the ranks, on the same hosts."),
)
RUN = Operand(name="run", help="A run's id, or its beginning (default: the latest).", optional=True)
FORCE = Option(flags=("-f", "--force"), help="Overwrite files that are there.")

LAB_NAME = Option(flags=("--name",), value="NAME", kind=words, help="Name of the lab (default: the folder's, or lab).")

FAILED = (
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
    ("4", "a step failed on a host"),
)
LOCKED = ("5", "somebody else is changing the cluster, or has taken its lock")
JOB = (
    ("N", "the job's own exit code"),
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
    ("5", "not ready: nothing is deployed, or the image is not here"),
    ("130", "interrupted, and every rank has ended"),
)
