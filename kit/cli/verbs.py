"""The table of verbs: all that kit can be asked for, with purpose, options, examples and exit codes."""

from __future__ import annotations

from kit.cli.grammar import Operand, Option, Verb, count, lines, port, rate, span, variable, words

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

_DRY_RUN = Option(flags=("--dry-run",), help="Print what would be done, and change nothing.")
_YES = Option(flags=("-y", "--yes"), help="Do not ask (nor is asked where there is no terminal).")
_NP = Option(flags=("-n", "-np", "--np"), value="N", kind=count, help="Ranks in all (default: every slot).")
_NP_LOCAL = Option(flags=_NP.flags, value="N", kind=count, help="Ranks (default: slots in kit.yaml, or 1).")
_NPERNODE = Option(flags=("-npernode", "--npernode"), value="N", kind=count, help="Ranks on each host, at most.")
_X = Option(
    flags=("-x",),
    value="VAR[=VALUE]",
    kind=variable,
    many=True,
    to="env",
    help="A variable for every rank; without a value, this shell's. May be given again.",
)
_OVERSUBSCRIBE = Option(flags=("--oversubscribe",), help="Allow more ranks than slots.")
_TAG_OUTPUT = Option(flags=("--tag-output",), help="Begin each line of output with its rank.")
_LIMITS = (
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
_RUN = Operand(name="run", help="A run's id, or its beginning (default: the latest).", optional=True)
_FORCE = Option(flags=("-f", "--force"), help="Overwrite files that are there.")

_LAB_NAME = Option(flags=("--name",), value="NAME", kind=words, help="Name of the lab (default: lab).")

_FAILED = (
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
    ("4", "a step failed on a host"),
)
_LOCKED = ("5", "somebody else is changing the cluster, or has taken its lock")
_JOB = (
    ("N", "the job's own exit code"),
    ("2", "a flag, hosts or kit.yaml is wrong"),
    ("3", "a host cannot be reached"),
    ("5", "not ready: nothing is deployed, or the image is not here"),
    ("130", "interrupted, and every rank has ended"),
)

START, CLUSTERS, WORK, LAB = "Start", "The cluster", "Work on it", "A cluster to try"

VERBS = (
    Verb(
        words=("init",),
        purpose="Write hosts and kit.yaml to edit.",
        handler="init",
        group=START,
        options=(_FORCE,),
        examples=("kit init", "kit -C ~/resnet init"),
    ),
    Verb(
        words=("schema",),
        purpose="Print the JSON schema of kit.yaml, for editors.",
        handler="schema",
        group=START,
        examples=("kit schema > kit.schema.json",),
    ),
    Verb(
        words=("image", "build"),
        purpose="Build the image that every node runs, if it is not here yet.",
        handler="image_build",
        group=START,
        options=(Option(flags=("-f", "--force"), help="Build again, though the image is here."),),
        examples=("kit image build", "kit image build --progress plain"),
        exits=(("6", "the image cannot be built"),),
    ),
    Verb(
        words=("image", "tag"),
        purpose="Print the image's tag: a hash of all that goes into it.",
        handler="image_tag",
        group=START,
        examples=('docker image inspect "$(kit image tag)"',),
    ),
    Verb(
        words=("image", "render"),
        purpose="Print the Dockerfile that kit.yaml asks for, and build nothing.",
        handler="image_render",
        group=START,
        examples=("kit image render | less",),
    ),
    Verb(
        words=("deploy",),
        purpose="Make the hosts a cluster: ship the image, keys and Compose files, start, verify.",
        handler="deploy",
        group=CLUSTERS,
        options=(
            _DRY_RUN,
            Option(flags=("--force",), help="Also where that ends a run: its containers are made anew."),
            *CLUSTER,
        ),
        examples=("kit deploy", "kit deploy --dry-run", "kit deploy --network 10.0.0.0/16 --ssh-user ubuntu"),
        exits=(*_FAILED, _LOCKED, ("6", "the image cannot be found or shipped")),
    ),
    Verb(
        words=("ps",),
        purpose="Show hosts, containers, image and running ranks.",
        handler="ps",
        group=CLUSTERS,
        options=CLUSTER,
        examples=("kit ps", "kit ps --output json"),
        exits=(("2", "a flag, hosts or kit.yaml is wrong"), ("3", "a host cannot be looked at; the others are shown")),
    ),
    Verb(
        words=("down",),
        purpose="Take the cluster off every host: ranks, containers, keys, files.",
        handler="down",
        group=CLUSTERS,
        options=(
            Option(flags=("--images",), help="Remove kit's images from the hosts, too."),
            _YES,
            *CLUSTER,
        ),
        examples=("kit down", "kit down --images --yes"),
        exits=(*_FAILED, _LOCKED),
    ),
    Verb(
        words=("lock", "status"),
        purpose="Show who is changing the cluster: deploy and down hold its lock meanwhile.",
        handler="lock_status",
        group=CLUSTERS,
        options=CLUSTER,
        examples=("kit lock status", "kit lock status --output json"),
        exits=_FAILED,
    ),
    Verb(
        words=("lock", "release"),
        purpose="Take the lock from its holder, whose deploy or down stops before its next step.",
        handler="lock_release",
        group=CLUSTERS,
        options=(_YES, *CLUSTER),
        notes="Not needed after a kit that was killed or lost its line: the lock then goes by itself, within 30 s.",
        examples=("kit lock release", "kit lock release --yes"),
        exits=(*_FAILED, ("5", "the lock has another holder by now")),
    ),
    Verb(
        words=("audit",),
        purpose="Show who changed the cluster, when and how: deploys and released locks.",
        handler="audit",
        group=CLUSTERS,
        options=(
            Option(flags=("-n", "--last"), value="N", kind=count, help="Only the last N changes (default: 20)."),
            *CLUSTER,
        ),
        notes="It is kept on the head's VM with the cluster's files, and goes with them: after kit down there is none.",
        examples=("kit audit", "kit audit -n 5 --output json"),
        exits=_FAILED,
    ),
    Verb(
        words=("run",),
        purpose="Run a command on the cluster's ranks with mpirun; its exit code is kit's.",
        handler="run",
        group=WORK,
        command="rest",
        options=(
            _NP,
            Option(
                flags=("-npernode", "--npernode"),
                value="N",
                kind=count,
                help="Ranks on each host (default: its slots).",
            ),
            _X,
            Option(
                flags=("-H", "--host"),
                value="HOST,…",
                kind=words,
                to="hosts",
                help="Only these hosts, such as gpu1 or gpu[1-4].",
            ),
            _OVERSUBSCRIBE,
            _TAG_OUTPUT,
            Option(flags=("-d", "--detach"), help="Start it, print its id, and leave it running."),
            Option(flags=("--keep",), help="Let it go on when this kit is killed or cut off (default: it is ended)."),
            Option(flags=("--wait",), help="Wait for slots that other runs hold."),
            *_LIMITS,
            _DRY_RUN,
            *CLUSTER,
        ),
        notes="The command is everything from the first plain word or -- on, with its own flags. Without one, "
        "kit.yaml's command is run. Ctrl-C ends every rank on every host before kit returns. A limit that is "
        "reached tells what each rank was doing, and ends the run with exit code 124.",
        examples=(
            "kit run --np 8 --npernode 2",
            "kit run -np 4 -x NCCL_DEBUG=INFO python train.py --lr 0.1",
            "kit run -H 'gpu[1-2]' --dry-run -- tf_benchmark --model resnet50",
            "kit run -d --timeout 8h --retries 3 -- python train.py",
        ),
        exits=_JOB,
    ),
    Verb(
        words=("local",),
        purpose="Run a command on this machine's engine alone, with nothing deployed.",
        handler="local",
        group=WORK,
        command="rest",
        options=(
            Option(
                flags=("-n", "-np", "--np"), value="N", kind=count, help="Ranks (default: slots in kit.yaml, or 1)."
            ),
            _X,
            _TAG_OUTPUT,
            _DRY_RUN,
        ),
        notes="The container has the image, volumes, env, shm_size and ulimits of kit.yaml, and this machine's GPUs. "
        "It is removed when the command ends, or on Ctrl-C.",
        examples=("kit local --np 2", "kit local --np 2 -- tf_benchmark --model resnet50 --batch-size 4"),
        exits=_JOB,
    ),
    Verb(
        words=("runs",),
        purpose="Show the cluster's runs, those that ended too.",
        handler="runs",
        group=WORK,
        options=CLUSTER,
        examples=("kit runs", "kit runs --output json"),
        exits=_FAILED,
    ),
    Verb(
        words=("attach",),
        purpose="Show all that a run has printed, then what it prints; Ctrl-C leaves it running.",
        handler="attach",
        group=WORK,
        operands=(_RUN,),
        options=(_TAG_OUTPUT, *CLUSTER),
        examples=("kit attach", "kit attach 20261121-101500-3fa2"),
        exits=_JOB,
    ),
    Verb(
        words=("wait",),
        purpose="Wait for the end of a run; its exit code is kit's.",
        handler="wait",
        group=WORK,
        operands=(_RUN,),
        options=CLUSTER,
        examples=("kit wait && kit run -- python evaluate.py",),
        exits=_JOB,
    ),
    Verb(
        words=("stop",),
        purpose="End a run: every rank on every host, and nothing else.",
        handler="stop",
        group=WORK,
        operands=(_RUN,),
        options=(
            Option(
                flags=("--grace",),
                value="TIME",
                kind=span,
                help="What ranks have between TERM and KILL (default: 10s).",
            ),
            *CLUSTER,
        ),
        examples=("kit stop", "kit stop 20261121-101500-3fa2 --grace 2m"),
        exits=_FAILED,
    ),
    Verb(
        words=("logs",),
        purpose="Print the log of a run, or of the nodes' containers.",
        handler="logs",
        group=WORK,
        operands=(Operand(name="host", help="A run's id, or a host (default: all hosts).", optional=True),),
        options=(
            Option(flags=("-f", "--follow"), help="Go on as lines come, until Ctrl-C."),
            Option(flags=("--tail",), value="N", kind=lines, help="Of a host: only its last N lines."),
            Option(flags=("--rank",), value="N", kind=lines, help="Of a run: only this rank's lines."),
            Option(flags=("--since",), value="TIME", kind=span, help="Of a run: only lines of the last 10m, say."),
            _TAG_OUTPUT,
            *CLUSTER,
        ),
        examples=("kit logs", "kit logs gpu3 -f --tail 20", "kit logs 20261121-101500-3fa2 --rank 3 --since 10m"),
        exits=_FAILED,
    ),
    Verb(
        words=("exec",),
        purpose="Run a command in the nodes' containers; equal output is told once.",
        handler="exec_",
        group=WORK,
        command="dashes",
        needs_command=True,
        operands=(Operand(name="hosts", help="Such as gpu1,gpu3 or gpu[1-4] (default: all).", optional=True),),
        options=CLUSTER,
        examples=("kit exec -- nvidia-smi -L", "kit exec 'gpu[1-4]' -- df -h /data"),
        exits=(("N", "the greatest exit code of the command"), *_FAILED[:2]),
    ),
    Verb(
        words=("ssh",),
        purpose="Open a shell on a VM, or run one command there.",
        handler="ssh",
        group=WORK,
        command="dashes",
        operands=(Operand(name="host", help="A name of the hosts file."),),
        options=CLUSTER,
        examples=("kit ssh gpu2", "kit ssh gpu2 -- nvidia-smi"),
        exits=(("N", "ssh's own exit code"),),
    ),
    Verb(
        words=("lab", "up"),
        purpose="Make VM-like hosts as containers on this machine, with hosts and kit.yaml for them.",
        handler="lab_up",
        group=LAB,
        options=(
            Option(flags=("--hosts",), value="N", kind=count, to="lab_hosts", help="How many hosts (default: 4)."),
            Option(flags=("--slots",), value="N", kind=count, help="Slots of each host (default: 2)."),
            Option(flags=("--link-rate",), value="RATE", kind=rate, help="Slow each host's link, to 200mbit, say."),
            Option(flags=("--user",), value="USER", kind=words, help="Login of the hosts: root (default) or ubuntu."),
            _LAB_NAME,
        ),
        examples=("kit lab up --hosts 4 --slots 2", "kit lab up --hosts 2 --link-rate 200mbit"),
        exits=(("4", "a host of the lab could not be made"),),
    ),
    Verb(
        words=("lab", "status"),
        purpose="Show the lab's hosts.",
        handler="lab_status",
        group=LAB,
        options=(_LAB_NAME,),
        examples=("kit lab status",),
    ),
    Verb(
        words=("lab", "down"),
        purpose="Remove the lab: containers, network, volumes, files.",
        handler="lab_down",
        group=LAB,
        options=(_LAB_NAME,),
        examples=("kit lab down",),
    ),
    Verb(
        words=("version",),
        purpose="Print kit's version.",
        handler="version",
        group=START,
        examples=("kit version",),
    ),
)

# What people of other tools type first.
FAMILIAR = {
    "apply": "deploy",
    "kill": "stop",
    "build": "image build",
    "cluster": "ps",
    "create": "deploy",
    "delete": "down",
    "destroy": "down",
    "history": "audit",
    "horovodrun": "run",
    "launch": "run",
    "list": "ps",
    "log": "logs",
    "ls": "ps",
    "mpirun": "run",
    "remove": "down",
    "rm": "down",
    "shell": "ssh",
    "start": "deploy",
    "status": "ps",
    "submit": "run",
    "teardown": "down",
    "top": "ps",
    "train": "run",
    "unlock": "lock release",
    "up": "deploy",
}
