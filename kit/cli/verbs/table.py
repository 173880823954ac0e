"""All verbs, in the order of the help."""

from __future__ import annotations

from kit.cli.verbs import (
    bench,
    bench_report,
    cluster,
    data,
    doctor,
    forward,
    host,
    hosts,
    image,
    lab,
    lock,
    metrics,
    predict,
    queue,
    results,
    run,
    runs,
    setup,
    start,
    tune,
)

VERBS = (
    *start.VERBS,
    *setup.VERBS,
    *image.VERBS,
    *cluster.VERBS,
    *doctor.VERBS,
    *lock.VERBS,
    *hosts.VERBS,
    *run.VERBS,
    *runs.VERBS,
    *queue.VERBS,
    *results.VERBS,
    *data.VERBS,
    *host.VERBS,
    *forward.VERBS,
    *metrics.VERBS,
    *lab.VERBS,
    *bench.VERBS,
    *bench_report.VERBS,
    *tune.VERBS,
    *predict.VERBS,
)
