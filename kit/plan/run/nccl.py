"""What a run needs of NCCL: its network plugin, and the network that it must use (nccl: in kit.yaml)."""

from __future__ import annotations

from kit.model import names
from kit.model.launch import Placement
from kit.model.spec import ClusterSpec, NcclNetwork

# kit-rank reads them (images/lib/kitrun/nccl.py).
REQUIRE_VARIABLE, PLUGIN_VARIABLE = "KIT_NCCL_NETWORK", "KIT_NCCL_FOLDER"


def variables(
    spec: ClusterSpec, placement: Placement, require: NcclNetwork | None = None, *, elastic: bool = False
) -> dict[str, str]:
    """Return the variables by which kit-rank loads the plugin and watches NCCL. `require` replaces that of kit.yaml.

    On one host, NCCL chooses a network and does not use it, so there is nothing to watch. More hosts may come to an
    elastic run, so kit-elastic decides when it starts a rank (images/lib/kitelastic/crew.py).
    """
    network = require or spec.nccl.require
    plugin = {PLUGIN_VARIABLE: names.NCCL_PLUGIN} if spec.nccl.plugin else {}
    between_hosts = elastic or len(placement.nodes) > 1
    watched = {REQUIRE_VARIABLE: network} if network != "any" and between_hosts else {}
    return {**plugin, **watched}
