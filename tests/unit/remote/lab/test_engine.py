"""The lab on an engine that is busy, or still works for a killed kit."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker
import pytest

from kit.errors import NotReadyError, StepError
from kit.model.lab import HostContainer, LabContainer, LabNetwork, LabObjects, LabSpec
from kit.plan import lab as plan
from kit.remote.lab import engine as module
from kit.remote.lab.engine import LabEngine

NETWORK = LabNetwork(id="n1", name="kit-lab-lab", subnet=IPv4Network("10.213.0.0/24"), shape="", folder="")
STANDING = LabContainer(id="c1", host="gpu1", address="10.213.0.11", state="running")
FOUND = LabObjects(network=NETWORK, containers=(STANDING,), helpers=(), volumes=("v1",), other_networks=())


def refusal(status: int, words: str) -> docker.errors.APIError:
    kind = docker.errors.NotFound if status == 404 else docker.errors.APIError
    return kind(words, response=SimpleNamespace(status_code=status, reason="", url=""), explanation=words)  # type: ignore[arg-type]


class Api:
    """Each call takes the next of its answers, and raises it where it is an error. Without one all goes well."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.calls: list[str] = []
        self.host_configs: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_words: object, **options: Any) -> Any:
            self.calls.append(name)
            if name == "create_container":
                self.host_configs.append(dict(options["host_config"]))
            answer = self.answers[name].pop(0) if self.answers.get(name) else {}
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def engine_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Api], LabEngine]:
    monkeypatch.setattr(module, "_POLL_S", 0.0)

    def make(api: Api) -> LabEngine:
        engine = LabEngine.__new__(LabEngine)
        client = SimpleNamespace(api=api, volumes=SimpleNamespace(create=lambda *_, **__: None))
        engine.client = cast(Any, client)
        return engine

    return make


def wanted(lab: str = "lab") -> HostContainer:
    spec = LabSpec(name=lab, hosts=1)
    (host,) = plan.host_containers(spec, folder="/f", image="kit-lab:1", subnets=[NETWORK.subnet], public_key="k")
    return host


TAKEN = 'Conflict. The container name "/kit-lab-lab-gpu1" is already in use by container "c1"'


def test_a_host_that_the_engine_still_makes_for_a_killed_up_is_waited_for(
    engine_with: Callable[[Api], LabEngine],
) -> None:
    ours = {"Config": {"Labels": {"kit.base.packages": "sha256:1", **wanted().labels}}}  # the first is the image's
    api = Api(create_container=[refusal(409, TAKEN)] * 3, inspect_container=[refusal(404, "none")] * 2 + [ours])
    engine_with(api).create(wanted())
    assert api.calls.count("create_container") == 3


def test_a_host_that_it_gave_up_making_is_made(engine_with: Callable[[Api], LabEngine]) -> None:
    api = Api(create_container=[refusal(409, TAKEN)], inspect_container=[refusal(404, "none")])
    engine_with(api).create(wanted())
    assert api.calls.count("create_container") == 2


def test_a_host_whose_network_is_gone(engine_with: Callable[[Api], LabEngine]) -> None:
    with pytest.raises(StepError, match="its network is gone") as caught:
        engine_with(Api(start=[refusal(404, "network 1a4a0193a061 not found")])).start(wanted("big"))
    # Without its name, this would take another lab down.
    assert (caught.value.host, str(caught.value.hint).rpartition(": ")[2]) == ("gpu1", "kit lab down --name big")
    with pytest.raises(StepError, match="no room"):
        engine_with(Api(start=[refusal(500, "no room")])).start(wanted())


def test_a_container_of_somebody_elses_with_that_name_is_reported(engine_with: Callable[[Api], LabEngine]) -> None:
    api = Api(create_container=[refusal(409, TAKEN)], inspect_container=[{"Config": {"Labels": {"mine": "1"}}}])
    with pytest.raises(StepError, match="already in use"):
        engine_with(api).create(wanted())


def test_an_engine_that_refuses_to_drop_a_capability_it_lacks(engine_with: Callable[[Api], LabEngine]) -> None:
    """Docker 26 on a machine that cannot grant SYS_RESOURCE, such as a container."""
    words = 'invalid CapDrop: capability not supported by your kernel: "CAP_SYS_RESOURCE"'
    api = Api(
        create_host_config=[{"CapAdd": ["ALL"], "CapDrop": ["SYS_RESOURCE"]}], create_container=[refusal(400, words)]
    )
    engine_with(api).create(wanted())
    assert [config.get("CapDrop") for config in api.host_configs] == [["SYS_RESOURCE"], None]
    assert all(config["CapAdd"] == ["ALL"] for config in api.host_configs)
    with pytest.raises(StepError, match="invalid CapDrop"):
        engine_with(Api(create_container=[refusal(400, words)])).create(wanted())


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        ("remove_container", 409, "removal of container c1 is already in progress"),
        ("remove_container", 500, "could not kill: tried to kill container, but did not receive an exit event"),
        ("remove_container", 500, "driver failed to remove root filesystem: unlinkat: device or resource busy"),
        ("remove_network", 403, "error while removing network: network kit-lab-lab id n1 has active endpoints"),
        ("remove_volume", 409, "remove v1: volume is in use - [c1]"),
    ],
)
def test_what_a_busy_engine_does_not_remove_yet_is_requested_again(
    engine_with: Callable[[Api], LabEngine], call: str, status: int, words: str
) -> None:
    api = Api(**{call: [refusal(status, words), refusal(404, "it is gone")]})
    engine_with(api).remove(FOUND, again="kit lab down")
    assert api.calls.count(call) == 2
    assert {"remove_container", "remove_network", "remove_volume"} <= set(api.calls)


def test_what_it_never_removes_is_reported(
    engine_with: Callable[[Api], LabEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StepError, match="permission denied") as caught:
        engine_with(Api(remove_container=[refusal(500, "permission denied")])).remove(FOUND, again="kit lab down")
    assert caught.value.hint == "look at the engine's log (journalctl -u docker), and run the command again"
    monkeypatch.setattr(module, "_PATIENCE_S", -1.0)
    with pytest.raises(StepError, match="active endpoints"):
        engine_with(Api(remove_network=[refusal(403, "has active endpoints")])).remove(FOUND, again="kit lab down")


def test_a_network_that_other_containers_use_is_not_waited_for(
    engine_with: Callable[[Api], LabEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 1e9)
    endpoints = {"c1": {"Name": "kit-lab-lab-gpu1"}, "c7": {"Name": "web"}}
    api = Api(
        remove_network=[refusal(403, "network kit-lab-lab id n1 has active endpoints")] * 2,
        # At first, only the host that is on its way.
        inspect_network=[{"Name": "kit-lab-lab", "Containers": only} for only in ({"c1": endpoints["c1"]}, endpoints)],
    )
    with pytest.raises(StepError, match=r"other containers use it: web$") as caught:
        engine_with(api).remove(FOUND, again="kit lab down")
    assert caught.value.hint == "docker network disconnect kit-lab-lab web, then: kit lab down"
    assert api.calls.index("remove_volume") < api.calls.index("remove_network")
    assert api.calls.count("remove_network") == 2


def test_only_containers_that_exist_and_are_not_the_labs_keep_a_network() -> None:
    endpoints = {"c1": {"Name": "gpu1"}, "ep-3": {"Name": "gpu2"}, "c9": {"Name": "web"}, "c8": {"Name": "db"}}
    assert module.others_of(endpoints, ["c1"]) == ["db", "web"]
    assert module.others_of({}, []) == []


def test_a_bare_host_boots_itself_and_gets_its_further_nics_and_certificates(
    engine_with: Callable[[Api], LabEngine],
) -> None:
    spec = LabSpec(name="lab", hosts=1, bare=True, nics=2)
    subnets = [NETWORK.subnet, IPv4Network("10.213.1.0/24")]
    (host,) = plan.host_containers(
        spec, folder="/f", image="i", subnets=subnets, public_key="k", certificates=b"-----BEGIN"
    )
    api = Api(inspect_container=[{"NetworkSettings": {"Networks": {"kit-lab-lab": {}}}}])
    engine_with(api).create(host)
    assert api.calls.index("create_container") < api.calls.index("connect_container_to_network")
    assert "put_archive" in api.calls


def creating(answer: docker.errors.APIError) -> LabEngine:
    """Return an engine that refuses every network in these words."""

    def create(*_words: object, **_options: object) -> None:
        raise answer

    engine = LabEngine.__new__(LabEngine)
    engine.client = cast(Any, SimpleNamespace(networks=SimpleNamespace(create=create)))
    return engine


def test_a_network_that_another_up_made_since_is_no_other_failure() -> None:
    engine = creating(refusal(409, "network with name kit-lab-mine already exists"))
    with pytest.raises(NotReadyError, match="another kit lab up") as caught:
        engine.create_network("kit-lab-mine", NETWORK.subnet, {"kit.lab": "mine"})
    assert "kit lab status --name mine" in str(caught.value.hint)
    overlap = creating(refusal(403, "invalid pool request: Pool overlaps with other one on this address space"))
    assert overlap.create_network("kit-lab-mine", NETWORK.subnet, {"kit.lab": "mine"}) is False
    with pytest.raises(StepError, match="permission denied"):
        creating(refusal(500, "permission denied")).create_network("n", NETWORK.subnet, {"kit.lab": "mine"})


def test_the_routes_of_a_vpn_for_all_traffic_leave_networks_for_a_lab(tmp_path: Path) -> None:
    """OpenVPN's redirect-gateway def1 covers the default route with two halves."""
    rows = [("eth0", "00000000", "00000000"), ("tun0", "00000000", "00000080"), ("tun0", "00000080", "00000080")]
    rows.append(("tun0", "0000D50A", "00FFFFFF"))
    table = tmp_path / "route"
    lines = [f"{device}\t{target}\t0100000A\t0003\t0\t0\t0\t{mask}\t0\t0\t0" for device, target, mask in rows]
    table.write_text("\n".join(["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask", *lines, ""]))
    taken = list(module._routes(table))
    assert taken == [IPv4Network("10.213.0.0/24")]
    assert next(plan.candidates(taken)) == IPv4Network("10.213.1.0/24")
