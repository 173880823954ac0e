"""What the page says of how to repeat a session: commands that exist, with what else the case had."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Sequence

from kit.model.bench import Case, Sample
from kit.plan.bench.report.page import html
from kit.plan.bench.report.stats import summarise
from kit.remote.bench.report import template
from tests import benchdata


def again(cases: Sequence[Case], samples: Sequence[Sample] = ()) -> list[str]:
    """Return the lines of "How to repeat it" after those of the whole session."""
    page = html(summarise(benchdata.session("networks", cases), samples), (), template())
    (block,) = re.findall(r"<pre><code>(.*?)</code></pre>", page.partition('id="again"')[2], re.DOTALL)
    return markup.unescape(block).partition("THE-NEW-ONE\n")[2].strip().splitlines()


def test_a_probe_of_a_network_is_no_command() -> None:
    session, samples = benchdata.networks()
    assert again(session.cases, samples) == []
    # Nor is one that failed, or did not run.
    failed = [benchdata.sample(session.cases[0].id, 0, {}, failure="no route to host")]
    assert again(session.cases, failed) == []


def test_a_case_has_its_settings() -> None:
    command = ("mpi_perf", "allreduce", "--json")
    plain = {"mpi.args": (), "mpi.allreduce": "openmpi"}
    bare = {"nccl.plugin": None, "nccl.require": "any"}
    cases = [
        benchdata.case("a", command=command, np=8, settings=plain),
        benchdata.case("b", command=command, np=8, settings=bare, env=(("NCCL_NET", "Socket"),)),
        benchdata.case("c", command=command, np=8, settings={"mpi.args": ["--mca", "btl_tcp_links", "2\n"]}),
        benchdata.case("d", command=command, np=8),
        benchdata.case("e", command=command, np=1, gpus_per_rank=8, own_algorithm=True),
    ]
    assert again(cases) == [
        "# a case alone",
        "# with these settings in kit.yaml: no mpi.args, mpi.allreduce: openmpi",
        "kit run -np 8 -- mpi_perf allreduce --json",
        "# with these settings in kit.yaml: no nccl.plugin, nccl.require: any",
        "kit run -np 8 -x NCCL_NET=Socket -- mpi_perf allreduce --json",
        "# with these settings in kit.yaml: mpi.args: --mca btl_tcp_links 2",
        "kit run -np 8 -- mpi_perf allreduce --json",
        "kit run -np 8 -- mpi_perf allreduce --json",
        "# with these settings in kit.yaml: no --mca coll_tuned_… or coll_han_… in mpi.args",
        "kit run -np 1 --gpus-per-rank 8 -- mpi_perf allreduce --json",
    ]
