"""The table of kit ps: a row for each host, or for each group of equal hosts if there are many."""

from __future__ import annotations

from kit import __version__
from kit.cli.text.ps import ps
from kit.model.result import NodeStatus, PsResult
from kit.model.values import replace


def node(number: int) -> NodeStatus:
    return NodeStatus(
        host=f"gpu{number}", address=f"10.0.0.{number}", service="mpinode", state="Up 2 hours", image="kit:cpu-0123",
        slots=8, gpus=8, ranks={"r1": (2 * number, 2 * number + 1)}, ssh=f"192.0.2.{number}",
    )  # fmt: skip


def cluster(*changed: NodeStatus, count: int = 20) -> PsResult:
    nodes = [node(number) for number in range(1, count + 1)]
    for one in changed:
        nodes[int(one.host.removeprefix("gpu")) - 1] = one
    return PsResult(cluster="kit", nodes=tuple(nodes))


def test_equal_rows_of_many_hosts_are_one() -> None:
    gone = replace(node(20), state="Exited (137) 3 minutes ago", ranks={})
    value = cluster(replace(node(1), service="mpihead"), gone)
    assert ps(value).splitlines() == [
        "Cluster kit, 20 hosts: gpu[1-20]",
        "In total: 160 slots, 160 GPUs, 38 ranks",
        "HOST       COUNT  SERVICE  STATE                       IMAGE         EACH: SLOTS  GPUS  RANKS",
        "gpu1           1  mpihead  Up 2 hours                  kit:cpu-0123            8     8      2",
        "gpu[2-19]     18  mpinode  Up 2 hours                  kit:cpu-0123            8     8      2",
        "gpu20          1  mpinode  Exited (137) 3 minutes ago  kit:cpu-0123            8     8      0",
        "Running: r1",
    ]


def test_few_hosts_and_verbose_have_a_row_each() -> None:
    assert ps(cluster(count=16)).count("\ngpu") == 16
    assert ps(cluster(), verbose=True).count("\ngpu") == 20
    assert "10.0.0.20" in ps(cluster(), verbose=True)


def rows(value: PsResult) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell] for line in ps(value).splitlines()[3:-1]]


def test_settings_that_differ_have_the_versions_of_both_kits() -> None:
    value = replace(cluster(count=1), differs=("shm_size: 1gb → 2gb",))
    line = "kit.yaml differs from what is deployed (deployed → now): shm_size: 1gb → 2gb"
    for version in (None, __version__):
        assert ps(replace(value, version=version)).splitlines()[-2] == line
    for version, name in (("0.0.9", "kit 0.0.9"), ("", "an older kit"), ("\x1b[2J", "another kit")):
        named = f"{line}; {name} deployed, and kit {__version__} may have other defaults"
        assert ps(replace(value, version=version)).splitlines()[-2] == named


def test_what_differs_keeps_its_own_row() -> None:
    changed = [
        replace(node(3), slots=4),
        replace(node(5), image="kit:cpu-old"),
        replace(node(7), state="Up 2 hours (unhealthy)"),
        replace(node(9), ranks={}),
    ]
    assert [(row[0], row[1]) for row in rows(cluster(*changed))] == [
        ("gpu[1-2,4,6,8,10-20]", "16"), ("gpu3", "1"), ("gpu5", "1"), ("gpu7", "1"), ("gpu9", "1"),
    ]  # fmt: skip


def test_ages_of_one_unit_are_one_row_and_a_restarted_container_is_seen() -> None:
    changed = [
        replace(node(2), state="Up About an hour"),
        replace(node(4), state="Up 9 hours"),
        replace(node(6), state="Up 5 seconds"),
    ]
    assert [(row[0], row[3]) for row in rows(cluster(*changed))] == [
        ("gpu[1-5,7-20]", "Up 1 to 9 hours"), ("gpu6", "Up 5 seconds"),
    ]  # fmt: skip


def test_problems_that_differ_in_the_address_are_one_row() -> None:
    lost = [
        replace(node(n), state="unreachable", service="", image="", problem=f"no connection to root@192.0.2.{n}:22")
        for n in (4, 5, 6)
    ]
    _, row = rows(cluster(*lost))
    assert row[:3] == ["gpu[4-6]", "3", "no connection to root@192.0.2.[4-6]:22"]


def test_256_hosts_fit_a_screen() -> None:
    lost = replace(node(256), state="unreachable", problem="no connection to 192.0.2.256")
    text = ps(cluster(replace(node(1), service="mpihead"), lost, count=256), width=80)
    assert len(text.splitlines()) == 7
    assert max(map(len, text.splitlines())) <= 80


def test_a_narrow_terminal_cuts_long_cells_and_a_pipe_gets_all() -> None:
    problem = "a host that kit cannot reach, for a reason that takes a long sentence to describe"
    value = cluster(replace(node(2), state="unreachable", problem=problem), count=3)
    narrow = ps(value, width=90).splitlines()
    assert max(map(len, narrow)) <= 90
    assert "…" in narrow[3]
    assert problem in ps(value)
    assert problem in ps(value, width=90, verbose=True)


def test_every_width_says_that_gpus_are_pretended() -> None:
    lab = replace(node(1), gpu_models=("NVIDIA H200 (PRETENDED)",), gpus_free=2)
    value = cluster(lab, count=2)
    assert ps(value).count("PRETENDED") == 1
    assert "8 × H200 (PRETENDED), 2 free" in ps(value)
    for width in (40, 60, 80, 100):
        assert ps(value, width=width).count("PRETENDED") == 1
    assert ps(value, width=60).startswith("Cluster kit, 2 hosts: gpu[1-2]; GPUs (PRETENDED)\n")
    assert "PRETENDED" not in ps(cluster(count=2), width=60)
    # Many hosts have totals in the second line.
    assert ps(cluster(lab), width=60).startswith("Cluster kit, 20 hosts: gpu[1-20]; GPUs (PRETENDED)\nIn total: ")


def test_equal_notes_of_many_hosts_are_one_line() -> None:
    def noted(number: int, note: str) -> NodeStatus:
        return replace(node(number), notes=(note,))

    down = [noted(number, f"no engine; start it: kit ssh gpu{number} -- true") for number in (2, 3, 4)]
    assert ps(cluster(*down, noted(5, "another"))).splitlines()[-2:] == [
        "gpu[2-4]: no engine; start it: kit ssh gpu2 -- true",
        "gpu5: another",
    ]
