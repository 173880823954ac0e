"""What a deploy would change, compared with what the last one wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kit import __version__
from kit.errors import NotReadyError
from kit.model.data import DataSource, DataSpec
from kit.model.lock import AuditEntry
from kit.model.spec import (
    ClusterSpec,
    ImageSpec,
    MpiSpec,
    NcclSpec,
    RunsSpec,
    SecuritySpec,
    SshSpec,
    UlimitSpec,
)
from kit.model.values import fields, is_value, replace
from kit.plan.cluster.drift import deployed_settings, differences, last_deploy, refusal, replaced

STORE = DataSource(kind="store", text="s3://corpus/text", scheme="s3", place="corpus", path="text")
NFS = DataSource(kind="nfs", text="nfs://10.0.0.9/text", place="10.0.0.9", path="/text")
TEXT = DataSpec(name="text", source=STORE, to="/text")
SPEC = ClusterSpec(env={"FOO": "bar", "TOKEN": "hunter2"}, volumes=("/data:/data:ro",), data=(TEXT,))


def recorded(spec: ClusterSpec) -> Any:
    """Return the settings as they are after a way through cluster.json."""
    return json.loads(json.dumps(deployed_settings(spec)))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shm_size": "8gb"}, "shm_size: 1gb → 8gb"),
        ({"orchestrator": "swarm"}, "orchestrator: compose → swarm"),
        ({"ssh_port": 34}, "ssh_port: 33 → 34"),
        ({"network": "10.0.0.0/8"}, "network: auto → 10.0.0.0/8"),
        ({"slots": 8}, "slots: auto → 8"),
        ({"volumes": ()}, "volumes: [/data:/data:ro] → []"),
        ({"volumes": ("/a" * 50 + ":/a",)}, f"volumes: [/data:/data:ro] → [{'/a' * 29}…"),
        ({"image": ImageSpec(pip=("tqdm", "pandas"))}, "image.pip: [] → [tqdm, pandas]"),
        ({"image": ImageSpec(flavour="cuda-mxnet")}, "image.flavour: auto → cuda-mxnet"),
        ({"image": ImageSpec(base="debian:12")}, "image.base: unset → debian:12"),
        ({"ulimits": UlimitSpec(nofile=4096)}, "ulimits.nofile: unset → 4096"),
        ({"env": {"FOO": "baz", "TOKEN": "hunter2"}}, "env.FOO: changed"),
        ({"env": {"TOKEN": "hunter2"}}, "env.FOO: removed"),
        ({"env": {**SPEC.env, "NEW": "1"}}, "env.NEW: added"),
        ({"data": (TEXT, replace(TEXT, name="new"))}, "data.new: added"),
        ({"data": ()}, "data.text: removed"),
        (
            {"data": (replace(TEXT, to="/t"),)},
            "data.text: /opt/kit/.data/kit/text on /text → /opt/kit/.data/kit/text on /t",
        ),
        (
            {"data": (replace(TEXT, write=True),)},
            "data.text: /opt/kit/.data/kit/text on /text → /opt/kit/.data/kit/text on /text, write",
        ),
        (
            {"data": (replace(TEXT, split="hosts"),)},
            "data.text: /opt/kit/.data/kit/text on /text → /opt/kit/.data/kit/text on /text, split",
        ),
        (
            {"data": (replace(TEXT, dir="/nvme"),)},
            "data.text: /opt/kit/.data/kit/text on /text → /nvme/kit-data/kit/text on /text",
        ),
        (
            {"data": (replace(TEXT, source=NFS, stage="none"),)},
            "data.text: /opt/kit/.data/kit/text on /text → nfs://10.0.0.9/text on /text",
        ),
    ],
)
def test_what_takes_effect_with_a_deploy(change: dict[str, Any], text: str) -> None:
    assert differences(recorded(SPEC), replace(SPEC, **change)) == (text,)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"command": ("true",)}, {"mpi": MpiSpec(args=("--report-bindings",))}, {"runs": RunsSpec(keep=1)},
        {"ssh": SshSpec(user="ubuntu")}, {"builder": "head"}, {"registry": "registry.example.com"},
        {"data": (replace(TEXT, source=NFS),)},
        {"head_runs_ranks": False}, {"env": {"TOKEN": "hunter2", "FOO": "bar"}},
    ],
)  # fmt: skip
def test_what_needs_no_deploy(change: dict[str, Any]) -> None:
    assert differences(recorded(SPEC), replace(SPEC, **change)) == ()


def test_an_older_kit_and_newer_settings() -> None:
    """What the record does not have cannot differ."""
    assert differences({}, SPEC) == ()
    known = recorded(SPEC)
    del known["shm_size"]
    assert differences({**known, "gone": 1}, replace(SPEC, shm_size="9gb")) == ()


def test_a_variable_of_kit_that_an_earlier_kit_deployed() -> None:
    """kit.yaml must not have it now, and its runs never had its value."""
    known = recorded(replace(SPEC, env={**SPEC.env, "KIT_CHECKPOINT_DIR": "/nfs"}))
    assert "env.KIT_CHECKPOINT_DIR" in known
    assert differences(known, SPEC) == ()


def test_no_value_of_a_variable_is_kept_or_shown() -> None:
    known = recorded(SPEC)
    changed = differences(known, replace(SPEC, env={"TOKEN": "hunter3", "FOO": "bar"}))
    assert changed == ("env.TOKEN: changed",)
    assert "hunter" not in json.dumps(known) + str(refusal(changed, __version__))
    assert known["env.TOKEN"] != recorded(replace(SPEC, env={"TOKEN2": "hunter2"}))["env.TOKEN2"]


def test_the_refusal_names_settings_and_the_way_on() -> None:
    error = refusal(tuple(f"setting{n}: 1 → 2" for n in range(9)), __version__)
    assert isinstance(error, NotReadyError)
    assert error.exit_code == 5
    assert error.message.endswith("setting5: 1 → 2; and 3 more")
    assert refusal(tuple(f"setting{n}: 1 → 2" for n in range(6)), __version__).message.endswith("setting5: 1 → 2")
    assert error.hint
    assert "kit deploy" in error.hint
    # Without the command of the run, kit run would start a benchmark.
    assert "add --as-deployed to your kit run" in error.hint


def test_the_refusal_names_the_kit_whose_defaults_may_differ() -> None:
    """Nobody edited kit.yaml: the default of image.flavour was cpu once."""
    message = refusal(("image.flavour: cpu → auto",), "").message
    assert message.endswith(f"cpu → auto; an older kit deployed, and kit {__version__} may have other defaults")


# Each field of a spec is in one of the next two tables, with another value than that of SPEC.
# A deploy writes these to the hosts. Before the next deploy, a run uses the old ones.
NEEDS_A_DEPLOY: dict[str, Any] = {
    "orchestrator": "swarm",
    "image.flavour": "pytorch",
    "image.base": "debian:12",
    "image.frameworks": ("mxnet",),
    "image.packages": ("htop",),
    "image.pip": ("tqdm",),
    "ssh_port": 34,
    "network": "10.0.0.0/8",
    "interfaces": ("eth1",),
    "slots": 8,
    "volumes": ("/other:/other",),
    "data": (),
    "env": {"FOO": "baz"},
    "shm_size": "8gb",
    "cpus": 2.0,
    "memory": "4gb",
    "pids": 100,
    "rdma": "off",
    "devices": ("/dev/fuse",),
    "hugepages": "1gb",
    "ulimits.memlock": "default",
    "ulimits.nofile": 4096,
    "ulimits.stack": None,
    "security.capabilities": ("SYS_PTRACE",),
    "security.new_privileges": True,
    "security.read_only": False,
    "security.pids": 100,
    "security.seccomp": "unconfined",
    "user": "1000:1000",
    "nccl.plugin": "/opt/plugin",
}
# kit reads these when a run starts, or they are about this machine or another verb.
NEEDS_NO_DEPLOY: dict[str, Any] = {
    # Another name is another cluster, with another record.
    "name": "other",
    # A folder of this machine. Its content is part of the image's tag.
    "image.wheels": "/wheels",
    # kit compares the file's content: see the tests of `requirements` below.
    "requirements": "/other.txt",
    # How the image comes to the hosts, and how kit does.
    "builder": "head",
    "registry": "registry.example.com",
    "ssh.user": "ubuntu",
    "ssh.port": 2222,
    "ssh.key": "/key",
    "ssh.known_hosts": "/known",
    "ssh.keep": False,
    "gpus_per_rank": 2,
    "head_runs_ranks": False,
    "mpi.bind_to": "core",
    "mpi.yield_when_idle": True,
    "mpi.allreduce": "openmpi",
    "mpi.args": ("--report-bindings",),
    "nccl.require": "IB",
    "runs.clean": "none",
    "runs.ttl_days": 1.0,
    "runs.keep": 1,
    "setup.docker": "docker.com",
    "setup.driver": "570-server",
    "setup.proxy": "http://proxy",
    "setup.no_proxy": "10.0.0.0/8",
    "setup.mtu": 1400,
    "setup.hugepages": 4,
    "code": "/code",
    "command": ("true",),
}
# The same for a data set. TEXT is staged on disk.
DATA_NEEDS_A_DEPLOY: dict[str, Any] = {
    "name": "other", "to": "/other", "stage": "ram", "dir": "/nvme", "split": "hosts", "write": True,
}  # fmt: skip
# Only a staging reads these. `options` are those of a mount in place, and then a deploy needs them, and the source.
DATA_NEEDS_NO_DEPLOY: dict[str, Any] = {"source": NFS, "size": "1gb", "options": "soft"}


def paths_of(spec: object, before: str = "") -> Iterator[str]:
    for name in fields(spec):
        value = getattr(spec, name)
        if is_value(value):
            yield from paths_of(value, f"{before}{name}.")
        else:
            yield before + name


def changed(path: str, value: Any) -> ClusterSpec:
    section, _, name = path.rpartition(".")
    if not section:
        return replace(SPEC, **{name: value})
    return replace(SPEC, **{section: replace(getattr(SPEC, section), **{name: value})})


def test_each_setting_is_known_to_need_a_deploy_or_not() -> None:
    """If this fails, you have added a setting: put it into one of the tables, and what a deploy writes into drift."""
    assert sorted(paths_of(SPEC)) == sorted([*NEEDS_A_DEPLOY, *NEEDS_NO_DEPLOY])
    assert sorted(fields(TEXT)) == sorted([*DATA_NEEDS_A_DEPLOY, *DATA_NEEDS_NO_DEPLOY])


@pytest.mark.parametrize("path", NEEDS_A_DEPLOY)
def test_a_setting_that_needs_a_deploy_is_compared(path: str) -> None:
    assert differences(recorded(SPEC), changed(path, NEEDS_A_DEPLOY[path]))


@pytest.mark.parametrize("path", NEEDS_NO_DEPLOY)
def test_a_setting_that_needs_no_deploy_is_not_compared(path: str) -> None:
    spec = changed(path, NEEDS_NO_DEPLOY[path])
    if path == "name":
        # A digest and a folder have the cluster's name in them. The record of a cluster is never compared with another.
        spec = replace(spec, env={}, data=())
        assert differences(recorded(replace(SPEC, env={}, data=())), spec) == ()
        return
    assert differences(recorded(SPEC), spec) == ()


@pytest.mark.parametrize("name", [*DATA_NEEDS_A_DEPLOY, *DATA_NEEDS_NO_DEPLOY])
def test_the_fields_of_a_data_set(name: str) -> None:
    values = DATA_NEEDS_A_DEPLOY | DATA_NEEDS_NO_DEPLOY
    spec = replace(SPEC, data=(replace(TEXT, **{name: values[name]}),))
    assert bool(differences(recorded(SPEC), spec)) == (name in DATA_NEEDS_A_DEPLOY)


def test_a_data_set_that_is_mounted_in_place() -> None:
    mounted = replace(SPEC, data=(replace(TEXT, source=NFS, stage="none"),))
    for change in ({"options": "soft"}, {"source": replace(NFS, text="nfs://10.0.0.9/other", path="/other")}):
        assert differences(recorded(mounted), replace(SPEC, data=(replace(mounted.data[0], **change),)))


def test_the_content_of_the_file_with_requirements() -> None:
    known = json.loads(json.dumps(deployed_settings(SPEC, requirements="0123456789ab")))
    assert differences(known, SPEC, requirements="0123456789ab") == ()
    assert differences(known, SPEC, requirements="ba9876543210") == ("requirements: 0123456789ab → ba9876543210",)
    assert differences(known, SPEC) == ("requirements: 0123456789ab → unset",)
    assert differences(recorded(SPEC), SPEC, requirements="0123456789ab") == ("requirements: unset → 0123456789ab",)


def test_pids_is_another_way_to_write_the_limit() -> None:
    known = recorded(replace(SPEC, pids=100))
    assert differences(known, replace(SPEC, security=SecuritySpec(pids=100))) == ()
    assert differences(known, SPEC) == ("security.pids: 100 → 32768",)


def test_the_order_of_capabilities_does_not_matter() -> None:
    """Another process made the record. The order of a set differs between processes."""
    names = ["AUDIT_WRITE", "IPC_LOCK", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_NICE", "SYS_PTRACE"]
    known = {**recorded(SPEC), "security.capabilities": names}
    for written in (names, names[::-1]):
        assert differences(known, replace(SPEC, security=SecuritySpec(capabilities=tuple(written)))) == ()


def test_a_value_of_the_record_is_shown_without_escapes() -> None:
    """A record that somebody changed on the head could hide what kit reports."""
    (text,) = differences({**recorded(SPEC), "shm_size": "1gb\x1b[2J"}, SPEC)
    assert text == "shm_size: 1gb?[2J → 1gb"


def test_a_record_of_an_earlier_kit_lacks_newer_settings() -> None:
    """Its user, fence, plugin and requirements are not known. That is no difference."""
    newer = ("user", "security.", "nccl.", "requirements")
    known = {path: value for path, value in recorded(SPEC).items() if not path.startswith(newer)}
    assert len(known) < len(recorded(SPEC))
    spec = replace(SPEC, user="1:1", pids=1, nccl=NcclSpec(plugin="/p"), security=SecuritySpec(read_only=False))
    assert differences(known, spec, requirements="0123456789ab") == ()


def deployed_by(who: str, outcome: str, verb: str = "deploy") -> AuditEntry:
    return AuditEntry(time="2026-11-21T10:15:00Z", who=who, verb=verb, what="", outcome=outcome, seconds=1.0)


ANNA, BEN = deployed_by("anna@laptop", "done"), deployed_by("ben@desk", "done")
FAILED = deployed_by("ben@desk", "failed")


@pytest.mark.parametrize(
    ("entries", "last"),
    [
        ([BEN, ANNA], ANNA),
        ([ANNA, deployed_by("carl@box", "done", "data rm")], ANNA),
        # Its settings may be there, or still those of the deploy before.
        ([ANNA, FAILED], None),
        ([ANNA, BEN, FAILED], FAILED),
        ([FAILED, deployed_by("ben@desk", "interrupted")], deployed_by("ben@desk", "interrupted")),
        ([], None),
    ],
)
def test_whose_settings_are_deployed(entries: list[AuditEntry], last: AuditEntry | None) -> None:
    assert last_deploy(entries) == last


def test_a_deploy_names_what_it_replaces_and_a_kit_that_may_have_other_defaults() -> None:
    """After an upgrade of kit, a default may differ, and nobody has edited kit.yaml."""
    text = "kit.yaml differs from the last deploy, by anna@laptop at 2026-11-21T10:15:00Z (deployed → now): a: 1 → 2"
    assert replaced(("a: 1 → 2",), ANNA, __version__) == text
    text = "kit.yaml differs from the last deploy (deployed → now): a: 1 → 2"
    more = f"; an older kit deployed, and kit {__version__} may have other defaults"
    assert replaced(("a: 1 → 2",), None, "") == text + more
