"""kit setup: bare VMs become hosts on which kit deploy works."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import CLUSTER, DRY_RUN, FAILED, HOSTS, START
from kit.cli.verbs.values import areas, count

if TYPE_CHECKING:
    from kit.cli.session import Session


def setup(session: Session) -> int:
    from kit.cli.screen import jsonout
    from kit.cli.text import plan as plantext
    from kit.cli.text import setup as text
    from kit.config.selection import select_hosts
    from kit.flows.setup.setup import SetupRequest, preview, setup
    from kit.model.setup.areas import AREAS
    from kit.model.values import replace

    args = session.args
    context = session.context()
    if args.hosts:
        context = replace(context, inventory=select_hosts(context.inventory, args.hosts))
    request = SetupRequest(areas=args.only or AREAS, undo=args.undo, reboot=args.allow_reboot)
    if args.dry_run:
        result = preview(context, request)
        width = session.width

        def shown(_fields: object) -> str:
            return plantext.setup_plan(result.plan, undo=args.undo, verbose=args.verbose, width=width)

        session.show("plan", jsonout.setup_plan(result), shown)
        return 0
    session.show("setup", setup(context, request), text.setup)
    return 0


VERBS = (
    Verb(
        words=("setup",),
        purpose="Make bare VMs ready: Docker, NVIDIA's driver and toolkit, kernel settings, clocks, huge pages, MTU",
        handler=setup,
        group=START,
        options=(
            HOSTS,
            Option(
                flags=("--only",),
                value="WHAT,…",
                kind=areas,
                joins=True,
                help="Do only these: docker, driver, toolkit, sysctl, clocks, hugepages, mtu",
            ),
            DRY_RUN,
            Option(flags=("--undo",), help="Restore the files and values that kit setup changed; packages stay"),
            Option(flags=("--allow-reboot",), help="Reboot hosts that need it, one after the other"),
            Option(flags=("--mtu",), value="N", kind=count, help="Set the MTU of the cluster's interface (setup.mtu)"),
            Option(
                flags=("--hugepages",),
                value="N",
                kind=count,
                help="Reserve N huge pages of 1 GiB on each host (setup.hugepages)",
            ),
            *CLUSTER,
        ),
        notes="kit setup installs packages on Debian and Ubuntu. It keeps an engine, a driver and a toolkit that work. "
        "A new MTU goes back after 60 s unless kit confirms it over a new connection. The second time, there is "
        "nothing to do.",
        examples=(
            "kit setup --dry-run",
            "kit setup",
            "kit setup -H gpu3 --only docker",
            "kit setup --mtu 9000",
            "kit setup --hugepages 16 --allow-reboot",
            "kit setup --allow-reboot",
            "kit setup --undo --only mtu",
        ),
        exits=(
            *FAILED,
            ("5", "a restart of the engine or a reboot would end containers, or another kit setup is at work"),
        ),
    ),
)
