"""kit logs, exec and ssh: on the hosts and in their nodes, without mpirun."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import CLUSTER, FAILED, HOSTS, RANK, RAW, SINCE, TAG_OUTPUT, TAIL, WORK
from kit.cli.verbs.tty import check_terminal
from kit.errors import InputError
from kit.model.names import LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import SimpleNamespace

    from kit.cli.session import Session
    from kit.model.host import Inventory


def logs(session: Session) -> int:
    args = session.args
    context = session.context()
    if args.nodes or args.hosts or (args.run and not is_run(args.run, context.inventory.names)):
        if args.rank is not None or args.tag_output:
            raise InputError(
                "--rank and --tag-output are for the log of a run",
                hint="name a run instead of hosts: kit logs ID",
            )
        from kit.flows.cluster.logs import logs

        if args.hosts and args.run:
            raise InputError(f"hosts are given twice: '{args.run}' and by -H", hint="name them once")
        if args.run and not args.nodes:
            _check_named(args.run, context.inventory)
        return logs(context, args.hosts or args.run, tail=args.tail, since_s=args.since, live=args.follow)
    from kit.flows.run.dial import dialled

    with dialled(context) as door:
        from kit.flows.run.attach import run_logs

        part = {"rank": args.rank, "since_s": args.since, "tail": args.tail, "tagged": args.tag_output}
        run = None if args.run == LATEST else args.run
        session.remember([run_logs(context, run, **part, follow=args.follow, door=door).id])
    return 0


def is_run(word: str, hosts: Sequence[str]) -> bool:
    """Return whether the word is latest, or the id of a run or the beginning of one, and is not a host's name."""
    import re

    ids = r"[0-9]{4,8}|[0-9]{8}-[0-9]{0,6}|[0-9]{8}-[0-9]{6}-[0-9a-f]*"
    return word not in hosts and (word == LATEST or bool(re.fullmatch(ids, word)))


def _check_named(word: str, inventory: Inventory) -> None:
    """Raise InputError if the word, which is no run's id, names no hosts either."""
    from kit.config.selection import select_hosts

    try:
        select_hosts(inventory, word)
    except InputError as error:
        hint = error.hint or ""
        runs = " Or list the runs: kit runs" if hint.endswith("?") else "; or list the runs: kit runs"
        raise InputError(f"{error.message}, nor is it a run's id", hint=hint + runs) from None


def exec_(session: Session) -> int:
    from kit.config.command import check_command

    args = session.args
    check_command(args.command, verb=_exec_as_typed(args))
    if args.tty:
        return _exec_in_terminal(session)
    if session.json:
        from kit.flows.cluster.exec import exec_hosts

        result = exec_hosts(session.context(), args.hosts, args.command, stdin=session.terminal.piped)
        session.show("exec", result)
        return result.exit_code
    return _exec_as_text(session)


def _exec_as_typed(args: SimpleNamespace) -> str:
    """Return `kit exec -it gpu1`. Advice without the hosts would run the command on all of them."""
    import shlex

    flags = "".join(letter for letter, on in (("b", args.fold), ("i", args.interactive), ("t", args.tty)) if on)
    return " ".join(["kit exec", *([f"-{flags}"] if flags else []), *([shlex.quote(args.hosts)] if args.hosts else [])])


def _exec_in_terminal(session: Session) -> int:
    from kit.flows.cluster.exec import exec_in_terminal

    args = session.args
    check_terminal(session, "-t")
    context = session.context()
    if args.hosts is None and len(context.inventory.hosts) > 1:
        raise InputError("-t needs one host", hint="name it: kit exec -it head -- bash")
    session.close()
    return exec_in_terminal(context, args.hosts, args.command)


def _exec_as_text(session: Session) -> int:
    from kit.cli.screen.hosts import HostsOutput
    from kit.cli.text import cluster as text
    from kit.flows.cluster.exec import exec_hosts, folded

    args = session.args
    session.close()
    output = HostsOutput(session.terminal, fold=args.fold)
    try:
        stdin = session.terminal.descriptor if args.interactive else session.terminal.piped
        result = exec_hosts(session.context(), args.hosts, args.command, output=output, stdin=stdin)
    except BaseException:
        output.release()
        raise
    finally:
        output.close()
    if output.folds:
        session.terminal.output(text.groups(folded(result, output.held)), "stdout")
    elif not output.verbatim and (failed := text.exits(result)):
        session.terminal.tell(failed)
    return result.exit_code


def ssh(session: Session) -> int:
    from kit.config.command import check_command
    from kit.flows.cluster.ssh import ssh

    check_command(session.args.command, verb=f"kit ssh {session.args.host}", in_shell=True)
    context = session.context()
    session.close()
    command = session.args.command
    ssh(context, session.args.host, command, tty=not command and session.terminal.interactive)
    return 0


VERBS = (
    Verb(
        words=("logs",),
        purpose="Print the log of a run, or of the nodes' containers",
        handler=logs,
        group=WORK,
        operands=(
            Operand(
                name="run",
                help="A run's id, the beginning of it, or latest (default: the latest run); or hosts, for their nodes",
                optional=True,
                complete=candidates.run_or_host,
            ),
        ),
        options=(
            HOSTS,
            Option(flags=("--nodes",), help="Print the logs of the nodes' containers, of all hosts or of those named"),
            Option(flags=("-f", "--follow"), help="Print new lines as they come, until Ctrl-C"),
            TAIL,
            SINCE,
            RANK,
            TAG_OUTPUT,
            RAW,
            *CLUSTER,
        ),
        examples=(
            "kit logs",
            "kit logs 20261121-101500-3fa2 --rank 3 --since 10m",
            "kit logs --nodes",
            "kit logs 'gpu[1-2]' -f --tail 20",
        ),
        exits=(*FAILED, ("5", "not ready: nothing is deployed, or no node runs on a host")),
    ),
    Verb(
        words=("exec",),
        purpose="Run a command in the nodes' containers",
        handler=exec_,
        group=WORK,
        command="dashes",
        needs_command=True,
        operands=(
            Operand(
                name="hosts",
                help="Hosts: gpu1,gpu3, gpu[1-4], head, or addresses (default: all)",
                optional=True,
                complete=candidates.hosts,
            ),
        ),
        options=(
            HOSTS,
            Option(flags=("-i", "--interactive"), help="Pass standard input on even if it is a terminal"),
            Option(flags=("-t", "--tty"), help="Give the command a terminal in the container, on one host"),
            Option(flags=("-b", "--fold"), help="Wait for all hosts, and print equal output once, below its hosts"),
            RAW,
            *CLUSTER,
        ),
        notes="kit prints output as it comes: that of one host byte for byte (on a terminal, see --raw), that of "
        "several as lines that begin with the host (gpu1: …). At a terminal, kit prints equal output once if the "
        "command prints for less than 2 seconds on each host. Ctrl-C ends the command in every container. If standard "
        "input is not a terminal, each host gets all of it; in a loop that reads its own input, write < /dev/null.",
        examples=(
            "kit exec -- nvidia-smi -L",
            "kit exec -b 'gpu[1-4]' -- df -h /data",
            "kit exec -- tee /tmp/a < a",
            "kit exec -it gpu1 -- bash",
        ),
        exits=(
            ("N", "the greatest exit code of the command"),
            *FAILED[:2],
            ("5", "not ready: no node runs on a host"),
            ("130", "interrupted, after the command has ended on every host"),
        ),
    ),
    Verb(
        words=("ssh",),
        purpose="Open a shell on a VM, or run one command there",
        handler=ssh,
        group=WORK,
        command="dashes",
        operands=(Operand(name="host", help="A host: its name or address, or head", complete=candidates.host),),
        options=CLUSTER,
        examples=("kit ssh gpu2", "kit ssh gpu2 -- nvidia-smi"),
        exits=(("N", "ssh's own exit code"),),
    ),
)
