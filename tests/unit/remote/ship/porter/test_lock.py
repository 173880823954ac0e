"""One program at a time in a folder of a ship: one porter of a cluster on a host, for example."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from kit.remote.ship.porter import hold, image
from kit.remote.ship.porter.engine import SocketEngine
from kit.remote.ship.porter.hold import Hold
from kit.remote.ship.porter.main import Porter

LONG = 30.0


def porter() -> Porter:
    return Porter(cast(Any, None), cast(Any, None))


def test_what_another_one_holds_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A porter that does not get the folder also gets the order to end, and removes nothing."""
    monkeypatch.setattr(hold, "LOCK_S", 0.0)
    monkeypatch.setattr(SocketEngine, "root", lambda engine: str(tmp_path))
    first, second = porter(), porter()
    folder = tmp_path / image.FOLDER / "mine"
    first._hold.take(str(folder))
    (folder / "layer.part").write_bytes(b"half of it")
    with pytest.raises(OSError, match="another ship of this cluster"):
        second._begin({"image": "i", "config": "{}", "layers": [], "owner": "mine"})
    second._clean()
    assert (folder / "layer.part").read_bytes() == b"half of it"


def end(one: Hold) -> None:
    """Do what the system does when a program ends."""
    assert one._file
    one._file.close()


def test_the_next_waits_until_the_one_before_is_gone(tmp_path: Path) -> None:
    mine, first, second = str(tmp_path / "mine"), Hold(), Hold()
    first.take(mine)
    with ThreadPoolExecutor() as pool:
        holding = pool.submit(second.take, mine)
        with pytest.raises(TimeoutError):
            holding.result(0.3)
        end(first)
        holding.result(LONG)


def test_one_that_gives_the_folder_back_removes_it_if_nothing_is_in_it(tmp_path: Path) -> None:
    mine, first, second = tmp_path / "mine", Hold(), Hold()
    first.take(str(mine))
    with ThreadPoolExecutor() as pool:
        holding = pool.submit(second.take, str(mine))
        with pytest.raises(TimeoutError):
            holding.result(0.1)
        first.release()
        holding.result(LONG)
    assert second._file
    assert os.path.samestat(os.fstat(second._file.fileno()), (mine / "lock").stat())
    (mine / "layer.part").write_bytes(b"half of it")
    second.release()
    second.release()
    assert (mine / "layer.part").read_bytes() == b"half of it"
    first.take(str(mine))
    (mine / "layer.part").unlink()
    first.release()
    assert not mine.exists()


def test_the_lock_of_a_folder_that_went_is_none(tmp_path: Path) -> None:
    """The one before takes the folder along as it goes: a third would find another lock there, and nobody in it."""
    mine, first, second = str(tmp_path / "mine"), Hold(), Hold()
    first.take(mine)
    with ThreadPoolExecutor() as pool:
        holding = pool.submit(second.take, mine)
        with pytest.raises(TimeoutError):
            holding.result(0.1)
        shutil.rmtree(tmp_path / "mine")
        end(first)
        holding.result(LONG)
    assert second._file
    assert os.path.samestat(os.fstat(second._file.fileno()), (tmp_path / "mine" / "lock").stat())


def test_another_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "LOCK_S", 0.0)
    mine, first = str(tmp_path / "mine"), Hold()
    first.take(mine)
    with pytest.raises(OSError, match=r"^another ship of this cluster is running here$"):
        Hold().take(mine)


def test_one_that_waits_says_so(tmp_path: Path) -> None:
    mine, first, second = str(tmp_path / "mine"), Hold(), Hold()
    first.take(mine)
    waits: list[bool] = []

    def waiting() -> None:
        waits.append(True)
        end(first)

    second.take(mine, LONG, waiting)
    second.take(mine, LONG, waiting)
    assert waits == [True]


def test_clusters_do_not_meet(tmp_path: Path) -> None:
    holders = {name: Hold() for name in ("mine", "yours")}
    for name, holder in holders.items():
        holder.take(str(tmp_path / name))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["mine", "yours"]


def test_a_disk_that_cannot_be_written_to_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("a file")
    with pytest.raises(FileExistsError):
        Hold().take(str(tmp_path / "mine"))
