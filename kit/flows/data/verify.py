"""kit data verify: each host reads its files again, and compares them with their checksums."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing

from kit.errors import AnswerError
from kit.events import HostDone, HostFailed, HostStep, Phase
from kit.flows.context import Context
from kit.model.data import DataSpec, data_folder
from kit.model.datasets import VerifyResult
from kit.model.host import Host
from kit.model.staging import Verified
from kit.model.text import files
from kit.plan.data import failures
from kit.plan.data.choose import staged_sets
from kit.plan.data.rate import Rate, bar_text
from kit.remote.data.order import Order, Place
from kit.remote.ssh import fanout

# A host that reads its disk reports many times in this time.
_SILENCE_S = 120.0


def verify(
    context: Context, words: Sequence[str], *, on_result: Callable[[VerifyResult], None] = lambda _result: None
) -> tuple[VerifyResult, ...]:
    """Verify data sets, one after the other, on all hosts at once. `on_result` gets each result at once.

    A host that cannot be asked is in `missed`. Raises if no host can be asked.
    """
    results = []
    for data in staged_sets(context.spec, words):
        context.reporter.report(Phase(name=f"verify {data.name}", hosts=context.inventory.names))
        outcome = fanout.each(context.inventory.hosts, lambda host, data=data: _on_host(context, host, data))  # type: ignore[misc]
        for name, error in outcome.failures.items():
            context.reporter.report(HostFailed(host=name, text=error.message, hint=error.hint))
        if not outcome.results:
            outcome.or_raise("kit data verify")
        missed = {name: error.message for name, error in outcome.failures.items()}
        result = VerifyResult(cluster=context.spec.name, name=data.name, hosts=outcome.results, missed=missed)
        on_result(result)
        results.append(result)
    return tuple(results)


def _on_host(context: Context, host: Host, data: DataSpec) -> Verified:
    place = Place(cluster=context.spec.name, data=data.name, folder=data_folder(context.spec.name, data))
    rate = Rate()
    with closing(Order(host, context.connect, place).start()) as order:
        order.begun().send(op="verify", write=data.write)
        while True:
            answer = order.answer(_SILENCE_S)
            if answer.failed is not None:
                raise failures.failure(answer.failed, data.name, host=host.name)
            if answer.verified is not None:
                _report(context, host, answer.verified)
                return answer.verified
            if answer.checked is None:
                raise AnswerError(
                    "its stager answers something else than kit asked for",
                    hint=f"look at the host: kit ssh {host.name}",
                    host=host.name,
                )
            at, of = answer.checked.bytes, answer.checked.of
            rate.add(time.monotonic(), at)
            text = bar_text(min(at, of), of, rate.bytes_per_s)
            fraction = min(at / of, 1.0) if of else None
            context.reporter.report(HostStep(host=host.name, text=text, fraction=fraction))


def _report(context: Context, host: Host, outcome: Verified) -> None:
    wrong = len(outcome.wrong) + outcome.more
    if wrong:
        context.reporter.report(HostFailed(host=host.name, text=f"{files(wrong)} wrong"))
    else:
        context.reporter.report(HostDone(host=host.name, text=f"{files(outcome.files)} right"))
