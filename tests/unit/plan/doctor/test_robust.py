"""Every check on hosts that are sound, that know nothing, and that answer nonsense."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.model.doctor import Check, Command, Mount, Ran, Read, Room
from kit.plan.doctor.checks import CHECKS
from tests.fakes.doctor import Machine, judged
from tests.unit.plan.doctor.clean import THREE, machine

each = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
# Some checks look only at what kit.yaml names.
SPEC = {"data": {"crawl": {"from": "s3://bucket/crawl", "to": "/data/crawl", "stage": "none"}}}
# Of a core. Far below the time limits of kit doctor for 256 hosts, and far above what a slow machine needs.
_LONG_S = 2.0


@each
def test_sound_hosts_have_no_finding(check: Check) -> None:
    assert list(judged(check, *THREE, spec=SPEC)) == []


@each
def test_many_sound_hosts_take_a_moment(check: Check) -> None:
    hosts = [machine(number) for number in range(1, 250)]
    start = time.process_time()
    assert list(judged(check, *hosts, spec=SPEC)) == []
    assert time.process_time() - start < _LONG_S


@each
def test_a_host_that_knows_nothing_has_no_finding(check: Check) -> None:
    assert list(judged(check, Machine(), Machine(), spec=SPEC)) == []
    assert list(judged(check)) == []


@each
def test_what_kit_cannot_know_differs_from_nothing(check: Check) -> None:
    """One host answers, and the others do not."""
    assert list(judged(check, THREE[0], Machine(), Machine(), spec=SPEC)) == []


PIECES = st.sampled_from(
    [
        *("eth0", "lo", "docker0", "0", "-1", "4096 1 2", "\t", "\n", " ", "[always]", "cpu ", "3: INIT", "00000000"),
        *(
            "FFFFFFFF",
            "0-9999999999",
            "<?xml version='1.0'?>",
            "<nvidia_smi_log>",
            "<gpu>",
            "</gpu>",
            "</nvidia_smi_log>",
        ),
        *(
            "N/A",
            "\x1b[31m",
            "NVRM: Xid (PCI:0000:3b:00): 79",
            "maxstartups 2:30:100",
            "9" * 4400,
            "\x00",
            "é",
            "\ud800",
        ),
        *("{", '"', "GPU0", "SYS"),
    ]
)
CLUSTERS = st.sampled_from(("lab", "b" * 40, "\x1b"))
PLACES = st.one_of(
    st.builds("/opt/kit/.data/{}/{}/mount".format, CLUSTERS, st.text("a-\n", max_size=40)), st.text(max_size=40)
)
FAULTS = st.sampled_from(("", "ENOTCONN", None))
MOUNTS = st.dictionaries(PLACES, st.builds(Mount, device=st.just("0:61"), fault=FAULTS))
TEXTS = st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=24).map("".join))


def paths(read: Read, draw: Any) -> dict[str, str]:
    """Return random texts below paths that the read's pattern matches, and one that is odd."""
    pattern: str = getattr(read, "pattern", getattr(read, "path", ""))
    filled = pattern.replace("[0-9]", "1").replace("*", "eth0")
    return {filled: draw(TEXTS), pattern.replace("*", "a\x1b"): draw(TEXTS)}


@each
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_text_ends_a_check_or_keeps_it_busy(check: Check, data: st.DataObject) -> None:
    machines = []
    for _ in range(2):
        texts: dict[str, str] = {}
        runs: dict[tuple[str, ...], str | Ran] = {}
        rooms = {}
        for read in check.reads:
            if isinstance(read, Command):
                code = data.draw(st.sampled_from((0, 0, 0, 1, None)))
                runs[("node", *read.argv) if read.node else read.argv] = Ran(code=code, out=data.draw(TEXTS))
            else:
                texts |= paths(read, data.draw)
                sizes = data.draw(st.tuples(*[st.integers(0, 2**60)] * 4))
                path = getattr(read, "path", "")
                rooms[path] = Room(total=sizes[0], free=sizes[1], inodes=sizes[2], inodes_free=sizes[3])
        mounts = data.draw(st.none() | MOUNTS)
        machines.append(Machine(files=texts, links=texts, runs=runs, rooms=rooms, mounts=mounts))
    start = time.process_time()
    for sight in judged(check, *machines, spec=SPEC):
        # Nothing that a VM says reaches a terminal as it came, and nothing fills it.
        assert sight.seen.isprintable()
        assert len(sight.seen) < 300
    assert time.process_time() - start < _LONG_S


@each
def test_large_texts_take_a_moment(check: Check) -> None:
    """A reader returns at most these sizes."""
    for piece in (
        "a",
        "1",
        " ",
        "\n",
        "1 ",
        "a b\n",
        "eth0\t00000000\t00000000\t0001\t0\t0\t0\t00FFFFFF\n",
        "- ",
        "<gpu>",
        "840 812 0:70 / /data/crawl ro - fuse.rclone rclone ro\n",
        "840 812 0:70 / / -  - ",
    ):
        text = piece * ((512 << 10) // len(piece))
        files = {
            getattr(read, "path", getattr(read, "pattern", "")).replace("*", "eth0"): text[:65536]
            for read in check.reads
        }
        runs: dict[tuple[str, ...], str | Ran] = {
            ("node", *read.argv) if read.node else read.argv: text for read in check.reads if isinstance(read, Command)
        }
        start = time.process_time()
        list(judged(check, Machine(files=files, links=files, runs=runs), spec=SPEC))
        assert time.process_time() - start < _LONG_S
