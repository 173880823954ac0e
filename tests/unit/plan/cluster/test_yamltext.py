from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.plan.cluster.yamltext import dump

TEXT = st.text(max_size=12) | st.sampled_from(
    ["yes", "No", "null", "~", "1", "0x1f", "1e3", "12:30", "a: b", "# c", "-"]
)
LEAVES = TEXT | st.integers() | st.booleans()
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)


@settings(max_examples=300)
@given(st.dictionaries(TEXT, TREES, max_size=5))
def test_what_is_written_reads_back_as_it_was(document: dict[str, object]) -> None:
    text = dump(document)
    assert (yaml.safe_load(text) or {}) == document


def test_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        dump({"a": 1.5})
