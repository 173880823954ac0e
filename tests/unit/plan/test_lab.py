"""The lab's plan: what it refuses, the network that it takes, its containers and its two files."""

from __future__ import annotations

import ipaddress

import pytest
import yaml

from kit.config.validate import spec_from
from kit.errors import InputError
from kit.model.lab import FOLDER_LABEL, HOST_LABEL, LABEL, LabSpec
from kit.plan import lab as plan

SUBNET = ipaddress.IPv4Network("10.213.7.0/24")


def networks(*texts: str) -> list[ipaddress.IPv4Network]:
    return [ipaddress.IPv4Network(text) for text in texts]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (LabSpec(name="Lab 1"), "cannot name a lab"),
        (LabSpec(hosts=0), "1 to 200 hosts, not 0"),
        (LabSpec(hosts=201), "1 to 200 hosts, not 201"),
        (LabSpec(slots=0), "1 slot or more"),
        (LabSpec(link_rate="fast"), "'fast' is not the rate"),
        (LabSpec(link_rate="0mbit"), "'0mbit' is not the rate"),
        (LabSpec(link_rate="1mbit\n"), "is not the rate"),
        (LabSpec(name="lab 1"), "cannot name a lab"),
        (LabSpec(user="admin"), "no user 'admin'"),
        (LabSpec(gpus=9), "0 to 8 GPUs, not 9"),
        (LabSpec(gpus=2, gpu_model="h300"), "no GPU 'h300'"),
        (LabSpec(gpus=2, gpu_driver="latest"), "not the version of a driver"),
        (LabSpec(gpus=2, gpu_toolkit="flatpak"), "no part of the toolkit"),
    ],
)
def test_a_lab_that_cannot_be_is_refused_with_the_next_step(spec: LabSpec, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        plan.check(spec)
    assert caught.value.hint


def test_a_good_lab_is_not_refused() -> None:
    plan.check(LabSpec(hosts=200, slots=8, link_rate="10gbit", user="ubuntu", name="a-1"))


def test_the_first_free_network_is_taken() -> None:
    taken = networks("10.213.0.0/24", "10.213.1.128/25", "192.168.0.0/16")
    assert next(plan.candidates(taken)) == ipaddress.IPv4Network("10.213.2.0/24")


def test_a_machine_that_uses_all_of_10_gets_another_network() -> None:
    assert next(plan.candidates(networks("10.0.0.0/8"))) == ipaddress.IPv4Network("192.168.0.0/24")


def test_no_candidate_overlaps_what_the_inner_engines_use() -> None:
    inner = ipaddress.IPv4Network("172.16.0.0/12")
    assert not any(candidate.overlaps(inner) for candidate in plan.candidates([]))
    assert list(plan.candidates(networks("10.0.0.0/8", "192.168.0.0/16"))) == []


def test_every_host_of_the_largest_lab_has_an_address_in_the_network() -> None:
    addresses = {plan.address(SUBNET, index) for index in range(plan.MAX_HOSTS)}
    assert len(addresses) == plan.MAX_HOSTS
    assert all(ipaddress.IPv4Address(a) in SUBNET for a in addresses)
    assert str(SUBNET.broadcast_address) not in addresses


def test_containers_are_labeled_and_never_privileged() -> None:
    spec = LabSpec(name="t", hosts=2, link_rate="200mbit")
    made = plan.host_containers(spec, folder="/f", image="kit-lab:x", subnets=[SUBNET], public_key="ssh-ed25519 AAAA t")
    assert [(c.host, c.address) for c in made] == [("gpu1", "10.213.7.11"), ("gpu2", "10.213.7.12")]
    assert len({c.container for c in made} | {c.volume for c in made}) == 2
    for container in made:
        assert container.labels[LABEL] == "t"
        assert container.labels[HOST_LABEL] == container.host
        assert container.labels[FOLDER_LABEL] == "/f"
        assert container.cap_drop == ("SYS_RESOURCE",)
        assert container.env == {"KIT_LAB_KEY": "ssh-ed25519 AAAA t", "KIT_LAB_RATE": "200mbit"}


@pytest.mark.parametrize("bare", [False, True])
def test_the_shared_memory_of_a_host_is_that_of_a_vm(bare: bool) -> None:
    """Without a size, the kernel allows half of the memory. With the engine's 64 MB, no data fits into it."""
    spec = LabSpec(hosts=1, bare=bare)
    (host,) = plan.host_containers(spec, folder="/f", image="i", subnets=[SUBNET], public_key="k")
    options = host.tmpfs["/dev/shm"].split(",")
    assert "mode=1777" in options
    assert not [option for option in options if option.startswith("size=")]


def test_the_shape_distinguishes_labs() -> None:
    shapes = {
        LabSpec().shape,
        LabSpec(hosts=3).shape,
        LabSpec(slots=1).shape,
        LabSpec(link_rate="1gbit").shape,
        LabSpec(user="ubuntu").shape,
    }
    assert len(shapes) == 5


def test_kit_yaml_is_what_kit_reads() -> None:
    read = spec_from(yaml.safe_load(plan.kit_yaml_text(LabSpec(user="ubuntu"), SUBNET)))
    assert (read.name, read.network) == ("lab", "10.213.7.0/24")
    assert (read.ssh.user, read.ssh.key) == ("ubuntu", ".kit/lab/id_ed25519")
    assert read.ulimits.memlock == "default"
    assert read.mpi.yield_when_idle is True
    assert read.code == "."
    assert read.command[:3] == ("tf_benchmark", "--model", "resnet50")
    assert all(isinstance(word, str) for word in read.command)


def test_hosts_are_listed_in_order_with_their_slots() -> None:
    lines = plan.hosts_text(LabSpec(hosts=2, slots=3), SUBNET).splitlines()
    assert lines[0].startswith("# Made by kit")
    assert lines[1:] == ["10.213.7.11 name=gpu1 slots=3", "10.213.7.12 name=gpu2 slots=3"]


@pytest.mark.parametrize("write", [plan.hosts_text, plan.kit_yaml_text])
def test_a_file_shows_whether_a_person_changed_it(write: object) -> None:
    assert callable(write)
    text = write(LabSpec(), SUBNET)
    assert plan.whose(text) == "ours"
    assert plan.whose(text + "# mine\n") == "edited"
    assert plan.whose(text.replace("10.213.7", "10.213.8")) == "edited"
    assert plan.whose("10.0.0.1\n") == "foreign"
    assert plan.whose("") == "foreign"


def test_the_cluster_file_names_its_lab() -> None:
    text = plan.kit_yaml_text(LabSpec(name="second"), SUBNET)
    assert plan.lab_of(text) == "second"
    assert plan.lab_of(text + "# mine\n") == "second"
    assert plan.lab_of("name: second\n") is None
    assert plan.lab_of("") is None


def test_known_hosts_drops_the_comment_of_a_key() -> None:
    assert plan.known_hosts_text([("10.213.7.11", "ssh-ed25519 AAAA root@gpu1")]) == "10.213.7.11 ssh-ed25519 AAAA\n"


def test_gpus_change_the_shape_the_hosts_and_the_settings() -> None:
    spec = LabSpec(hosts=1, gpus=2, gpu_model="p100", gpu_driver="450.80.02", gpu_toolkit="cdi")
    assert "2 PRETENDED p100 each (driver 450.80.02, toolkit cdi)" in spec.shape
    assert "PRETENDED" not in LabSpec().shape
    (host,) = plan.host_containers(spec, folder="/f", image="i", subnets=[SUBNET], public_key="k")
    assert {name: value for name, value in host.env.items() if "GPU" in name} == {
        "KIT_LAB_GPUS": "2",
        "KIT_LAB_GPU_MODEL": "p100",
        "KIT_LAB_GPU_DRIVER": "450.80.02",
        "KIT_LAB_GPU_TOOLKIT": "cdi",
    }
    assert yaml.safe_load(plan.kit_yaml_text(spec, SUBNET))["image"] == {"flavour": "cpu"}
    assert "image" not in yaml.safe_load(plan.kit_yaml_text(LabSpec(), SUBNET))


@pytest.mark.parametrize("fault", ["xid", "xid:0", "xid:1000", "flood", ""])
def test_a_fault_that_the_lab_does_not_have(fault: str) -> None:
    with pytest.raises(InputError, match="no fault"):
        plan.check_fault(fault)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (LabSpec(bare=True, system="arch"), "no bare host has the system 'arch'"),
        (LabSpec(system="ubuntu"), "--system is for bare hosts"),
        (LabSpec(bare=True, gpus=1), "no pretended GPUs"),
        (LabSpec(nics=0), "1 to 4 NICs, not 0"),
        (LabSpec(nics=5), "1 to 4 NICs, not 5"),
    ],
)
def test_a_bare_host_or_its_nics_that_cannot_be_are_refused(spec: LabSpec, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        plan.check(spec)
    assert caught.value.hint


def test_a_bare_host_boots_itself_and_reaches_packages() -> None:
    common = {"folder": "/f", "image": "i", "subnets": [SUBNET], "public_key": "k"}
    reach = {"proxies": {"http_proxy": "http://10.0.0.1:3128"}, "certificates": b"PEM"}
    (bare,) = plan.host_containers(LabSpec(hosts=1, bare=True), **common, **reach)  # type: ignore[arg-type]
    assert (bare.own_init, bare.certificates) == (True, b"PEM")
    assert bare.env == {"KIT_LAB_KEY": "k", "http_proxy": "http://10.0.0.1:3128"}
    (usual,) = plan.host_containers(LabSpec(hosts=1), **common, **reach)  # type: ignore[arg-type]
    assert (usual.own_init, usual.certificates, usual.env) == (False, b"", {"KIT_LAB_KEY": "k"})


def test_each_nic_has_its_own_network_and_the_first_is_eth0() -> None:
    spec = LabSpec(name="t", hosts=2, nics=2)
    subnets = networks("10.213.7.0/24", "10.213.9.0/24")
    _, second = plan.host_containers(spec, folder="/f", image="i", subnets=subnets, public_key="k")
    assert (second.network, second.address) == ("kit-lab-t", "10.213.7.12")
    assert second.more_nics == (("kit-lab-t.nic1", "10.213.9.12"),)
    assert second.env["KIT_LAB_ADDRESSES"] == "10.213.7.12 10.213.9.12"


def test_bare_hosts_and_nics_change_the_shape() -> None:
    specs = (LabSpec(), LabSpec(bare=True), LabSpec(bare=True, system="debian-12"), LabSpec(nics=2))
    assert len({spec.shape for spec in specs}) == 4
