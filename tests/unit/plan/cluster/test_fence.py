"""The fence around a node, as Compose and Swarm spell it. tests/integration/test_security.py attacks it from a rank."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import pytest
import yaml

from kit.config.validate import spec_from
from kit.errors import InputError, InputErrors
from kit.model.spec import ClusterSpec, SecuritySpec
from kit.plan.cluster import stack
from kit.plan.run.local import local_container
from kit.plan.swarm import stack as swarm
from tests.fakes.facts import facts, node

DEFAULT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT")
LOOSE = SecuritySpec(
    capabilities=("SYS_PTRACE", "IPC_LOCK"), new_privileges=True, read_only=False, pids=0, seccomp="unconfined"
)


def services(spec: ClusterSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the head's service in a Compose file and in a stack file."""
    files = stack.ComposeFiles(spec, "kit:x")
    text = files.file("mpihead", node=node(1), interface="eth0", gpus="", host_key="").text
    wanted = swarm.wanted(
        spec, [facts(1)], [node(1)], image="sha256:1", tag="kit:x", interface="eth0",
        secrets={"client": "c", "head": "h", "node": "n"},
    )  # fmt: skip
    stacked = yaml.safe_load(swarm.stack_text(spec, wanted))
    return yaml.safe_load(text)["services"]["mpihead"], stacked["services"]["mpihead"]


def capabilities(*names: str) -> list[str]:
    return [f"CAP_{name}" for name in sorted(names)]


def test_a_node_keeps_what_sshd_and_ranks_need() -> None:
    for service in services(ClusterSpec()):
        assert service["cap_drop"] == ["ALL"]
        assert service["cap_add"] == capabilities(*DEFAULT)
        assert service["read_only"] is True
        assert service["environment"]["HOME"] == "/var/lib/kit/home/root"
    compose, stacked = services(ClusterSpec())
    assert compose["security_opt"] == ["no-new-privileges:true"]
    assert compose["pids_limit"] == stacked["deploy"]["resources"]["limits"]["pids"] == 32768


def test_what_a_rank_can_replace_is_the_source_of_no_mount() -> None:
    """The engine follows links below a source. A rank can put one anywhere in the folder of what runs leave behind."""
    compose, stacked = services(ClusterSpec(name="lab"))
    sources = [volume.split(":")[0] for volume in compose["volumes"]]
    sources += [volume["source"] for volume in stacked["volumes"] if "source" in volume]
    assert "/opt/kit/lab/var" in sources
    assert not [source for source in sources if source.startswith("/opt/kit/lab/var/")]


@pytest.mark.parametrize(("port", "kept"), [(1023, True), (1024, False)])
def test_only_a_low_port_needs_a_capability(port: int, kept: bool) -> None:
    for service in services(ClusterSpec(ssh_port=port)):
        assert ("CAP_NET_BIND_SERVICE" in service["cap_add"]) is kept


def test_each_part_is_loosened_by_name() -> None:
    compose, stacked = services(ClusterSpec(security=LOOSE))
    for service in (compose, stacked):
        assert service["cap_add"] == capabilities(*DEFAULT, "IPC_LOCK", "SYS_PTRACE")
        assert "read_only" not in service
        assert "HOME" not in service["environment"]
        assert service["environment"]["KIT_NEW_PRIVILEGES"] == "1"
        assert "/tmp" not in str(service["volumes"])
    assert compose["security_opt"] == ["seccomp:unconfined"]
    assert "tmpfs" not in compose
    assert "pids_limit" not in compose
    assert "resources" not in stacked["deploy"]


def test_a_volume_takes_the_place_of_scratch_space() -> None:
    compose, stacked = services(ClusterSpec(volumes=("/disk:/tmp/", "/fast:/run")))
    targets = [volume.split(":")[1].rstrip("/") for volume in compose["volumes"]]
    names = ["/etc/hosts", "/etc/kit", "/opt/kit/etc/vm-hosts"]
    assert sorted(targets) == [*names, "/run", "/tmp", "/var/lib/kit", "/var/tmp"]
    assert "tmpfs" not in compose
    assert [volume["target"].rstrip("/") for volume in stacked["volumes"]].count("/tmp") == 1


def test_a_volume_takes_the_place_of_a_nodes_names() -> None:
    compose, stacked = services(ClusterSpec(volumes=("/srv/names:/etc/hosts:ro",)))
    assert [volume for volume in compose["volumes"] if "hosts" in volume] == ["/srv/names:/etc/hosts:ro"]
    assert [volume["source"] for volume in stacked["volumes"] if "hosts" in volume["target"]] == ["/srv/names"]


def test_a_volume_takes_the_place_of_kits_home_folder() -> None:
    for service in services(ClusterSpec(volumes=("/srv/home:/root",))):
        assert "HOME" not in service["environment"]


def test_ranks_of_another_user() -> None:
    for service in services(ClusterSpec(user="1000:100")):
        assert service["cap_add"] == capabilities(*DEFAULT, "KILL")
        assert service["environment"]["KIT_USER"] == "1000:100"
        assert service["environment"]["PMIX_MCA_psec"] == "none"


def test_a_home_of_kit_yaml_stays() -> None:
    for service in services(ClusterSpec(env={"HOME": "/data/me"})):
        assert service["environment"]["HOME"] == "/data/me"


def test_a_local_container_is_fenced_in() -> None:
    def local(spec: ClusterSpec) -> Any:
        return local_container(
            spec, image="kit:x", folder=PurePath("/w"), np=1, cores=1, command=["true"], env={}, run="r"
        )

    fenced, loose = local(ClusterSpec()), local(ClusterSpec(security=LOOSE))
    assert fenced.capabilities == ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER")
    assert (fenced.security_options, fenced.pids) == (("no-new-privileges:true",), 32768)
    assert "KIT_USER" not in fenced.env
    user = local(ClusterSpec(user="1000:100"))
    assert user.env["KIT_USER"] == "1000:100"
    assert user.env["PMIX_MCA_psec"] == "none"
    assert {*user.capabilities} == {*fenced.capabilities, "CAP_KILL", "CAP_SETGID", "CAP_SETUID"}
    assert "CAP_SYS_PTRACE" in loose.capabilities
    assert (loose.security_options, loose.pids) == (("seccomp:unconfined",), 0)


@pytest.mark.parametrize(
    ("word", "name"), [("SYS_PTRACE", "SYS_PTRACE"), ("cap_sys_ptrace", "SYS_PTRACE"), ("CAP_NET_RAW", "NET_RAW")]
)
def test_a_capability_may_be_written_as_elsewhere(word: str, name: str) -> None:
    assert spec_from({"security": {"capabilities": [word]}}).security.capabilities == (name,)


@pytest.mark.parametrize(
    ("security", "message"),
    [
        ({"capabilities": ["ALL"]}, "ALL"),
        ({"capabilities": ["PTRACE_SYS"]}, "'PTRACE_SYS' is not a capability of Linux"),
        ({"capabilities": ["x\ny"]}, "is not a capability"),
        ({"pids": -1}, "-1"),
        ({"seccomp": "off"}, "off"),
        ({"privileged": True}, "privileged"),
    ],
)
def test_what_no_fence_is(security: dict[str, object], message: str) -> None:
    with pytest.raises((InputError, InputErrors)) as caught:
        spec_from({"security": security})
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "user"), [("1000", "1000:1000"), ("1000:27", "1000:27"), ("07:08", "7:8")])
def test_a_user_is_two_numbers(text: str, user: str) -> None:
    assert spec_from({"user": text}).user == user


@pytest.mark.parametrize("text", ["0", "0:5", "root", "ubuntu", "-1", "1000:", ":5", "1:2:3", "4294967295", "१००"])
def test_what_no_user_is(text: str) -> None:
    with pytest.raises((InputError, InputErrors)):
        spec_from({"user": text})


def test_swarm_cannot_turn_seccomp_off() -> None:
    with pytest.raises((InputError, InputErrors)) as caught:
        spec_from({"orchestrator": "swarm", "security": {"seccomp": "unconfined"}})
    assert "security_opt" in str(caught.value)
    assert spec_from({"orchestrator": "swarm", "security": {"pids": 5}}).security.pids == 5
