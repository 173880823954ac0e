"""What this machine's engine answers about a lab: containers, networks and volumes, as the Docker SDK gets them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import docker.models.containers
import docker.models.networks
import docker.models.volumes

from kit.model.lab import FOLDER_LABEL, HOST_LABEL, LABEL, SHAPE_LABEL
from kit.remote.lab.engine import LabEngine

_ANSWER: dict[str, Any] = {
    "containers": [
        {
            "Id": "c1",
            "Config": {"Labels": {LABEL: "lab", HOST_LABEL: "lab1"}},
            "State": {"Status": "running", "Running": False, "ExitCode": 3},
            "NetworkSettings": {"Networks": {"lab": {"IPAMConfig": {"IPv4Address": "10.9.0.2"}, "IPAddress": ""}}},
            "Image": "sha256:ab",
        }
    ],
    "networks": [
        {
            "Id": "n1234567890ab",
            "Name": "kit-lab",
            "Labels": {LABEL: "lab", SHAPE_LABEL: "x", FOLDER_LABEL: "/x"},
            "IPAM": {"Config": [{"Subnet": "10.9.0.0/24"}]},
            "Options": {"com.docker.network.bridge.name": "br0"},
        }
    ],
    "volumes": [{"Name": "v"}],
    "link": "12\n",
}
_LISTS = ("containers", "networks", "volumes")
SAMPLES: tuple[bytes, ...] = (json.dumps(_ANSWER).encode(),)


class _Answering(LabEngine):
    """An engine whose client has these answers, in the SDK's own classes."""

    def __init__(self, answer: dict[str, Any]) -> None:
        models = {
            "containers": docker.models.containers.Container,
            "networks": docker.models.networks.Network,
            "volumes": docker.models.volumes.Volume,
        }

        def listing(kind: str) -> Any:
            return SimpleNamespace(list=lambda **_: [models[kind](attrs=attrs) for attrs in answer[kind]])

        api = SimpleNamespace(
            inspect_container=lambda _: answer["containers"][0],
            inspect_network=lambda _: answer["networks"][0],
            logs=lambda _, tail: b"log",
            exec_create=lambda *_: answer["containers"][0],
            exec_start=lambda _: str(answer.get("link")).encode(),
            exec_inspect=lambda _: {"ExitCode": 0},
        )
        self.client = cast("Any", SimpleNamespace(**{kind: listing(kind) for kind in models}, api=api))


def read(answer: bytes) -> None:
    """Find a lab, and look at its parts."""
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        # The HTTP client refuses it, before the SDK.
        return
    if not (isinstance(value, dict) and all(isinstance(value.get(kind), list) for kind in _LISTS)):
        # The lists are this module's own frame.
        return
    engine = _Answering(value)
    engine.find("lab")
    engine.taken_subnets()
    if not (value["networks"] and value["containers"]):
        return
    engine.bridge("n1")
    host = engine.host("c1", "lab1")
    host.image()
    host.link()
    host.alive()
