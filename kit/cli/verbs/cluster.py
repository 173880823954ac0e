"""What verbs without a file of their theme do: from the parsed words to the flow, from its result to the terminal.

One function a verb, which returns the exit code.
"""

# Flows bring in fabric, docker and YAML: each verb pays for its own only, and --help for none.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

import kit
from kit.cli.text import cluster as render
from kit.cli.text import lock as locktext
from kit.cli.text.table import hosts
from kit.errors import UnreachableError
from kit.model.run import RUN_ID

if TYPE_CHECKING:
    from kit.cli.session import Session

AUDIT_LINES = 20


def init(session: Session) -> int:
    from kit.flows.cluster.init import init

    result = init(session.folder, force=session.args.force)
    told = " and ".join(str(path) for path in result.written)
    session.show("init", result, f"Wrote {told}. Put your VMs into hosts, then: kit deploy")
    return 0


def schema(session: Session) -> int:
    from kit.flows.cluster.schema import schema

    text = schema()
    if session.json:
        import json

        session.show("schema", {"schema": json.loads(text)}, "")
    else:
        session.terminal.say(text.rstrip("\n"))
    return 0


def deploy(session: Session) -> int:
    from kit.flows.cluster.deploy import deploy

    dry = session.args.dry_run
    result = deploy(session.context(), dry_run=dry, force=session.args.force)
    session.close()
    if dry:
        session.show("plan", result.plan, render.plan(result.plan, verbose=session.args.verbose))
    else:
        session.show("deploy", result, render.deploy(result))
    return 0


def compose(session: Session) -> int:
    from kit.flows.cluster.files import compose_file

    found = compose_file(session.context(), session.args.host)
    session.close()
    session.show("compose-file", found, found.text.rstrip("\n"))
    return 0


def stack(session: Session) -> int:
    from kit.flows.cluster.files import stack_file

    # Whatever Swarm cannot do has to be told, though kit.yaml may say compose.
    session.args.orchestrator = "swarm"
    found = stack_file(session.context())
    session.close()
    session.show("stack-file", found, found.text.rstrip("\n"))
    return 0


def down(session: Session) -> int:
    from kit.flows.cluster.down import down

    context = session.context()
    what = f"cluster {context.spec.name} from {hosts(context.inventory.names)}"
    asks = not session.args.yes and not session.json
    if asks and not session.terminal.agrees(f"Remove {what}?"):
        session.terminal.tell("Nothing was removed.")
        return 0
    result = down(context, images=session.args.images)
    session.close()
    session.show("down", result, render.down(result))
    return 0


def lock_status(session: Session) -> int:
    from kit.flows.cluster.lock import lock_status

    status = lock_status(session.context())
    session.close()
    session.show("lock", status, locktext.lock(status))
    return 0


def lock_release(session: Session) -> int:
    from kit.flows.cluster.lock import lock_release, lock_status

    context = session.context()
    seen = lock_status(context)
    asks = seen.state == "held" and not session.args.yes and not session.json
    if asks and not session.terminal.agrees(f"{locktext.lock(seen)}\nTake it away?"):
        session.terminal.tell("Nothing was done.")
        return 0
    lock_release(context, seen)
    session.close()
    session.show("lock-released", seen, locktext.lock_released(seen))
    return 0


def audit(session: Session) -> int:
    from kit.flows.cluster.lock import read_audit

    result = read_audit(session.context(), session.args.last or AUDIT_LINES)
    session.close()
    for entry in result.entries if session.json else ():
        session.show("audit", entry, "")
    if not session.json:
        session.terminal.say(locktext.audit(result))
    return 0


def ps(session: Session) -> int:
    from kit.flows.cluster.ps import ps

    result = ps(session.context())
    session.close()
    session.show("ps", result, render.ps(result))
    return UnreachableError.exit_code if any(node.problem for node in result.nodes) else 0


def logs(session: Session) -> int:
    args = session.args
    context = session.context()
    if args.host and RUN_ID.fullmatch(args.host):
        from kit.flows.run.runs import run_logs

        run_logs(context, args.host, rank=args.rank, since_s=args.since, follow=args.follow, tagged=args.tag_output)
        return 0
    from kit.flows.cluster.shell import logs

    return logs(context, args.host, tail=args.tail, live=args.follow)


def exec_(session: Session) -> int:
    from kit.flows.cluster.exec import exec_hosts

    result = exec_hosts(session.context(), session.args.hosts, session.args.command)
    session.close()
    session.show("exec", result, render.groups(result))
    return result.exit_code


def ssh(session: Session) -> int:
    from kit.flows.cluster.shell import ssh

    context = session.context()
    session.close()
    command = session.args.command
    ssh(context, session.args.host, command, tty=not command and session.terminal.interactive)
    return 0


def version(session: Session) -> int:
    session.show("version", {"version": kit.__version__}, f"kit {kit.__version__}")
    return 0
