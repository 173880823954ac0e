"""Tests which options of a run `kit run --again` takes over, and what its record keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kit.errors import InputError
from kit.model.answer import OddAnswer
from kit.model.launch import RunPolicy, RunRequest
from kit.model.run import Member, Place, RunRecord
from kit.model.spec import ImageSpec
from kit.model.values import replace
from kit.plan.run import elastic, encoding, roles
from kit.plan.run.again import kept_options, repeated

RUN = RunRecord(
    id="20261121-101500-3fa2", cluster="lab", image="i", command=("python3", "train.py"), env=("LR",), by="ann@pc",
    places=tuple(Place(node=f"gpu{n}", address="", ranks=4, slots=()) for n in (1, 2)), most_np=8,
)  # fmt: skip
FIRST = RunRequest(
    np=8, npernode=4, hosts="gpu[1-2]", oversubscribe=True, workdir="sub",
    env=(("LR", "0.1"), ("TOKEN", None), ("FAR", None)), command=RUN.command,
    policy=RunPolicy(share=True, timeout=60, retries=2, retry_on="lost-host", min_np=4, checkpoints="/data"),
)  # fmt: skip
REMEMBERED = {"LR": "0.1", "TOKEN": None, "FAR": None}
NAMES = {"typed": ["LR"], "copied": ["TOKEN"], "forwarded": ["FAR"]}


def again(
    request: RunRequest, first: RunRequest = FIRST, run: RunRecord = RUN, environ: Mapping[str, str] | None = None
) -> RunRequest:
    # Through JSON, as the record comes back.
    options: dict[str, Any] = json.loads(json.dumps(kept_options(first, NAMES)))
    environ = {"TOKEN": "t"} if environ is None else environ
    return repeated(replace(request, again="2026"), run, options, values=REMEMBERED, environ=environ)


def test_the_record_keeps_no_value() -> None:
    assert "0.1" not in json.dumps(kept_options(FIRST, NAMES))


def test_the_same_once_more() -> None:
    assert again(RunRequest(detach=True)) == replace(FIRST, again=RUN.id, detach=True)


def test_a_run_of_an_array_keeps_its_index() -> None:
    run = replace(RUN, array=Member(of="20261121-101500-aaaa", index=7, size=9))
    ours = {"KIT_ARRAY_INDEX": "7", "KIT_ARRAY_SIZE": "9", "KIT_ARRAY_ID": "20261121-101500-aaaa"}
    assert dict(again(RunRequest(), run=run).env) == {**dict(FIRST.env), **ours}
    # What an earlier version kept, on another machine.
    options = {"variables": {"typed": ["KIT_ARRAY_INDEX", "KIT_ARRAY_SIZE", "KIT_ARRAY_ID"]}}
    request = RunRequest(env=(("KIT_ARRAY_INDEX", "8"),))
    assert dict(repeated(request, run, options, values={}, environ={}).env) == {**ours, "KIT_ARRAY_INDEX": "8"}


def test_what_the_command_line_sets_wins() -> None:
    request = RunRequest(
        np=4, hosts="gpu2", env=(("LR", "0.2"), ("NEW", "1")), command=("ls",),
        policy=RunPolicy(retries=0),
        given=frozenset(["np", "hosts", "retries"]),
    )  # fmt: skip
    result = again(request)
    assert (result.np, result.npernode, result.hosts, result.command) == (4, 4, "gpu2", ("ls",))
    assert (result.policy.retries, result.policy.timeout) == (0, 60)
    assert result.env == (("TOKEN", None), ("FAR", None), ("LR", "0.2"), ("NEW", "1"))


def test_every_slot_is_as_many_ranks_as_then() -> None:
    first = replace(FIRST, np=None, npernode=None, hosts=None)
    assert again(RunRequest(), first).np == 8
    assert again(RunRequest(hosts="gpu1", given=frozenset(["hosts"])), first).np is None
    assert again(RunRequest(npernode=2, given=frozenset(["npernode"])), first).np is None
    left_out = (RUN.places[0], replace(RUN.places[1], ranks=0))
    assert again(RunRequest(), first, replace(RUN, places=left_out)).np == 8


def test_another_launcher_has_no_servers() -> None:
    first = replace(FIRST, launcher="ps", servers=2, policy=RunPolicy())
    assert again(RunRequest(), first).servers == 2
    mpi = again(RunRequest(launcher="mpi", given=frozenset(["launcher"])), first)
    assert (mpi.launcher, mpi.servers) == ("mpi", None)


def test_torchrun_and_its_restarts_once_more() -> None:
    first = replace(FIRST, launcher="torchrun", max_restarts=3)
    assert (again(RunRequest(), first).launcher, again(RunRequest(), first).max_restarts) == ("torchrun", 3)
    assert again(RunRequest(launcher="mpi", given=frozenset(["launcher"])), first).max_restarts is None


def test_elastic_and_its_limits_once_more() -> None:
    """Its ranks of then must not become --np, which --elastic refuses."""
    first = RunRequest(launcher="elastic", policy=RunPolicy(min_np=2, max_np=4), command=RUN.command)
    result = again(RunRequest(), first)
    assert (result.launcher, result.np, result.policy.min_np, result.policy.max_np) == ("elastic", None, 2, 4)
    elastic.check(result, ImageSpec())


def test_another_launcher_gets_no_option_that_it_refuses() -> None:
    """A person who did not type an option cannot remove it."""
    request = RunRequest(launcher="elastic", given=frozenset({"launcher"}))
    elastic.check(again(request), ImageSpec())
    roles.check(again(replace(request, launcher="ps", servers=1, given=frozenset({"launcher", "servers"}))))
    first = RunRequest(launcher="elastic", policy=RunPolicy(min_np=2, max_np=4), command=RUN.command)
    elastic.check(again(RunRequest(given=frozenset({"launcher"})), first), ImageSpec())


def test_variables_that_this_machine_does_not_have() -> None:
    with pytest.raises(InputError, match="copied TOKEN from the shell of ann@pc") as unset:
        again(RunRequest(), environ={})
    assert unset.value.hint == "set it here, or write: -x TOKEN=VALUE"
    assert again(RunRequest(env=(("TOKEN", "x"),)), environ={}).env[-1] == ("TOKEN", "x")
    with pytest.raises(InputError, match="set LR; kit keeps values only on the machine") as unknown:
        repeated(RunRequest(), RUN, kept_options(FIRST, NAMES), values={"TOKEN": None}, environ={"TOKEN": "t"})
    assert unknown.value.hint == "write them again: -x LR=VALUE"


@pytest.mark.parametrize("kind", ["copied", "forwarded"])
def test_a_record_gets_no_variable_of_your_shell(kind: str) -> None:
    """Ranks can write the record. Only what you typed for this run, here or now, leaves your shell."""
    environ = {"TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "s3cret"}
    names = {**NAMES, kind: [*NAMES[kind], "AWS_SECRET_ACCESS_KEY"]}
    options = kept_options(FIRST, names)
    with pytest.raises(InputError, match="names AWS_SECRET_ACCESS_KEY of your shell") as strange:
        repeated(RunRequest(), RUN, options, values=REMEMBERED, environ=environ)
    assert strange.value.hint == "to copy them to the cluster, write: -x AWS_SECRET_ACCESS_KEY"
    given = RunRequest(env=(("AWS_SECRET_ACCESS_KEY", None),))
    assert given.env[0] in repeated(given, RUN, options, values=REMEMBERED, environ=environ).env


@pytest.mark.parametrize(
    "odd",
    [
        {"np": "4"},
        {"np": 2**40},
        {"servers": -1},
        {"memory": 2**60},
        {"variables": [1]},
        {"timeout": []},
        {"launcher": "x"},
        {"hosts": {}},
    ],
)
def test_odd_options_are_odd(odd: dict[str, Any]) -> None:
    with pytest.raises(OddAnswer):
        repeated(RunRequest(), RUN, {**kept_options(FIRST, NAMES), **odd}, values=REMEMBERED, environ={})


def test_a_variable_of_kit_that_an_earlier_kit_ignored() -> None:
    """No option of this kit removes it from the record."""
    names = {"typed": ["LR", "KIT_CHECKPOINT_DIR"], "copied": ["KIT_NODE"], "forwarded": ["KIT_RUN"]}
    options = kept_options(FIRST, names)
    assert repeated(RunRequest(), RUN, options, values=REMEMBERED, environ={}).env == (("LR", "0.1"),)
    given = (("KIT_CHECKPOINT_DIR", "/nfs"),)
    result = repeated(RunRequest(env=given), RUN, options, values=REMEMBERED, environ={})
    assert result.env == (("LR", "0.1"), *given)
    with pytest.raises(InputError, match="-x KIT_CHECKPOINT_DIR: kit sets this variable"):
        encoding.check(result, result.command)


def test_a_run_of_an_earlier_kit() -> None:
    """Its record has no options."""
    result = repeated(RunRequest(), replace(RUN, env=()), {}, values={}, environ={})
    assert (result.np, result.command, result.launcher, result.servers) == (8, RUN.command, "mpi", None)
    servers = replace(RUN, env=(), roles=("server", "server", "scheduler"))
    result = repeated(RunRequest(), servers, {}, values={}, environ={})
    assert (result.launcher, result.servers) == ("ps", 2)
    with pytest.raises(InputError, match="set LR"):
        repeated(RunRequest(), RUN, {}, values={}, environ={})
