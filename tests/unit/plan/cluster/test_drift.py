"""What a deploy would change, compared with what the last one wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kit.errors import NotReadyError
from kit.model.data import DataSource, DataSpec
from kit.model.spec import ClusterSpec, ImageSpec, MpiSpec, RunsSpec, SshSpec, UlimitSpec
from kit.plan.cluster.drift import deployed_settings, differences, refusal

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


def test_no_value_of_a_variable_is_kept_or_shown() -> None:
    known = recorded(SPEC)
    changed = differences(known, replace(SPEC, env={"TOKEN": "hunter3", "FOO": "bar"}))
    assert changed == ("env.TOKEN: changed",)
    assert "hunter" not in json.dumps(known) + str(refusal(changed))
    assert known["env.TOKEN"] != recorded(replace(SPEC, env={"TOKEN2": "hunter2"}))["env.TOKEN2"]


def test_the_refusal_names_settings_and_the_way_on() -> None:
    error = refusal(tuple(f"setting{n}: 1 → 2" for n in range(9)))
    assert isinstance(error, NotReadyError)
    assert error.exit_code == 5
    assert "setting5: 1 → 2; and 3 more" in error.message
    assert error.hint
    assert "kit deploy" in error.hint
    assert "--as-deployed" in error.hint
