"""One function a verb: from the parsed words to the flow, from its result to the terminal. Returns the exit code."""

# Flows bring in fabric, docker, pydantic and YAML: each verb pays for its own only, and --help for none.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

import kit
from kit.cli import render
from kit.errors import Interrupted, NotReadyError, UnreachableError
from kit.events import Note
from kit.model.launch import RunPolicy, RunRequest
from kit.model.run import RUN_ID, RunRecord

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.remote.launch import Door

AUDIT_LINES = 20


def init(session: Session) -> int:
    from kit.flows.init import init

    result = init(session.folder, force=session.args.force)
    told = " and ".join(str(path) for path in result.written)
    session.show("init", result, f"Wrote {told}. Put your VMs into hosts, then: kit deploy")
    return 0


def schema(session: Session) -> int:
    from kit.flows.schema import schema

    text = schema()
    if session.json:
        import json

        session.show("schema", {"schema": json.loads(text)}, "")
    else:
        session.terminal.say(text.rstrip("\n"))
    return 0


def image_build(session: Session) -> int:
    from kit.flows.build import build_image

    result = build_image(session.spec().image, reporter=session.reporter, force=session.args.force)
    session.close()
    session.show("image", result, render.image(result) if not session.json else "")
    return 0


def image_tag(session: Session) -> int:
    from kit.flows.image import content

    tag = content(session.spec().image).tag
    session.show("image-tag", {"tag": tag}, tag)
    return 0


def image_render(session: Session) -> int:
    from kit.flows.image import content

    dockerfile = content(session.spec().image).files["Dockerfile"].decode()
    session.show("dockerfile", {"dockerfile": dockerfile}, dockerfile.rstrip("\n"))
    return 0


def deploy(session: Session) -> int:
    from kit.flows.deploy import deploy

    dry = session.args.dry_run
    result = deploy(session.context(), dry_run=dry, force=session.args.force)
    session.close()
    if dry:
        session.show("plan", result.plan, render.plan(result.plan, verbose=session.args.verbose))
    else:
        session.show("deploy", result, render.deploy(result))
    return 0


def down(session: Session) -> int:
    from kit.flows.down import down

    context = session.context()
    what = f"cluster {context.spec.name} from {render.hosts(context.inventory.names)}"
    asks = not session.args.yes and not session.json
    if asks and not session.terminal.agrees(f"Remove {what}?"):
        session.terminal.tell("Nothing was removed.")
        return 0
    result = down(context, images=session.args.images)
    session.close()
    session.show("down", result, render.down(result))
    return 0


def lock_status(session: Session) -> int:
    from kit.flows.lock import lock_status

    status = lock_status(session.context())
    session.close()
    session.show("lock", status, render.lock(status))
    return 0


def lock_release(session: Session) -> int:
    from kit.flows.lock import lock_release, lock_status

    context = session.context()
    seen = lock_status(context)
    asks = seen.state == "held" and not session.args.yes and not session.json
    if asks and not session.terminal.agrees(f"{render.lock(seen)}\nTake it away?"):
        session.terminal.tell("Nothing was done.")
        return 0
    lock_release(context, seen)
    session.close()
    session.show("lock-released", seen, render.lock_released(seen))
    return 0


def audit(session: Session) -> int:
    from kit.flows.lock import read_audit

    result = read_audit(session.context(), session.args.last or AUDIT_LINES)
    session.close()
    for entry in result.entries if session.json else ():
        session.show("audit", entry, "")
    if not session.json:
        session.terminal.say(render.audit(result))
    return 0


def run(session: Session) -> int:
    args = session.args
    dialled = None if args.dry_run else session.dial()
    try:
        return _run(session, dialled)
    except BaseException:
        if dialled is not None:
            dialled.close()
        raise


def _run(session: Session, dialled: Door | None) -> int:
    from kit.cli import runtext
    from kit.flows.run import run

    args = session.args
    request = RunRequest(
        np=args.np,
        npernode=args.npernode,
        env=tuple(args.env),
        hosts=args.hosts,
        oversubscribe=args.oversubscribe,
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        detach=args.detach,
        wait=args.wait,
        policy=_policy(session),
        command=args.command,
    )
    result = run(session.context(), request, dialled=dialled)
    session.close()
    if args.dry_run:
        session.show("launch", result.plan, render.launch(result.plan))
        return 0
    if args.detach:
        session.show("run", result, result.plan.run_id)
        return 0
    session.show("run", result, "")
    return _job_ended(session, result.exit_code, runtext.ended(result))


def _policy(session: Session) -> RunPolicy:
    args = session.args
    given = {
        "operator": None if args.detach else "keep" if args.keep else "stop",
        "share": args.oversubscribe,
        "start_timeout": args.start_timeout,
        "timeout": args.timeout,
        "stall_timeout": args.stall_timeout,
        "retries": args.retries,
        "retry_on": args.retry_on,
        "min_np": args.min_np,
        "checkpoints": args.checkpoint_dir,
    }
    return RunPolicy(**{k: v for k, v in given.items() if v is not None or k == "operator"})


def runs(session: Session) -> int:
    from kit.cli import runtext
    from kit.flows.runs import listing

    result = listing(session.context())
    session.close()
    session.show("runs", result, runtext.runs(result))
    return 0


def attach(session: Session) -> int:
    from kit.flows.runs import attach

    ended = attach(session.context(), session.args.run, tagged=session.args.tag_output)
    session.close()
    return _run_told(session, ended)


def wait(session: Session) -> int:
    from kit.flows.runs import wait

    ended = wait(session.context(), session.args.run)
    session.close()
    # Whoever waits wants to know that it has ended.
    return _run_told(session, ended, still_running=Interrupted.exit_code)


def stop(session: Session) -> int:
    from kit.cli import runtext
    from kit.flows.runs import stop

    result = stop(session.context(), session.args.run, grace_s=session.args.grace)
    session.close()
    session.show("run", result, runtext.stop(result))
    return 0


def _run_told(session: Session, ended: RunRecord, *, still_running: int = 0) -> int:
    from kit.cli import runtext

    session.show("run", ended, "")
    if ended.state == "lost":
        session.terminal.tell(runtext.story(ended))
        return NotReadyError.exit_code
    if ended.state != "running":
        return _job_ended(session, ended.exit_code, runtext.story(ended))
    session.terminal.tell(f"run {ended.id} goes on; kit attach {ended.id} shows it again, kit stop {ended.id} ends it")
    return still_running


def local(session: Session) -> int:
    from kit.flows.local import local

    args = session.args
    request = RunRequest(
        np=args.np,
        env=tuple(args.env),
        tag_output=args.tag_output,
        dry_run=args.dry_run,
        command=args.command,
    )
    result = local(session.spec(), session.folder, request, reporter=session.reporter)
    session.close()
    session.show("local", result, render.local(result) if args.dry_run else "")
    return 0 if args.dry_run else _job_ended(session, result.exit_code)


def ps(session: Session) -> int:
    from kit.flows.ps import ps

    result = ps(session.context())
    session.close()
    session.show("ps", result, render.ps(result))
    return UnreachableError.exit_code if any(node.problem for node in result.nodes) else 0


def logs(session: Session) -> int:
    args = session.args
    context = session.context()
    if args.host and RUN_ID.fullmatch(args.host):
        from kit.flows.runs import run_logs

        run_logs(context, args.host, rank=args.rank, since_s=args.since, follow=args.follow, tagged=args.tag_output)
        return 0
    from kit.flows.shell import logs

    return logs(context, args.host, tail=args.tail, live=args.follow)


def exec_(session: Session) -> int:
    from kit.flows.exec import exec_hosts

    result = exec_hosts(session.context(), session.args.hosts, session.args.command)
    session.close()
    session.show("exec", result, render.groups(result))
    return result.exit_code


def ssh(session: Session) -> int:
    from kit.flows.shell import ssh

    context = session.context()
    session.close()
    command = session.args.command
    ssh(context, session.args.host, command, tty=not command and session.terminal.interactive)
    return 0


def lab_up(session: Session) -> int:
    from kit.flows.lab import lab_up
    from kit.model.lab import LabSpec

    args = session.args
    asked = {"name": args.name, "hosts": args.lab_hosts, "slots": args.slots, "user": args.user}
    spec = LabSpec(**{key: value for key, value in asked.items() if value is not None}, link_rate=args.link_rate)
    status = lab_up(spec, folder=session.folder, reporter=session.reporter)
    session.close()
    session.show("lab", status, "" if session.json else render.lab(status))
    return 0


def lab_status(session: Session) -> int:
    from kit.flows.lab import lab_status

    status = lab_status(_lab_name(session), folder=session.folder)
    session.show("lab", status, "" if session.json else render.lab(status))
    return 0


def lab_down(session: Session) -> int:
    from kit.flows.lab import lab_down

    removed = lab_down(_lab_name(session), folder=session.folder, reporter=session.reporter)
    session.close()
    session.show("lab-removed", removed, "" if session.json else render.lab_removed(removed))
    return 0


def version(session: Session) -> int:
    session.show("version", {"version": kit.__version__}, f"kit {kit.__version__}")
    return 0


def _lab_name(session: Session) -> str:
    from kit.model.lab import LabSpec

    return str(session.args.name or LabSpec().name)


def _job_ended(session: Session, code: int | None, story: str = "") -> int:
    if story:
        session.terminal.tell(story)
    elif code:
        session.reporter.report(Note(text=f"kit: the job ended with exit code {code}"))
    return code or 0
