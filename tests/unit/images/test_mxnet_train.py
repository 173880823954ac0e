"""images/bin/mxnet_train as far as it goes without MXNet: what it refuses, and what it reads."""

from __future__ import annotations

import importlib
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

BIN = launcher.IMAGES / "bin"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(BIN))
    monkeypatch.syspath_prepend(str(launcher.LIB))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("OMPI_COMM_WORLD_SIZE", "DMLC_ROLE", "DMLC_NUM_WORKER"):
        monkeypatch.delenv(name, raising=False)
    yield
    for name in ("_benchmark", "_mxnet_networks", "_mxnet_stores"):
        sys.modules.pop(name, None)


@pytest.fixture
def stores(programs: None) -> Any:
    return importlib.import_module("_mxnet_stores")


def refused(*words: str, **env: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(launcher.LIB), **env}
    argv = [sys.executable, "-B", str(BIN / "mxnet_train"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--network resnet-17", "no network 'resnet-17'; there are: alexnet, densenet-121, "),
        ("--network resnet --num-layers 7", "no network 'resnet-7'"),
        ("--kv-store dist", "no kv-store 'dist'; there are: local, device, nccl, dist_sync, "),
        ("--image-shape 224", "--image-shape '224' is not channels,height,width"),
        ("--image-shape 3,0,2", "--image-shape '3,0,2'"),
        ("--gpus a", "--gpus 'a' are not numbers"),
        ("--data-train /no/such.rec", "there is no file /no/such.rec on this machine"),
        ("--benchmark 0", "--benchmark 0 needs --data-train"),
        ("--benchmark 1 --data-train x.rec", "leave it or --data-train out"),
        ("--batch-size 0", "less than 1"),
        ("--lr 0", "more than 0"),
        ("--lr nan", "more than 0"),
        ("--gc-type 1bit", "invalid choice: '1bit'"),
    ],
)
def test_bad_input(words: str, says: str) -> None:
    assert says in refused(*words.split())


def test_a_data_set_that_cannot_be_read(tmp_path: Path) -> None:
    words, env = ("--data-train", "mine"), {"KIT_DATA_MINE": str(tmp_path)}
    assert refused(*words).startswith("mxnet_train: --data-train mine: this node has no data set and no file")
    assert "--data-train mine: nothing of it is on this host; to bring it: kit data stage mine" in refused(
        *words, **env
    )
    (tmp_path / "a.rec").touch()
    says = "--data-train mine: each host has other files, and all workers need the same"
    assert says in refused(*words, **env, KIT_DATA_MINE_SPLIT="hosts")


def test_names_are_in_the_order_of_people(programs: None) -> None:
    names = importlib.import_module("_mxnet_networks").names()
    assert {"alexnet", "googlenet", "inception-v3", "resnet-18", "resnet-152", "vgg-16", "mobilenet"} <= set(names)
    assert names.index("resnet-18") < names.index("resnet-101") < names.index("resnet-v2-18")


def test_one_process_has_the_stores_within(stores: Any) -> None:
    usable = [name for name in stores.STORES if not stores.why_not(name, 0, False)]
    assert usable == ["local", "device", "horovod"]
    assert "built without NCCL" in stores.why_not("nccl", 2, False)
    assert "no GPU" in stores.why_not("nccl", 0, True)
    assert stores.why_not("nccl", 2, True) == ""
    assert "--launcher ps" in stores.why_not("dist_sync", 0, False)


def test_ranks_without_servers_have_horovod(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert [name for name in stores.STORES if not stores.why_not(name, 2, True)] == ["horovod"]
    assert "of 4 ranks each would train for itself" in stores.why_not("local", 0, False)


def test_workers_have_what_servers_offer(stores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"OMPI_COMM_WORLD_SIZE": "13", "DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "8"}.items():
        monkeypatch.setenv(name, value)
    assert tuple(name for name in stores.STORES if not stores.why_not(name, 0, False)) == stores.BETWEEN
    assert "needs MPI" in stores.why_not("horovod", 0, False)


@pytest.mark.parametrize(
    ("store", "gpus", "good"),
    [("dist_sync", 0, True), ("dist_async", 2, True), ("device", 2, True), ("device", 0, False), ("local", 2, False)],
)
def test_where_gradients_can_be_compressed(stores: Any, store: str, gpus: int, good: bool) -> None:
    assert (stores.why_not_compressed(store, gpus) == "") is good


def records(*lengths: int, part: int = 0) -> bytes:
    heads = (struct.pack("<II", 0xCED7230A, part << 29 | length) for length in lengths)
    return b"".join(head + b"x" * length + b"\0" * (-length % 4) for head, length in zip(heads, lengths, strict=True))


def test_records_are_counted(programs: None, tmp_path: Path) -> None:
    loader = importlib.machinery.SourceFileLoader("mxnet_train", str(BIN / "mxnet_train"))
    spec = importlib.util.spec_from_loader("mxnet_train", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    path = tmp_path / "a.rec"
    # Three whole records and one in two parts.
    path.write_bytes(records(1, 4, 7) + records(5, part=1) + records(5, part=3))
    assert module.count_records(str(path)) == 4
    (tmp_path / "a.idx").write_text("0\t0\n1\t48\n")
    assert module.count_records(str(path)) == 2
    other = tmp_path / "b.rec"
    other.write_bytes(b"no such thing")
    with pytest.raises(SystemExit) as caught:
        module.count_records(str(other))
    assert caught.value.code == 2
