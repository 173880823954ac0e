"""kit lab: make, show and remove VM-like hosts on this machine."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CONSENT, LAB, LAB_NAME
from kit.cli.verbs.values import count, lines, rate, words

GPU_MODELS = ("h200", "h100", "a100", "p100", "t4")
GPU_TOOLKITS = ("hook", "runtime", "swarm", "cdi", "base", "snap", "none")
SYSTEMS = ("debian", "debian-12", "ubuntu")
GPU_FAULTS = ("xid:79", "ecc", "reset", "throttle", "lost", "mig", "busy", "driver-mismatch")

if TYPE_CHECKING:
    from kit.cli.session import Session


def lab_up(session: Session) -> int:
    from kit.cli.text import lab as text
    from kit.flows.lab.lab import lab_up
    from kit.model.lab import LabSpec

    args = session.args
    given = {
        "name": _lab_name(session),
        "hosts": args.lab_hosts,
        # A slot is a GPU where there are GPUs.
        "slots": args.slots or args.gpus,
        "user": args.user,
        "gpus": args.gpus,
        "gpu_model": args.gpu_model,
        "gpu_driver": args.gpu_driver,
        "gpu_toolkit": args.gpu_toolkit,
        "system": args.system,
        "nics": args.nics,
    }
    spec = LabSpec(
        **{key: value for key, value in given.items() if value is not None}, link_rate=args.link_rate, bare=args.bare
    )
    status = lab_up(spec, folder=session.folder, reporter=session.reporter, consent=session.consent)
    session.show("lab", status, session.fitted(text.lab))
    return 0


def lab_status(session: Session) -> int:
    from kit.cli.text import lab as text
    from kit.flows.lab.lab import lab_status

    session.show("lab", lab_status(_lab_name(session), folder=session.folder), session.fitted(text.lab))
    return 0


def lab_down(session: Session) -> int:
    from kit.cli.text import lab as text
    from kit.flows.lab.lab import lab_down

    removed = lab_down(_lab_name(session), folder=session.folder)
    session.show("lab-removed", removed, text.lab_removed)
    return 0


def lab_link_rate(session: Session) -> int:
    from contextlib import suppress

    from kit.flows.lab.lab import lab_link_rate
    from kit.model.quantity import in_words_of_tc

    name, rate = _lab_name(session), session.args.rate
    # The flow refuses what is no rate.
    with suppress(ValueError):
        rate = in_words_of_tc(rate)
    status = lab_link_rate(rate, name, folder=session.folder)
    now = "have no limit now" if rate == "none" else f"now carry {rate} in each direction"
    session.show("lab", status, f"The links of lab {name} {now}.")
    return 0


def lab_gpu(session: Session) -> int:
    from kit.cli.text import lab as text
    from kit.flows.lab.lab import lab_gpu

    args = session.args
    gpus = lab_gpu(
        args.host,
        _lab_name(session),
        folder=session.folder,
        number=args.gpu or 0,
        fault=args.fault,
        mend=args.mend,
    )
    session.show("lab-gpus", gpus, session.fitted(text.gpus))
    return 0


def lab_fault(session: Session) -> int:
    from kit.cli.text import lab as text
    from kit.flows.lab.fault import lab_fault

    args = session.args
    faults = lab_fault(
        args.host, args.fault, args.value or "", _lab_name(session), folder=session.folder, mend=args.mend
    )
    session.show("lab-faults", faults, text.faults)
    return 0


def _fault_names() -> tuple[str, ...]:
    from kit.remote.lab.fault import names

    return (*names(), "all")


def _lab_name(session: Session) -> str:
    from kit.model.lab import LabSpec
    from kit.plan.lab import lab_of
    from kit.remote.lab.access import read

    return str(session.args.name or lab_of(read(session.folder / "kit.yaml") or "") or LabSpec().name)


VERBS = (
    Verb(
        words=("lab", "up"),
        purpose="Make VM-like hosts as containers on this machine, with hosts and kit.yaml for them",
        handler=lab_up,
        group=LAB,
        options=(
            Option(flags=("--hosts",), value="N", kind=count, to="lab_hosts", help="Make N hosts (default: 4)"),
            Option(flags=("--slots",), value="N", kind=count, help="Give each host N slots (default: 2)"),
            Option(flags=("--link-rate",), value="RATE", kind=rate, help="Limit each host's link: 200mbit, 8Gbps"),
            Option(
                flags=("--user",),
                value="USER",
                kind=words,
                complete=lambda _: ("root", "ubuntu"),
                help="Log in to the hosts as root (default) or ubuntu",
            ),
            Option(flags=("--gpus",), value="N", kind=count, help="Pretend N GPUs on each host (default: none)"),
            Option(
                flags=("--gpu-model",),
                value="MODEL",
                choices=GPU_MODELS,
                help="Pretend this model: h200 (default), h100, a100, p100 or t4",
            ),
            Option(
                flags=("--gpu-driver",),
                value="VERSION",
                kind=words,
                help="Pretend this version of the driver (default: 550.54.15)",
            ),
            Option(
                flags=("--gpu-toolkit",),
                value="PART",
                choices=GPU_TOOLKITS,
                help="Have this of NVIDIA's container toolkit: hook (default), runtime, swarm, cdi, base, snap or none",
            ),
            Option(flags=("--bare",), help="Make hosts without an engine, with systemd, sshd, sudo, apt and python3"),
            Option(
                flags=("--system",),
                value="SYSTEM",
                choices=SYSTEMS,
                help="Give bare hosts this user space: debian (default), debian-12 or ubuntu",
            ),
            Option(flags=("--nics",), value="N", kind=count, help="Give each host N network interfaces (default: 1)"),
            LAB_NAME,
            CONSENT,
        ),
        notes="If no Docker Engine answers, or no registry has the base image, kit offers to install what is missing "
        "from the distribution's packages, and names it. This takes root on Debian or Ubuntu. kit asks first. Without "
        "a terminal it installs nothing, unless you give --yes. With --gpus, each host has as many slots as GPUs. "
        "Nothing computes on these GPUs, and their names end with (PRETENDED). Bare hosts can install packages, run an "
        "engine and reboot. The further interfaces are eth1, eth2 …, each in its own network.",
        examples=(
            "kit lab up --hosts 4 --slots 2",
            "kit lab up --hosts 2 --link-rate 200mbit",
            "kit lab up --hosts 2 --gpus 2",
            "kit lab up --hosts 2 --bare --user ubuntu",
        ),
        exits=(
            ("3", "no engine answers"),
            ("4", "a host of the lab cannot be made"),
            ("5", "this machine cannot reach the engine's networks, or another kit lab up is making this lab"),
            ("6", "the image of its hosts cannot be built"),
        ),
    ),
    Verb(
        words=("lab", "status"),
        purpose="Show the lab's hosts",
        handler=lab_status,
        group=LAB,
        options=(LAB_NAME,),
        examples=("kit lab status",),
    ),
    Verb(
        words=("lab", "down"),
        purpose="Remove the lab: containers, network, volumes, files",
        handler=lab_down,
        group=LAB,
        options=(LAB_NAME,),
        examples=("kit lab down",),
    ),
    Verb(
        words=("lab", "link-rate"),
        purpose="Change the rate of a lab's links",
        handler=lab_link_rate,
        group=LAB,
        operands=(Operand(name="rate", help="A rate, such as 200mbit; none removes the limit"),),
        options=(LAB_NAME,),
        notes="The new rate holds in both directions, at once, and also for runs in progress. A host that you stop and "
        "start returns to the rate that the lab was made with.",
        examples=("kit lab link-rate 200mbit", "kit lab link-rate none"),
        exits=(
            ("4", "a link cannot be limited"),
            ("5", "the lab does not exist, or one of its hosts is not running"),
        ),
    ),
    Verb(
        words=("lab", "gpu"),
        purpose="Show the pretended GPUs of a lab host, or give one a fault",
        handler=lab_gpu,
        group=LAB,
        operands=(Operand(name="host", help="A host of the lab, such as gpu3"),),
        options=(
            Option(flags=("--gpu",), value="N", kind=lines, help="Choose GPU N of the host (default: 0)"),
            Option(
                flags=("--fault",),
                value="FAULT",
                kind=words,
                complete=lambda _: GPU_FAULTS,
                help="Give it a fault: xid:79, ecc, reset, throttle, lost, mig, busy or driver-mismatch",
            ),
            Option(flags=("--mend",), help="Mend all faults of the host"),
            LAB_NAME,
        ),
        notes="lost takes all GPUs from the containers that run on the host, as systemctl daemon-reload can. It needs "
        "cgroup v1. driver-mismatch affects all GPUs of the host. Faults stay when the host restarts, except lost.",
        examples=(
            "kit lab gpu gpu3 --fault xid:79",
            "kit lab gpu gpu3 --gpu 1 --fault busy",
            "kit lab gpu gpu3 --mend",
        ),
        exits=(
            ("4", "the GPU cannot have this fault"),
            ("5", "the lab does not exist, has no GPUs, or the host is not running"),
        ),
    ),
    Verb(
        words=("lab", "fault"),
        purpose="Give a lab host a fault that kit doctor finds, or mend it",
        handler=lab_fault,
        group=LAB,
        operands=(
            Operand(name="host", help="A host of the lab, such as gpu3"),
            Operand(
                name="fault",
                help="The name of a check, such as path-mtu; all, with --mend. Without it, kit shows the host's faults",
                optional=True,
                complete=lambda _: _fault_names(),
            ),
            Operand(name="value", help="What the fault uses instead of its default: an MTU, a rate", optional=True),
        ),
        options=(Option(flags=("--mend",), help="Take the fault back"), LAB_NAME),
        notes="docs/lab.md lists the faults. Some are real, such as an MTU or a filtered port. Others only change what "
        "programs on the host read. After a host restarted, give it its faults again.",
        examples=(
            "kit lab fault gpu3 path-mtu",
            "kit lab fault gpu3 mtu-differs 1400",
            "kit lab fault gpu3 path-mtu --mend",
            "kit lab fault gpu3 all --mend",
        ),
        exits=(
            ("4", "the host cannot have this fault"),
            ("5", "the lab does not exist, or the host is not running"),
        ),
    ),
)
