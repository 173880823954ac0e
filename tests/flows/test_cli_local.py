"""kit local against a fake engine; the real one is in tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest

import kit.flows.run.local as flow
from kit.config.validate import spec_from
from kit.errors import NotReadyError
from kit.events import Reporter, Silent
from kit.model.image import ImageContent
from kit.model.launch import RunRequest
from kit.model.local import LocalContainer
from kit.model.result import LocalResult
from kit.model.spec import ClusterSpec


class FakeEngine:
    def __init__(self, *, has_image: bool = True) -> None:
        self.has = has_image
        self.ran: list[LocalContainer] = []
        self.closed = False

    def has_image(self, tag: str) -> bool:
        return self.has

    def run(self, container: LocalContainer, reporter: Reporter, *, tagged: bool) -> int:
        self.ran.append(container)
        return 5

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _tag(monkeypatch: pytest.MonkeyPatch) -> None:
    content = ImageContent(repository="kit", flavour="cpu", files={"Dockerfile": b""})
    monkeypatch.setattr(flow, "tag_of", lambda spec: content.tag)


def local(spec: ClusterSpec, request: RunRequest, engine: FakeEngine, folder: str = "/srv/resnet") -> LocalResult:
    return flow.local(spec, Path(folder), request, reporter=Silent(), engine=engine)


def test_the_container_is_as_kit_yaml_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIT_TEST_FORWARDED", "here")
    spec = spec_from(
        {
            "slots": 3,
            "volumes": ["./data:/data:ro", "/abs:/abs", "cache:/cache"],
            "env": {"A": "spec", "S": "spec"},
            "shm_size": "8gb",
            "ulimits": {"memlock": "unlimited", "nofile": 4096, "stack": None},
            "mpi": {"bind_to": "core", "yield_when_idle": True, "args": "--mca x 1"},
        }
    )
    engine = FakeEngine()
    env = (("A", "flag"), ("KIT_TEST_FORWARDED", None), ("KIT_TEST_UNKNOWN", None))
    result = local(spec, RunRequest(env=env, command=("ls", "-l")), engine)
    (container,) = engine.ran
    assert result.exit_code == 5
    assert engine.closed
    assert container.env == {"A": "flag", "S": "spec", "KIT_TEST_FORWARDED": "here"}
    assert container.volumes == ("/srv/resnet/data:/data:ro", "/abs:/abs", "cache:/cache")
    assert container.shm_size == "8gb"
    assert container.ulimits == {"memlock": -1, "nofile": 4096}
    words = " ".join(container.argv)
    assert words.startswith("mpirun --allow-run-as-root -np 3 --host localhost:3 --map-by slot --bind-to core --mca ")
    tail = "--mca mpi_yield_when_idle 1 -x A -x KIT_TEST_FORWARDED -x KIT_TEST_UNKNOWN --mca x 1 "
    assert words.endswith(tail + "python3 -IS /opt/kit/bin/kit-rank ls -l")


def test_defaults() -> None:
    engine = FakeEngine()
    local(ClusterSpec(), RunRequest(), engine)
    assert engine.ran[0].argv[2:4] == ("-np", "1")
    assert engine.ran[0].argv[-3:] == ("tf_benchmark", "--model", "resnet50")


def test_a_dry_run_asks_no_engine() -> None:
    engine = FakeEngine(has_image=False)
    result = local(ClusterSpec(), RunRequest(np=2, dry_run=True), engine)
    assert result.exit_code is None
    assert not engine.ran
    assert "localhost:2" in result.argv


def test_no_image_says_how_to_get_it() -> None:
    engine = FakeEngine(has_image=False)
    with pytest.raises(NotReadyError) as caught:
        local(ClusterSpec(), RunRequest(), engine)
    assert caught.value.hint == "run: kit image build"
    assert engine.closed
    assert not engine.ran
