"""What the text of an option's value becomes."""

from __future__ import annotations

import pytest

from kit.cli.verbs.values import after, array, bytes_per_second, memory, priority, share
from kit.model.queue import After


@pytest.mark.parametrize(("text", "size"), [("64gb", 64 << 30), ("512M", 512 << 20), ("1g", 1 << 30), ("4kb", 4096)])
def test_memory(text: str, size: int) -> None:
    assert memory(text) == size


@pytest.mark.parametrize("text", ["64", "0gb", "-1gb", "1.5gb", "64 gb", "64tb", "", "1e3g"])
def test_what_no_memory_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size in kb, mb or gb: write "):
        memory(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("1gbit", 125_000_000), ("100mbit", 12_500_000), ("50MB/s", 50_000_000), ("8bit", 1)]
)
def test_bytes_per_second(text: str, rate: int) -> None:
    assert bytes_per_second(text) == rate


@pytest.mark.parametrize("text", ["1", "0gbit", "7bit", "1gb", "fast", "-1gbit", ""])
def test_what_no_rate_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate such as 200mbit, 8gbit or 8Gbps"):
        bytes_per_second(text)


@pytest.mark.parametrize(("text", "value"), [("0.9", 0.9), ("1", 1), ("1/3", 1 / 3), ("2/2", 1), ("0.5/2", 0.25)])
def test_share(text: str, value: float) -> None:
    assert share(text) == value


@pytest.mark.parametrize(
    "text", ["", "0", "1.1", "94%", "/", "1/", "/3", "3/2", "0/3", "1/0", "1/3/2", "-1/3", "1 / 3"]
)
def test_what_no_share_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a part of 1, such as 0\.9 or 1/3"):
        share(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("-100", -100), ("100", 100), ("7", 7)])
def test_priority(text: str, value: int) -> None:
    assert priority(text) == value


@pytest.mark.parametrize("text", ["", "101", "-101", "high", "1.5", "+1"])
def test_what_no_priority_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number from -100 to 100"):
        priority(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20261121-101500-3fa2", After(run="20261121-101500-3fa2")),
        ("20261121-10,failed", After(run="20261121-10", how="failed")),
        ("latest,any", After(run="latest", how="any")),
    ],
)
def test_after(text: str, value: After) -> None:
    assert after(text) == value


@pytest.mark.parametrize("text", ["", "train", "20261121,", "20261121,done", "../x", "20261121-101500-3fa2,ok,any"])
def test_what_no_earlier_run_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not the id of a run|is no end of a run"):
        after(text)


@pytest.mark.parametrize(
    ("text", "indexes"), [("0-3", (0, 1, 2, 3)), ("5", (5,)), ("1,3,5", (1, 3, 5)), ("0-1,9", (0, 1, 9))]
)
def test_array(text: str, indexes: tuple[int, ...]) -> None:
    assert array(text) == indexes


@pytest.mark.parametrize("text", ["", "a-b", "3-1", "0-1000", "1,1", "0-2,2", "-1", "0-999,1000"])
def test_what_no_array_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"index|names"):
        array(text)


def test_a_size_of_another_tool_is_converted() -> None:
    with pytest.raises(ValueError, match=r"^'64GiB' is not a size in kb, mb or gb: write 64gb$"):
        memory("64GiB")
    with pytest.raises(ValueError, match=r"write 64gb or 512mb$"):
        memory("64")
