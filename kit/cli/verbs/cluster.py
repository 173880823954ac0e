"""kit deploy, compose, stack, ps and down: the cluster's life."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import BUILDER, CLUSTER, CLUSTERS, DRY_RUN, FAILED, LOCKED, MUST_YES, ORCHESTRATOR, REGISTRY

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.result import PsResult


def deploy(session: Session) -> int:
    from kit.flows.cluster.look import Look

    context = session.context()
    look = Look(context)
    # Now that the hosts are asked.
    from kit.cli.text import cluster as text
    from kit.flows.cluster.deploy import deploy

    dry = session.args.dry_run
    result = deploy(context, dry_run=dry, force=session.args.force, look=look)
    if dry:
        from kit.cli.text import plan as plantext

        width = session.width
        if result.changes:
            session.emit("host-changes", {"changes": result.changes})
        session.show("plan", result.plan, lambda plan: plantext.plan(plan, verbose=session.args.verbose, width=width))
    else:
        session.show("deploy", result, text.deploy)
    return 0


def compose(session: Session) -> int:
    from kit.flows.cluster.compose import compose_file

    file = compose_file(session.context(), session.args.host)
    session.show("compose-file", file, file.text.rstrip("\n"))
    return 0


def stack(session: Session) -> int:
    from kit.flows.cluster.stack import stack_file

    # The settings must be checked for Swarm, even if kit.yaml says compose.
    file = stack_file(session.context({"orchestrator": "swarm"}))
    session.show("stack-file", file, file.text.rstrip("\n"))
    return 0


def ps(session: Session) -> int:
    from kit.cli.text import ps as text
    from kit.flows.cluster.ps import ps

    context = session.context()

    def shown(value: PsResult) -> str:
        return text.ps(value, width=session.terminal.width, verbose=session.args.verbose)

    if session.args.watch:
        from kit.cli.screen.watch import watch

        return watch(session, "ps", lambda: ps(context), shown)
    result = ps(context)
    session.show("ps", result, shown)
    return result.exit_code


def down(session: Session) -> int:
    from kit.cli.text import cluster as text
    from kit.cli.text import plan as plantext
    from kit.events import Warned
    from kit.flows.cluster.before import at_head, left_behind
    from kit.flows.cluster.down import down, plan_down, preview, spare_runs, spare_unknown
    from kit.flows.run.folders import survey
    from kit.model.failures import alike
    from kit.model.text import fold

    args = session.args
    if not args.dry_run:
        session.needs_yes()
    context = session.context()
    state = survey(context)
    context = at_head(context, state.failures)
    left = left_behind(context)
    session.close()
    for failure in alike(state.failures.values()):
        whose = "its" if len(failure.hosts) == 1 else "their"
        warning = f"{fold(failure.hosts)}: {whose} runs are not known: {failure.message}"
        session.reporter.report(Warned(text=warning, hint=failure.hint))
    before = preview(context.spec.name, state, purge=args.purge)
    if args.dry_run:
        plan = plan_down(context, images=args.images, purge=args.purge, stacks=state.stacks)
        session.emit("down-preview", before)
        session.show("plan", plan, lambda plan: plantext.plan(plan, verbose=args.verbose, width=session.width))
        session.terminal.tell(text.down_preview(before, width=session.told_width))
        return 0
    if not args.force:
        # The head of the last deploy may be another host than the first of this hosts file.
        heads = [context.host(name) for name, runs in state.folders.items() if any(run.live for run in runs)]
        spare_runs(context, state.living, heads)
        if unknown := state.failures.get(context.inventory.head.name):
            spare_unknown(unknown)
    session.terminal.tell(text.down_preview(before, width=session.told_width))
    if not session.confirms(f"Remove cluster {context.spec.name} from {fold(context.inventory.names)}?"):
        session.terminal.tell("Nothing was removed.")
        return 0
    how = {"images": args.images, "purge": args.purge, "force": args.force}
    result = down(context, **how, kept=before.keeps, left=left, stacks=state.stacks)
    session.show("down", result, text.down)
    return 0


VERBS = (
    Verb(
        words=("deploy",),
        purpose="Make the hosts a cluster: ship image, keys and files, start, verify",
        handler=deploy,
        group=CLUSTERS,
        options=(
            DRY_RUN,
            Option(
                flags=("--force",),
                help="Recreate containers even if that ends a running job or leaves runs in line on an earlier head",
            ),
            ORCHESTRATOR,
            BUILDER,
            REGISTRY,
            *CLUSTER,
        ),
        examples=(
            "kit deploy",
            "kit deploy --dry-run",
            "kit deploy --network 10.0.0.0/16 --ssh-user ubuntu",
            "kit deploy --registry registry.example.com:5000/team",
        ),
        exits=(*FAILED, LOCKED, ("6", "the image cannot be found, built, shipped or pulled")),
    ),
    Verb(
        words=("compose",),
        purpose="Print a host's Compose file, to read or to run by hand",
        handler=compose,
        group=CLUSTERS,
        operands=(
            Operand(
                name="host",
                help="A host: its name or address, or head (default: head)",
                optional=True,
                complete=candidates.host,
            ),
        ),
        options=CLUSTER,
        notes="This is the file that kit deploy writes on the host. It has the variables of env: in it.",
        examples=("kit compose gpu2 > compose.yaml",),
        exits=FAILED,
    ),
    Verb(
        words=("stack",),
        purpose="Print the stack file for Swarm, to read or to run by hand",
        handler=stack,
        group=CLUSTERS,
        options=CLUSTER,
        notes="This is the file that kit deploy --orchestrator swarm writes on the head. It has the variables of env: "
        "in it. It has no keys: they are secrets of the swarm, and the file names them.",
        examples=("kit stack > stack.yaml",),
        exits=FAILED,
    ),
    Verb(
        words=("ps",),
        purpose="Show hosts, containers, images and running ranks",
        handler=ps,
        group=CLUSTERS,
        options=(
            Option(flags=("-w", "--watch"), help="Look again every 5 seconds, until Ctrl-C"),
            *CLUSTER,
        ),
        notes="With more than 16 hosts, hosts that differ only in name and address share a row. Its slots, GPUs and "
        "ranks are those of each host. -v prints a row for each host, and cuts nothing.",
        examples=("kit ps", "kit ps --watch", "kit ps --output json"),
        exits=(
            ("2", "a flag, hosts or kit.yaml is wrong"),
            ("3", "a host cannot be reached; kit shows the others"),
            ("5", "a node is down or not deployed; kit shows the others"),
        ),
    ),
    Verb(
        words=("down",),
        purpose="Remove the cluster from every host: containers, keys, files; keep what runs made",
        handler=down,
        group=CLUSTERS,
        options=(
            DRY_RUN,
            Option(flags=("--images",), help="Remove kit's images from the hosts, too"),
            Option(flags=("--purge",), help="Delete what runs made, too: outputs, checkpoints, working folders, HOME"),
            Option(flags=("--force",), help="Remove the cluster even if that ends a running job"),
            MUST_YES,
            *CLUSTER,
        ),
        notes="kit says which runs it deletes and what it keeps, then asks. Without a terminal, it needs --yes. Runs "
        "that made nothing are deleted with their logs. The results of others stay on their hosts: after another kit "
        "deploy, kit pull brings them home. What jobs wrote to HOME, such as caches of models, stays for the next kit "
        "deploy. The audit stays on the head.",
        examples=("kit down", "kit down --dry-run", "kit down --images --yes", "kit down --purge --yes"),
        exits=(*FAILED, ("5", "a run is active, or another kit is changing the cluster")),
    ),
)
