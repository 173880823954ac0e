"""kit forward and kit tensorboard: programs of hosts on this machine's loopback."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.host import is_run
from kit.cli.verbs.lasting import until_interrupted
from kit.cli.verbs.options import CLUSTER, FAILED, WORK
from kit.cli.verbs.values import forwarded, lines, local_port, words
from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kit.cli.session import Session

RANK_OF = Option(
    flags=("--rank",), value="N", kind=lines, help="Use the host of this rank of the run (default: rank 0)"
)
# Ctrl-C is how these verbs end.
ENDED = (*FAILED, ("130", "interrupted before the port was open"))


def forward(session: Session) -> int:
    from kit.cli.text import forward as text
    from kit.flows.forward import forward

    args = session.args
    try:
        wanted = [forwarded(port) for port in args.port]
    except ValueError as error:
        raise InputError(f"port: {error}", hint="write 8888, or 9000:8888 for another port of this machine") from None
    context = session.context()
    run = is_run(args.where, context.inventory.names)
    if args.rank is not None and not run:
        raise InputError("--rank needs a run", hint="name a run instead of a host: kit forward latest PORT --rank N")

    def openuntil_interrupted(ready: Callable[[Any], None]) -> None:
        forward(context, args.where, wanted, is_run=run, rank=args.rank, ready=ready)

    return until_interrupted(session, "forward", openuntil_interrupted, text.forwards)


def tensorboard(session: Session) -> int:
    from kit.cli.text import forward as text
    from kit.flows.tensorboard import tensorboard

    args = session.args
    context = session.context()

    def openuntil_interrupted(ready: Callable[[Any], None]) -> None:
        tensorboard(context, args.run, logdir=args.logdir, rank=args.rank, port=args.port, ready=ready)

    return until_interrupted(session, "tensorboard", openuntil_interrupted, text.board)


VERBS = (
    Verb(
        words=("forward",),
        purpose="Reach ports of a host on this machine, for notebooks, dashboards and debuggers",
        handler=forward,
        group=WORK,
        operands=(
            Operand(
                name="where",
                help="A host, or a run's id, the beginning of it, or latest, for the host of its rank 0",
                complete=candidates.run_or_host,
            ),
            Operand(
                name="port",
                help="A port of the host, or LOCAL:PORT for another port of this machine. LOCAL 0 takes a free one",
                many=True,
            ),
        ),
        options=(RANK_OF, *CLUSTER),
        notes="kit listens on 127.0.0.1 only, and carries connections over its own verified ssh. Anybody who works on "
        "this machine can connect there. It finds the address on which the program listens, such as the cluster's, and "
        "says so if none listens yet. Ctrl-C closes the ports.",
        examples=(
            "kit forward gpu1 8888",
            "kit forward gpu1 9000:8888 6006",
            "kit forward latest 5678 --rank 3",
            "kit forward head 0:8888 --json",
        ),
        exits=ENDED,
    ),
    Verb(
        words=("tensorboard",),
        purpose="Show a run in TensorBoard, on this machine's loopback",
        handler=tensorboard,
        group=WORK,
        operands=(
            Operand(
                name="run",
                help="A run's id, the beginning of it, or latest. It may have ended",
                complete=candidates.run,
            ),
        ),
        options=(
            Option(
                flags=("--logdir",),
                value="DIR",
                kind=words,
                help="Read this folder in the node, such as /data/logs, or below the run's folder, such as work/logs "
                "(default: all of the run's folder)",
            ),
            Option(
                flags=("--port",),
                value="PORT",
                kind=local_port,
                help="Listen on this port of this machine; 0: any free one (default: 6006)",
            ),
            RANK_OF,
            *CLUSTER,
        ),
        notes="TensorBoard runs in the node of rank 0, beside the files, as the user of the ranks, and listens on that "
        "VM's loopback, where users of the VM can connect, too. Images with TensorFlow have TensorBoard. For others, "
        "add tensorboard to image.pip in kit.yaml. By default it reads what the run wrote below its working folder, "
        "KIT_OUTPUT_DIR and KIT_CHECKPOINT_DIR. Ctrl-C ends it on the VM, too.",
        examples=(
            "kit tensorboard latest",
            "kit tensorboard 20261121-10 --logdir /data/logs --port 6007",
        ),
        exits=ENDED,
    ),
)
