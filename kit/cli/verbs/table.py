"""All verbs, in the order of the help; and the words that people of other tools type first."""

from __future__ import annotations

from kit.cli.verbs import bench, bench_report, cluster, host, image, lab, lock, predict, run, start, tune

VERBS = (
    *start.VERBS,
    *image.VERBS,
    *cluster.VERBS,
    *lock.VERBS,
    *run.VERBS,
    *host.VERBS,
    *lab.VERBS,
    *bench.VERBS,
    *bench_report.VERBS,
    *tune.VERBS,
    *predict.VERBS,
)

FAMILIAR = {
    "apply": "deploy",
    "kill": "stop",
    "build": "image build",
    "cluster": "ps",
    "completions": "completion",
    "create": "deploy",
    "delete": "down",
    "destroy": "down",
    "history": "audit",
    "benchmark": "bench",
    "horovodrun": "run",
    "launch": "run",
    "list": "ps",
    "log": "logs",
    "ls": "ps",
    "mpirun": "run",
    "remove": "down",
    "rm": "down",
    "shell": "ssh",
    "start": "deploy",
    "status": "ps",
    "submit": "run",
    "teardown": "down",
    "top": "ps",
    "train": "run",
    "unlock": "lock release",
    "up": "deploy",
}
