"""Hosts that may have another build under the image's tag are named."""

from __future__ import annotations

import pytest

from kit.model.observed import HostFacts
from kit.plan.cluster.supply import Image, differing
from tests.fakes.facts import facts

OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "1" * 64
IMAGE = Image(tag="kit:cpu-0123", id=NEW)


def hosts(*ids: str | None, **more: str) -> list[HostFacts]:
    return [facts(number, image_id=image_id, **more) for number, image_id in enumerate(ids, 1)]


def test_an_image_that_is_built_again_and_goes_to_a_new_host() -> None:
    text = "gpu[1-2] may keep another build of kit:cpu-0123 than the one that this deploy brings to other hosts"
    assert differing(IMAGE, hosts(OLD, OLD, None)) == text
    assert differing(IMAGE, hosts(NEW, NEW, None)) is None
    # The head that built it has it under another ID.
    on_head = Image(tag="kit:cpu-0123", id=NEW, builder="gpu1")
    assert differing(on_head, hosts(OLD, NEW, None)) is None
    assert str(differing(on_head, hosts(OLD, OLD, None))).startswith("gpu2 may keep")


def test_hosts_that_differ() -> None:
    text = f"hosts have different images under the tag kit:cpu-0123: gpu2 {'0' * 12}; gpu3 {'1' * 12}"
    assert differing(Image(tag="kit:cpu-0123"), hosts(NEW, OLD, NEW)) == text


@pytest.mark.parametrize(
    "observed",
    [
        hosts(OLD, NEW, NEW),
        hosts(OLD, OLD, None, engine="29.1.0"),
        [*hosts(OLD, OLD), facts(3, image_id=NEW, engine="29.1.0")],
        hosts("", None, None),
    ],
    ids=["a head that built it", "IDs of manifests", "other engines", "a dry run that builds on the head"],
)
def test_ids_that_prove_nothing_are_no_warning(observed: list[HostFacts]) -> None:
    image = IMAGE if any(one.image_id is None for one in observed) else Image(tag="kit:cpu-0123")
    assert differing(image, observed) is None
