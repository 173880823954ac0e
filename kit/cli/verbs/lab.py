"""kit lab: its verbs, and what they do."""

# Flows are imported by the verb that needs them; --help needs none.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Operand, Option, Verb, count, rate, words
from kit.cli.verbs.options import CONSENT, LAB_NAME

if TYPE_CHECKING:
    from kit.cli.session import Session

GROUP = "A cluster to try"

VERBS = (
    Verb(
        words=("lab", "up"),
        purpose="Make VM-like hosts as containers on this machine, with hosts and kit.yaml for them.",
        handler="lab.lab_up",
        group=GROUP,
        options=(
            Option(flags=("--hosts",), value="N", kind=count, to="lab_hosts", help="How many hosts (default: 4)."),
            Option(flags=("--slots",), value="N", kind=count, help="Slots of each host (default: 2)."),
            Option(flags=("--link-rate",), value="RATE", kind=rate, help="Slow each host's link, to 200mbit, say."),
            Option(flags=("--user",), value="USER", kind=words, help="Login of the hosts: root (default) or ubuntu."),
            LAB_NAME,
            CONSENT,
        ),
        notes="Where no Docker Engine answers, or no registry gives the base image, kit offers to install what is "
        "missing from the distribution's packages, as root (Debian, Ubuntu), and names it. It asks first. Without a "
        "terminal it installs nothing, unless you give --yes.",
        examples=("kit lab up --hosts 4 --slots 2", "kit lab up --hosts 2 --link-rate 200mbit"),
        exits=(
            ("3", "no engine answers"),
            ("4", "a host of the lab cannot be made"),
            ("6", "the image of its hosts cannot be built"),
        ),
    ),
    Verb(
        words=("lab", "status"),
        purpose="Show the lab's hosts.",
        handler="lab.lab_status",
        group=GROUP,
        options=(LAB_NAME,),
        examples=("kit lab status",),
    ),
    Verb(
        words=("lab", "down"),
        purpose="Remove the lab: containers, network, volumes, files.",
        handler="lab.lab_down",
        group=GROUP,
        options=(LAB_NAME,),
        examples=("kit lab down",),
    ),
    Verb(
        words=("lab", "link-rate"),
        purpose="Give the links of a standing lab another rate.",
        handler="lab.lab_link_rate",
        group=GROUP,
        operands=(Operand(name="rate", help="Such as 200mbit; none takes the limit away."),),
        options=(LAB_NAME,),
        notes="In both directions, at once, also under runs that go on. A host that is stopped and started has again "
        "what the lab was made with.",
        examples=("kit lab link-rate 200mbit", "kit lab link-rate none"),
        exits=(("4", "a link cannot be limited"), ("5", "there is no such lab, or a host of it does not run")),
    ),
)


def lab_up(session: Session) -> int:
    from kit.cli.text import lab as render
    from kit.flows.lab.lab import lab_up
    from kit.model.lab import LabSpec

    args = session.args
    asked = {"name": _lab_name(session), "hosts": args.lab_hosts, "slots": args.slots, "user": args.user}
    spec = LabSpec(**{key: value for key, value in asked.items() if value is not None}, link_rate=args.link_rate)
    status = lab_up(spec, folder=session.folder, reporter=session.reporter, consent=session.consent)
    session.close()
    session.show("lab", status, "" if session.json else render.lab(status))
    return 0


def lab_status(session: Session) -> int:
    from kit.cli.text import lab as render
    from kit.flows.lab.lab import lab_status

    status = lab_status(_lab_name(session), folder=session.folder)
    session.show("lab", status, "" if session.json else render.lab(status))
    return 0


def lab_down(session: Session) -> int:
    from kit.cli.text import lab as render
    from kit.flows.lab.lab import lab_down

    removed = lab_down(_lab_name(session), folder=session.folder, reporter=session.reporter)
    session.close()
    session.show("lab-removed", removed, "" if session.json else render.lab_removed(removed))
    return 0


def lab_link_rate(session: Session) -> int:
    from kit.flows.lab.lab import lab_link_rate

    name, rate = _lab_name(session), session.args.rate
    status = lab_link_rate(rate, name, folder=session.folder)
    session.close()
    how = "are not limited any more" if rate == "none" else f"now carry {rate} in each direction"
    session.show("lab", status, f"The links of the lab {name} {how}.")
    return 0


def _lab_name(session: Session) -> str:
    from kit.model.lab import LabSpec
    from kit.plan.lab import lab_of
    from kit.remote.lab.access import read

    return str(session.args.name or lab_of(read(session.folder / "kit.yaml") or "") or LabSpec().name)
