"""What the text of an option's value becomes."""

from __future__ import annotations

import pytest

from kit.cli.verbs.values import bytes_per_second, memory


@pytest.mark.parametrize(("text", "size"), [("64gb", 64 << 30), ("512M", 512 << 20), ("1g", 1 << 30), ("4kb", 4096)])
def test_memory(text: str, size: int) -> None:
    assert memory(text) == size


@pytest.mark.parametrize("text", ["64", "0gb", "-1gb", "1.5gb", "64 gb", "64tb", "", "1e3g"])
def test_what_no_memory_is(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 64gb or 512mb"):
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
