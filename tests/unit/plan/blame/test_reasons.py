"""Why a rank is late, where the figures of other ranks are odd."""

from __future__ import annotations

import pytest

from kit.model.blame import Gpu, HostInterval, RankShares, Reason, Watched
from kit.plan.blame.lateness import Late
from kit.plan.blame.reasons import cause


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        (RankShares(rank=1, pid=1, cpu=0.3, delay=0.6, asleep=0.1), "busy-core"),
        (RankShares(rank=1, pid=1, cpu=0.05, asleep=0.95), "loader"),
        (RankShares(rank=1, pid=1, cpu=0.05, disk=0.85, asleep=0.95), "disk"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gpus_at_work_while_ranks_wait_make_nobody_idle(late: RankShares, reason: Reason) -> None:
    other = RankShares(rank=0, pid=1, cpu=0.05, asleep=0.9)
    hosts: dict[str, tuple[HostInterval, ...]] = {
        "gpu1": (HostInterval(seconds=10.0, cores=2, ranks=(other,), gpus=(Gpu(index=0, use=0.7),)),),
        "gpu2": (HostInterval(seconds=10.0, cores=2, ranks=(late,), gpus=(Gpu(index=0, use=0.1),)),),
    }
    watched = Watched(run="r", hosts=hosts, addresses={}, gpus={0: (0,), 1: (0,)})
    why = cause(watched, Late(host="gpu2", ranks=(1,), share=0.8, wins=10, samples=10), {0: 0.85, 1: 0.0})
    assert why.reason == reason
    assert why.share <= 1.0
