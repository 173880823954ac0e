"""kit setup: observe, plan, show, execute, verify; and its way back."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from kit.errors import HostsFailed, Interrupted, KitError, NotReadyError, StepError
from kit.events import HostDone, HostStep, Phase, Warned
from kit.flows.cluster.change import execution_of
from kit.flows.cluster.look import failed
from kit.flows.context import Context
from kit.model.failures import alike
from kit.model.host import Host
from kit.model.lock import AuditEntry
from kit.model.plan import Plan, part_of
from kit.model.setup.areas import AREAS, Area
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import LOCK
from kit.model.setup.result import Draft, SetupHost, SetupResult
from kit.model.setup.steps import Reboot
from kit.model.text import fold
from kit.model.values import asdict, replace
from kit.plan.setup.setup import setup_plan, useless_reboots
from kit.plan.setup.sysctl import KEYS
from kit.plan.setup.undo import undo_plan
from kit.remote.cluster.execute import execute
from kit.remote.cluster.lock import Lock
from kit.remote.machine.operator import operator
from kit.remote.setup.observe import observe
from kit.remote.setup.programs import program
from kit.remote.ssh import fanout

# Packages, a reboot, what only works after it, such as clocks, and a host that somebody changed meanwhile. Another plan
# means that a step has no effect.
MOST_PASSES = 5


class SetupRequest(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    areas: tuple[Area, ...] = AREAS
    undo: bool = False
    reboot: bool = False


def draft(
    context: Context, request: SetupRequest, rebooted: Collection[str] = ()
) -> tuple[Draft, Sequence[SetupFacts]]:
    """Return the plan from what the hosts have. Raises before anything is changed if something prevents it.

    Hosts in `rebooted` are not rebooted again.
    """
    observed = _observed(context)
    spec = context.spec
    if request.undo:
        result, problems = undo_plan(spec, observed, request.areas)
    else:
        result, problems = setup_plan(
            spec,
            observed,
            request.areas,
            reboot=request.reboot,
            own_boot_id=_own_boot_id(),
            rebooted=rebooted,
        )
    if problems:
        # Only reboots come last, after everything else was done.
        raise failed("no host was rebooted" if request.reboot and result.waiting else "nothing was changed", problems)
    return result, observed


def preview(context: Context, request: SetupRequest) -> Draft:
    """Return the plan, and change nothing."""
    result, _ = draft(context, request)
    report_remarks(context, result, request, before=True)
    return result


def setup(context: Context, request: SetupRequest) -> SetupResult:
    """Make every host ready, or undo that. Nothing is changed unless kit can inspect every host and finds no problem.

    A host reboots at most once. Raises the error of the host that failed or whose reboot did not help, or HostsFailed;
    the other hosts are finished first.
    """
    start = time.monotonic()
    # Most often there is nothing to do, which needs no lock.
    result, observed = draft(context, request)
    counts: Counter[str] = Counter()
    done: list[Plan] = []
    rebooted: set[str] = set()
    while not result.plan.empty:
        if len(done) == MOST_PASSES or result.plan in done:
            raise _without_effect(result.plan)
        result = _change(context, request, result, rebooted)
        done.append(result.plan)
        counts.update(host for host, _ in result.plan.steps())
        rebooted.update(host for host, step in result.plan.steps() if isinstance(step, Reboot))
        result, observed = draft(context, request, rebooted)
    waiting = {host: reasons for host, reasons in result.waiting.items() if host not in rebooted}
    report_remarks(context, replace(result, waiting=waiting), request)
    if useless := useless_reboots(result, rebooted):
        raise failed("still waiting after a reboot", useless)
    return SetupResult(
        hosts=tuple(_host(facts, counts[facts.host.name], result) for facts in observed),
        changed=bool(done),
        undo=request.undo,
        seconds=time.monotonic() - start,
        remarks=result.remarks,
    )


def report_remarks(context: Context, result: Draft, request: SetupRequest, *, before: bool = False) -> None:
    """Warn of what is left: remarks, and what waits for a reboot."""
    for remark in alike(KitError(one.text, hint=one.hint, host=one.host) for one in result.remarks):
        context.reporter.report(Warned(text=str(remark), hint=remark.hint))
    waiting: dict[str, list[str]] = {}
    for host, reasons in result.waiting.items():
        waiting.setdefault("; ".join(reasons), []).append(host)
    for why, hosts in waiting.items():
        verb = "will need" if before and not result.plan.empty else "needs" if len(hosts) == 1 else "need"
        command = "kit setup --allow-reboot, which reboots one host after the other"
        hint = None if request.reboot else f"when no container runs there: {command}"
        context.reporter.report(Warned(text=f"{fold(hosts)} {verb} a reboot: {why}", hint=hint))


def _observed(context: Context) -> Sequence[SetupFacts]:
    context.reporter.report(Phase(name="look", hosts=context.inventory.names))

    def work(host: Host) -> SetupFacts:
        context.reporter.report(HostStep(host=host.name, text="connecting"))
        with closing(context.connect(host)) as transport:
            facts = observe(transport, KEYS)
        engine = f"engine {facts.engine}" if facts.engine else "no engine"
        context.reporter.report(HostDone(host=host.name, text=f"{facts.name or 'unknown system'}, {engine}"))
        return facts

    outcome = fanout.each(context.inventory.hosts, work)
    if outcome.failures:
        raise failed("nothing was changed", list(outcome.failures.values()))
    return [outcome.results[name] for name in context.inventory.names]


def _change(context: Context, request: SetupRequest, result: Draft, rebooted: Collection[str]) -> Draft:
    """Take the lock of each host, plan again because hosts may have changed, execute, and return that plan."""
    start = time.monotonic()
    if all(isinstance(step, Reboot) for _, step in result.plan.steps()):
        # A lock ends with the connection, and each reboot ends one. The boot id prevents a second reboot.
        _execute(context, result.plan, {})
        return result
    outcome = "failed"
    with _locked(context, result.plan) as locks:
        # A host that had nothing to do a moment ago has no lock, and a reboot would end one. The next pass has both.
        again, _ = draft(context, replace(request, reboot=False), rebooted)
        again = replace(again, plan=part_of(again.plan, locks))
        try:
            _execute(context, again.plan, locks)
            outcome = "done"
        except (KeyboardInterrupt, Interrupted):
            outcome = "interrupted"
            raise
        finally:
            _record(context, request, again.plan, outcome, time.monotonic() - start)
    return again


@contextmanager
def _locked(context: Context, plan: Plan) -> Iterator[dict[str, Lock]]:
    """Hold the lock of each host that the plan changes. Raises NotReadyError, which names who holds it."""
    hosts = [context.host(name) for name in dict.fromkeys(host for host, _ in plan.steps())]
    context.reporter.report(Phase(name="lock", hosts=tuple(host.name for host in hosts)))
    what = "kit setup"

    def take(host: Host) -> Lock:
        try:
            return context.take(context.login(host), LOCK, what)
        except NotReadyError as error:
            text = error.message.replace("the lock of the cluster", "this host's lock of kit setup")
            raise NotReadyError(text, hint="wait until that is done, then: kit setup", host=host.name) from error

    outcome = fanout.each(hosts, take)
    try:
        outcome.or_raise("nothing was changed")
        yield dict(outcome.results)
    finally:
        for lock in outcome.results.values():
            lock.release()


def _execute(context: Context, plan: Plan, locks: dict[str, Lock]) -> None:
    def check() -> None:
        for lock in locks.values():
            lock.check()

    failures = execute(execution_of(context, check), plan)
    if failures:
        if len(failures) == 1:
            raise next(iter(failures.values()))
        raise HostsFailed(
            f"{len(failures)} hosts failed, {len(plan.hosts) - len(failures)} are done", list(failures.values())
        )


def _record(context: Context, request: SetupRequest, plan: Plan, outcome: str, seconds: float) -> None:
    """Append a line to the audit of each host that was changed. A failure is only a warning."""
    counts = Counter(host for host, _ in plan.steps())
    entry = AuditEntry(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        who=operator(),
        verb="setup --undo" if request.undo else "setup",
        what="",
        outcome=outcome,
        seconds=round(seconds, 1),
    )

    def work(host: Host) -> None:
        line = json.dumps(asdict(replace(entry, what=f"{counts[host.name]} steps")), ensure_ascii=False) + "\n"
        with closing(context.connect(host)) as transport:
            done = transport.run(program("audit"), stdin=line.encode(errors="replace"), timeout_s=15)
        if done.code != 0:
            raise StepError(f"kit setup is not in its audit: {done.error_text}", host=host.name)

    for failure in alike(fanout.each([context.host(name) for name in counts], work).failures.values()):
        context.reporter.report(Warned(text=str(failure), hint=failure.hint))


def _without_effect(plan: Plan) -> KitError:
    """Return the error for steps that succeeded, although the hosts still need them."""
    problems: list[KitError] = [
        StepError(
            f"still to do after it was done: {' '.join(step.line())}, because {step.why}",
            hint=f"look at the host: kit ssh {host}; then: kit setup --dry-run",
            host=host,
        )
        for host, step in plan.steps()
    ]
    return failed("some steps had no effect", problems)


def _host(facts: SetupFacts, steps: int, result: Draft) -> SetupHost:
    return SetupHost(
        host=facts.host.name,
        status="ok" if steps else "unchanged",
        steps=steps,
        engine=facts.engine,
        compose=facts.compose,
        waiting=tuple(result.waiting.get(facts.host.name, ())),
        packages=tuple(name for name, _ in facts.saved_packages),
    )


def _own_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
