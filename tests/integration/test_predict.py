"""kit predict, compared with paced runs on the lab's shaped links, 4 rates and 3 models; kit lab link-rate.

The links are slow enough to be the limit, and not the cores that all hosts share. What the cores do cost is measured by
the same run and given to the model, as one would on a real cluster: how fast all ranks together copy and add numbers,
and how long a message takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from scripts.paced import MODELS, RATES, attempts, run_words
from tests.integration.rig import VM, Cluster, everywhere

pytestmark = pytest.mark.precise

# Of runs that nothing disturbed; and how many disturbed ones are passed over.
ATTEMPTS, SPARE = 3, 6


@pytest.fixture
def shaped(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whose links are as fast as ever afterwards."""
    yield cluster
    rated(cluster, "none")


def rated(cluster: Cluster, rate: str) -> None:
    done = cluster.kit("lab", "link-rate", rate, "--name", cluster.name)
    assert done.returncode == 0, done.stderr


def own_rate(host: VM) -> str:
    """The rate of what a host sends, as tc has it: 40Mbit, or nothing."""
    match = re.search(r"tbf .* rate (\S+)", host.text("tc", "qdisc", "show", "dev", "eth0"))
    return match[1] if match else ""


# An attempt takes more than a minute where the machine is slow.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("rate", "per_host"), RATES.items())
def test_a_prediction_is_within_three_points_of_a_paced_run(
    shaped: Cluster, rate: str, per_host: int, record_property: Callable[[str, object], None]
) -> None:
    rated(shaped, rate)
    assert set(everywhere(shaped.hosts, own_rate).values()) == {rate.replace("m", "M")}
    attempted, off = [], set(MODELS)

    def pace(models: Mapping[str, int]) -> dict[str, Any]:
        done = shaped.kit("run", *run_words(models, hosts=len(shaped.hosts), per_host=per_host))
        assert done.returncode == 0, done.stderr
        assert "SIMULATED" in done.stderr
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    for attempt in attempts(pace, most=ATTEMPTS, spare=SPARE, rate=rate, per_host=per_host):
        marked = ", disturbed" if attempt.disturbed else ""
        measured, predicted = 100 * attempt.measured, 100 * attempt.predicted
        attempted.append(f"{attempt.model}: measured {measured:.1f} %, predicted {predicted:.1f} %{marked}")
        record_property(f"{rate} {attempt.model}", {"measured": attempt.measured, "predicted": attempt.predicted})
        if attempt.near:
            off.remove(attempt.model)
    assert not off, f"at {rate}: {'; '.join(attempted)}"


def test_a_link_that_is_not_limited_any_more_is_as_fast_as_ever(shaped: Cluster) -> None:
    rated(shaped, "40mbit")
    rated(shaped, "none")
    assert set(everywhere(shaped.hosts, own_rate).values()) == {""}
    refused = shaped.kit("lab", "link-rate", "fast", "--name", shaped.name)
    assert refused.returncode == 2
    assert "'fast' is not the rate of a link" in refused.stderr
    nowhere = shaped.kit("lab", "link-rate", "40mbit", "--name", "no-such-lab")
    assert nowhere.returncode == 5
