"""What kit bench reads: sessions and samples in a folder, what programs print, and the load of hosts."""

from __future__ import annotations

import json

from kit.cli.text.bench_summary import bench_table as table
from kit.flows.bench.facts import changed
from kit.model.values import replace
from kit.plan.bench.headline import headline
from kit.plan.bench.load import disturbed, parse
from kit.plan.bench.order import seconds_left, turns
from kit.plan.bench.record import last_object, sample_line, samples_of, session_of, session_text
from kit.plan.bench.report.charts import charts
from kit.plan.bench.report.compare import compare
from kit.plan.bench.report.page import html
from kit.plan.bench.report.results_csv import csv_text
from kit.plan.bench.report.stats import summarise
from kit.remote.bench.report import template
from tests import benchdata

_LOAD = b"""\
cores 4
before cpu 100 0 0 1000 0 0 0 7 0 0
after cpu 150 0 0 1150 0 0 0 7 0 0
living 20261121-101500-3fa2
over 20261121-101400-3fa2
end
"""
# Between a session and its samples.
_MARK = b"--- samples.jsonl\n"


def _folder(kind: str) -> bytes:
    session, samples = {"egs": benchdata.egs, "ladder": benchdata.ladder, "networks": benchdata.networks}[kind]()
    session = replace(session, cases=session.cases[-3:])
    own = {case.id for case in session.cases}
    lines = "".join(sample_line(sample) for sample in samples if sample.case in own and sample.repeat < 3)
    # On one line, so that alterations know it as JSON.
    return json.dumps(json.loads(session_text(session))).encode() + b"\n" + _MARK + lines.encode()


SAMPLES: tuple[bytes, ...] = (
    _LOAD,
    _folder("egs"),
    _folder("ladder"),
    _folder("networks"),
    b"starting\n" + json.dumps(benchdata.perf(1e9, 3e-5, top=10)).encode() + b"\n",
    b"starting\n" + json.dumps(benchdata.training(123.4, 8)).encode() + b"\n",
)
_SESSION, _ = benchdata.ladder()


def read(answer: bytes) -> None:
    """Read an answer as the one that it looks like."""
    text = answer.decode("utf-8", "replace")
    if _MARK in answer:
        _read_folder(*text.split(_MARK.decode(), 1))
    elif text.startswith("cores"):
        look = parse(text)
        disturbed({"gpu1": look}, {"gpu1": look}, hosts=("gpu1",), own=())
    else:
        result = last_object(text.splitlines())
        sample = benchdata.sample(_SESSION.cases[0].id, 1, result)
        headline(sample)
        summary = summarise(_SESSION, samples_of(sample_line(sample)))
        table(summary)


def _read_folder(session_json: str, lines: str) -> None:
    session, samples = session_of(session_json, "session.json"), samples_of(lines)
    seconds_left(turns(session.cases, samples), samples)
    changed(session.facts, _SESSION.facts)
    summary = summarise(session, samples)
    table(summary)
    csv_text(summary)
    html(summary, charts(summary), template())
    compare(summary, summary)
