"""How hosts get the image: kit ships it to all of them in one broadcast, or each host pulls it from a registry."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import PULL, SHIP, HostPlan, Pull, Round, Ship
from kit.model.text import fold


class Image(Struct, frozen=True, kw_only=True):
    """An image that the hosts should have. `id` (as hosts will have it) and `size` (bytes) are '' and 0 if unknown.

    It is in this machine's engine, or in that of the host `builder`, as `origin` if that is not ''. If hosts pull it,
    `source` is its name at the registry and `digest` what that name refers to. `arches` are the architectures it is
    for, as engines name them. `name` is what kit prints, if that is not the tag.
    """

    tag: str
    id: str = ""
    size: int = 0
    builder: str = ""
    origin: str = ""
    source: str = ""
    digest: str = ""
    arches: tuple[str, ...] = ()
    name: str = ""


def supply_round(image: Image, observed: Sequence[HostFacts], nodes: Sequence[Node]) -> Round | None:
    """Return the round that brings the image to the hosts that lack it. None if no host does."""
    lacking = [node for facts, node in zip(observed, nodes, strict=True) if facts.image_id is None]
    return bring(image, lacking, nodes[0], why="the host does not have it") if lacking else None


# Since this version, new engines have containerd's image store, whose IDs are those of manifests.
_OTHER_STORE = 29


def differing(image: Image, observed: Sequence[HostFacts]) -> str | None:
    """Return which hosts may have another build under the tag than the others have or get now, or None.

    kit compares IDs. They differ for the same image on a head that built it, and in another image store. So hosts are
    compared without the head, and only with hosts whose engine has the same version.
    """
    brought = image.id if any(facts.image_id is None for facts in observed) else ""
    old = [
        facts.host.name
        for facts in observed
        if brought
        and facts.image_id not in (None, "", brought)
        and _classic(facts)
        and facts.host.name != image.builder
    ]
    if old:
        return f"{fold(old)} may keep another build of {image.tag} than the one that this deploy brings to other hosts"
    for engine in dict.fromkeys(facts.engine for facts in observed):
        ids: dict[str, list[str]] = {}
        for facts in observed[1:]:
            if facts.image_id and facts.engine == engine:
                ids.setdefault(facts.image_id, []).append(facts.host.name)
        if len(ids) > 1:
            which = "; ".join(f"{fold(hosts)} {image_id[7:19]}" for image_id, hosts in ids.items())
            return f"hosts have different images under the tag {image.tag}: {which}"
    return None


def _classic(facts: HostFacts) -> bool:
    major = facts.engine.partition(".")[0]
    return major.isascii() and major.isdigit() and int(major) < _OTHER_STORE


def bring(image: Image, lacking: Sequence[Node], head: Node, *, why: str) -> Round:
    """Return the round that brings an image to these hosts."""
    if image.source:
        pull = Pull(image=image.tag, source=image.source, digest=image.digest, why=why)
        return Round(name=PULL, hosts=tuple(HostPlan(host=node.name, steps=(pull,)) for node in lacking))
    plans = tuple(HostPlan(host=node.name, steps=(_ship(image, node, head, why),)) for node in lacking)
    return Round(name=SHIP, hosts=plans, together=True)


def _ship(image: Image, node: Node, head: Node, why: str) -> Ship:
    return Ship(
        image=image.tag,
        image_id=image.id,
        size=image.size,
        address=node.address,
        # The head is the only host that builds.
        source=(head.name, head.address) if image.builder == head.name else None,
        origin=image.origin,
        name=image.name,
        why=why,
    )
