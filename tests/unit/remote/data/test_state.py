"""What a host says of its data sets. kit data rm deletes the folder that one host names on all hosts."""

from __future__ import annotations

import pytest

from kit.model.answer import OddAnswer
from kit.model.datasets import HostData, HostSet
from kit.remote.data.state import parse

COPY = "/mnt/nvme/kit-data/lab/images"


def test_a_copy_may_be_on_any_disk() -> None:
    text = f"record {{}}\nset {COPY}\ncoming\nset {COPY}.old\nend\n"
    # kit.yaml cannot have such a name as the second one.
    assert parse(text, "lab") == HostData(record="{}", sets=(HostSet(folder=COPY, coming=True),))


def test_what_rclone_has_mounted() -> None:
    text = f"set {COPY}\nmounted rw s3://b/a\\040new\\134x\\777é\nset {COPY}-2\nmounted ro \nend\n"
    assert parse(text, "lab").sets == (
        HostSet(folder=COPY, mounted=True, source="s3://b/a new\\x\\777é", write=True),
        HostSet(folder=f"{COPY}-2", mounted=True),
    )
    with pytest.raises(OddAnswer, match="it has an unknown line"):
        parse(f"set {COPY}\nmounted\nend\n", "lab")


def test_a_host_cannot_name_hosts_without_end() -> None:
    """kit folds their numbers, and Python refuses to read one of 5,000 digits."""
    (one,) = parse(f'set {COPY}\nstaged {{"among": "gpu1 gpu2"}}\nend\n', "lab").sets
    assert one.summary is not None
    assert one.summary.among == "gpu1 gpu2"
    with pytest.raises(OddAnswer, match="a name is too long"):
        parse(f'set {COPY}\nstaged {{"among": "gpu1 gpu{"2" * 5000}"}}\nend\n', "lab")


@pytest.mark.parametrize("word", ["", "-1", "1e9", "99999999999999"])
def test_the_time_of_a_host(word: str) -> None:
    assert parse("now 1795000000\nend\n", "lab").now == 1_795_000_000
    with pytest.raises(OddAnswer):
        parse(f"now {word}\nend\n", "lab")


@pytest.mark.parametrize("folder", ["/home/images", "/opt/kit/.data/other/images", f"{COPY}/files", "kit-data/lab/a"])
def test_a_host_cannot_name_another_folder(folder: str) -> None:
    with pytest.raises(OddAnswer, match="it has a folder that is not of a data set"):
        parse(f"set {folder}\nend\n", "lab")
