"""kit compose: the Compose file of a host as kit deploy writes it, for use by hand."""

from __future__ import annotations

from kit.config.selection import select_host
from kit.flows.cluster.look import look_at_nodes, with_plugin
from kit.flows.context import Context
from kit.model import names
from kit.model.result import FileResult
from kit.model.values import replace
from kit.plan.cluster import compose, network, rdma, stack, wires
from kit.plan.cluster.gpus import file_driver


def compose_file(context: Context, name: str | None) -> FileResult:
    """Return the Compose file of one host with its current address, interface, GPUs and host key."""
    spec, inventory = context.spec, context.inventory
    host = inventory.head if name is None else select_host(inventory, name)
    alone = replace(context, inventory=replace(inventory, hosts=(host,)))
    observed, nodes, tag = look_at_nodes(alone)
    spec = with_plugin(spec, observed[0])
    service = names.HEAD if host == inventory.head else names.NODE
    file = stack.ComposeFiles(spec, tag).file(
        service,
        node=nodes[0],
        interface=network.pick_interface(observed[0], spec.network).name,
        rdma=rdma.passed(observed[0], spec),
        more=wires.environment(observed[0], spec),
        gpus=file_driver(observed[0]),
        host_key=compose.held_keys(observed).hosts.get(host.name, ""),
    )
    return FileResult(host=host.name, text=file.text)
