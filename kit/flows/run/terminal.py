"""kit run -it: give the run's only rank a terminal in its container."""

from __future__ import annotations

import threading

from kit.errors import KitError
from kit.events import Warned
from kit.flows.cluster.exec import exec_in_terminal
from kit.flows.context import Context
from kit.flows.run.follow import PATIENCE, Follower
from kit.model.launch import LaunchPlan
from kit.plan.run.terminal import join
from kit.remote.machine.interrupts import Interrupts


def in_terminal(context: Context, plan: LaunchPlan, follower: Follower) -> None:
    """Wait for the rank, and run the command in kit's terminal to its end, which is the end of the run.

    Returns early if the run ends before. If the terminal is closed or kit cannot reach the host, the run is to be
    stopped: then this counts as a Ctrl-C for the follower.
    """
    if not follower.wait_for_rank():
        return
    # A shell lives for hours. The head ends a run soon after its operator's connection broke.
    over = threading.Event()
    holder = threading.Thread(target=follower.hold, args=(over,), name="kit-holder", daemon=True)
    holder.start()
    try:
        exec_in_terminal(context, plan.placement.nodes[0].name, join(plan.run_id, plan.command))
    except KeyboardInterrupt:
        follower.before = max(follower.before, follower.interrupted) + 1
    except KitError as error:
        context.reporter.report(Warned(text=str(error), hint=error.hint))
        follower.before = max(follower.before, follower.interrupted) + 1
    finally:
        over.set()
        _await(holder, follower)


def _await(holder: threading.Thread, follower: Follower) -> None:
    """Wait for the end of `hold`, which may be connecting. Count Ctrl-C meanwhile."""
    with Interrupts(follower.before) as interrupts:
        while holder.is_alive() and follower.before + interrupts.count <= PATIENCE:
            holder.join(0.1)
    follower.before += interrupts.count
