"""NCCL's network plugin out of an image: which hosts lack it, what brings it there, and the folder that nodes mount.

The folder is kit's, and its name is a digest of the image's content and the path in it. So other content is another
folder, and nodes that mount it are other nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.launch import Node
from kit.model.nccl import PluginImage
from kit.model.observed import HostFacts
from kit.model.plan import (
    COPY_PLUGIN,
    PULL_PLUGIN,
    SHIP_PLUGIN,
    TIDY_PLUGIN,
    CopyPlugin,
    HostPlan,
    Needs,
    RemovePlugins,
    Round,
)
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import checks
from kit.plan.cluster.supply import Image, bring

_WHY = "the host does not have this plugin"
# Where a dry run does not know the content, nodes would mount this folder.
_UNKNOWN = "unknown"


class Plugin(Struct, frozen=True, kw_only=True):
    """The plugin that hosts should have: what kit.yaml names, and how hosts get the image.

    `content` is sha256:… of the image, or '' if a dry run does not know it. The tag of `image` is kit's own.
    """

    wanted: PluginImage
    image: Image
    content: str

    @property
    def key(self) -> str:
        """Return the name of the plugin's folder, or '' if its content is unknown."""
        return key_of(self.content, self.wanted.path) if self.content else ""


def key_of(content: str, path: str) -> str:
    """Return 16 hexadecimal digits for the folder `path` of an image with this content."""
    return hashlib.sha256(f"{content}\0{path}".encode()).hexdigest()[:16]


def tag_of(cluster: str, content: str, path: str) -> str:
    """Return the name that the image has on hosts until its folder is copied."""
    return f"{names.plugin_repository(cluster)}:{key_of(content, path)}"


def folder_of(cluster: str, key: str) -> str:
    """Return the folder of a plugin on the VMs."""
    return f"{names.folder(cluster)}/{names.PLUGINS}/{key}"


def mounted(spec: ClusterSpec, plugin: Plugin | None) -> ClusterSpec:
    """Return the spec whose nodes mount the plugin's folder, as they mount one that kit.yaml names."""
    return spec if plugin is None else with_folder(spec, plugin.key)


def with_folder(spec: ClusterSpec, key: str) -> ClusterSpec:
    """Return the spec with the folder of this key in the image's place."""
    return replace(spec, nccl=replace(spec.nccl, plugin=folder_of(spec.name, key or _UNKNOWN)))


def lacks(facts: HostFacts, plugin: Plugin) -> bool:
    return plugin.key not in facts.plugins


def problems(observed: Sequence[HostFacts], plugin: Plugin) -> list[KitError]:
    """Return what keeps hosts from getting the plugin's image."""
    lacking = [facts for facts in observed if lacks(facts, plugin)]
    what = f"the image of nccl.plugin, {plugin.wanted.image},"
    hint = "name an image for these processors in nccl.plugin, or a folder of the VMs"
    return [
        problem
        for facts in lacking
        for problem in (
            checks.disk_short(facts, plugin.image.size, what),
            checks.arch_differs(facts, plugin.image.arches, what, hint),
        )
        if problem is not None
    ]


def python_problem(facts: HostFacts) -> StepError | None:
    """Return a problem if the host could not copy the plugin out of its image."""
    if checks.python_fits(facts.python):
        return None
    what = f"has Python {facts.python}" if facts.python else "has no python3"
    return StepError(
        f"{what}; Python 3.6 or newer is required to copy nccl.plugin out of its image",
        hint="sudo apt-get install python3 (or: dnf install python3)",
        host=facts.host.name,
    )


def rounds(
    spec: ClusterSpec, plugin: Plugin, observed: Sequence[HostFacts], nodes: Sequence[Node], *, needs: Needs
) -> tuple[Round, ...]:
    """Return the rounds that bring the plugin to the hosts that lack it: its image, then its folder.

    `needs` is what the first one needs of the rounds before it.
    """
    lacking = [node for facts, node in zip(observed, nodes, strict=True) if lacks(facts, plugin)]
    if not lacking:
        return ()
    name = PULL_PLUGIN if plugin.image.source else SHIP_PLUGIN
    # An engine that the others get the image from has it.
    without = [node for node in lacking if node.name != plugin.image.builder]
    brought = replace(bring(plugin.image, without, nodes[0], why=_WHY), name=name, needs=needs)
    copies = tuple(HostPlan(host=node.name, steps=(_copy(spec, plugin, node),)) for node in lacking)
    return (brought, Round(name=COPY_PLUGIN, hosts=copies, needs="host" if without else needs))


def _copy(spec: ClusterSpec, plugin: Plugin, node: Node) -> CopyPlugin:
    """Return the step that copies the folder. The builder's engine has the image under its own name, which stays."""
    return CopyPlugin(
        cluster=spec.name,
        image=plugin.image.origin if node.name == plugin.image.builder else plugin.image.tag,
        source=plugin.wanted.image,
        path=plugin.wanted.path,
        folder=folder_of(spec.name, plugin.key) if plugin.key else "",
        why=_WHY,
    )


def tidy_round(spec: ClusterSpec, plugin: Plugin | None, observed: Sequence[HostFacts]) -> Round | None:
    """Return the round that removes the folders of earlier plugins, once no node mounts them, or None."""
    key = "" if plugin is None else plugin.key
    if plugin is not None and not key:
        return None
    plans = tuple(_tidied(spec, facts, facts.plugins - {key}) for facts in observed)
    plans = tuple(plan for plan in plans if plan.steps)
    return Round(name=TIDY_PLUGIN, hosts=plans) if plans else None


def _tidied(spec: ClusterSpec, facts: HostFacts, keys: Iterable[str]) -> HostPlan:
    folders = tuple(folder_of(spec.name, key) for key in sorted(keys))
    step = RemovePlugins(folders=folders, why="nodes do not mount it any more")
    return HostPlan(host=facts.host.name, steps=(step,) if folders else ())
