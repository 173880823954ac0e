"""kit local against a fake engine; the real one is in tests/integration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import kit.flows.run.local as flow
from kit.config.validate import spec_from
from kit.errors import InputError, Interrupted, KitError, NotReadyError, StepError
from kit.events import Note, Reporter, Silent, Warned
from kit.model.image import ImageContent
from kit.model.launch import RunRequest
from kit.model.local import LocalContainer, LocalGpus
from kit.model.observed import GpuEngine, HostFacts
from kit.model.result import LocalResult
from kit.model.run import RUN_ID
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from tests.fakes.facts import GPU_ENGINE, facts, gpus
from tests.fakes.reporter import Remembering

TWO = gpus(2)


class FakeEngine:
    def __init__(self, *, has_image: bool = True, is_here: bool = True, code: int = 5) -> None:
        self.code = code
        self.has = has_image
        self.ran: list[LocalContainer] = []
        self.closed = False
        self.facts = facts(1)
        self.is_here = is_here
        self.is_rootless = False
        # What the ranks do in the run's folder.
        self.ranks: Callable[[Path], object] = lambda folder: None

    def has_image(self, tag: str) -> bool:
        return self.has

    def gpu_facts(self) -> HostFacts:
        return self.facts

    def run(self, container: LocalContainer, reporter: Reporter, *, tagged: bool) -> int:
        self.ran.append(container)
        if "KIT_OUTPUT_DIR" in container.env:
            self.ranks(Path(container.volumes[-1].partition(":")[0]))
        return self.code

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _tag(monkeypatch: pytest.MonkeyPatch) -> None:
    content = ImageContent(repository="kit", flavour="cpu", files={"Dockerfile": b""})
    monkeypatch.setattr(flow, "tag_of", lambda spec: content.tag)


def local(
    spec: ClusterSpec,
    request: RunRequest,
    engine: FakeEngine,
    folder: str | Path = "/srv/resnet",
    reporter: Reporter | None = None,
) -> LocalResult:
    return flow.local(spec, Path(folder), request, reporter=reporter or Silent(), engine=engine)


def chosen(container: LocalContainer) -> dict[str, str]:
    """Return the variables without those that every run of `kit local` has."""
    every = {"KIT_RUN": container.env["KIT_RUN"], "KIT_LEAVE": "1", "MASTER_ADDR": "127.0.0.1"}
    assert every.items() <= container.env.items()
    assert RUN_ID.fullmatch(container.env["KIT_RUN"])
    return {name: value for name, value in container.env.items() if name not in every}


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
    engine = FakeEngine(is_here=False)
    env = (("A", "flag"), ("KIT_TEST_FORWARDED", None), ("KIT_TEST_UNKNOWN", None))
    result = local(spec, RunRequest(env=env, command=("ls", "-l")), engine)
    (container,) = engine.ran
    assert result.exit_code == 5
    assert engine.closed
    assert chosen(container) == {"A": "flag", "S": "spec", "KIT_TEST_FORWARDED": "here"}
    assert container.ranks == 3
    assert container.volumes == ("/srv/resnet/data:/data:ro", "/abs:/abs", "cache:/cache")
    assert container.shm_size == "8gb"
    assert container.ulimits == {"memlock": -1, "nofile": 4096}
    words = " ".join(container.argv)
    assert words.startswith("mpirun --allow-run-as-root -np 3 --host localhost:3 --map-by slot --bind-to core --mca ")
    tail = "--mca mpi_yield_when_idle 1 -x A -x KIT_TEST_FORWARDED -x KIT_TEST_UNKNOWN --mca x 1 "
    assert words.endswith(tail + "python3 -IS /opt/kit/bin/kit-rank ls -l")


def test_defaults() -> None:
    engine = FakeEngine(is_here=False)
    local(ClusterSpec(), RunRequest(), engine)
    assert engine.ran[0].argv[2:4] == ("-np", "1")
    assert engine.ran[0].argv[-3:] == ("tf_benchmark", "--model", "resnet50")


@pytest.mark.parametrize(
    ("wish", "np", "expected", "variables"),
    [
        ({}, "1", LocalGpus(driver="nvidia"), {}),
        ({"gpus": "none"}, "1", None, {}),
        ({"gpus": "2"}, "1", LocalGpus(count=2, must=True, driver="nvidia"), {}),
        (
            {"gpus": "2", "gpus_per_rank": 1, "report_bindings": True}, "2",
            LocalGpus(count=2, must=True, driver="nvidia"),
            {"KIT_GPUS_PER_RANK": "1", "KIT_BIND_NEAR": "1", "KIT_REPORT_BINDINGS": "1"},
        ),
        (
            {"gpus": "device=0,GPU-1", "gpus_per_rank": 2}, "1",
            LocalGpus(names=("0", "GPU-1"), must=True, driver="nvidia"),
            {"KIT_GPUS_PER_RANK": "2", "KIT_BIND_NEAR": "1"},
        ),
    ],
)  # fmt: skip
def test_gpus_for_the_container(
    wish: dict[str, Any], np: str, expected: LocalGpus | None, variables: dict[str, str]
) -> None:
    engine = FakeEngine(is_here=False)
    engine.facts = facts(1, gpus=tuple(replace(gpu, index=n) for n, gpu in enumerate(TWO)), gpu_engine=GPU_ENGINE)
    local(ClusterSpec(), RunRequest(**wish), engine)
    (container,) = engine.ran
    assert container.argv[2:4] == ("-np", np)
    assert (container.gpus, chosen(container)) == (expected, variables)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"gpus": "2", "gpus_per_rank": 1, "np": 4}, "gives the container 2, and 4 ranks with 1 each need 4"),
        ({"gpus": "1", "gpus_per_rank": 2}, "gives the container 1, and 1 rank with 2 each need 2"),
        ({"gpus": "none", "gpus_per_rank": 1}, "gives the container no GPU"),
    ],
)
def test_too_few_gpus(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        local(ClusterSpec(), RunRequest(**wish), FakeEngine())


@pytest.mark.parametrize("where", ["spec", "request"])
def test_your_own_address_of_rank_0_wins(where: str) -> None:
    engine = FakeEngine(is_here=False)
    spec = spec_from({"env": {"MASTER_ADDR": "10.0.0.9"}} if where == "spec" else {})
    local(spec, RunRequest(env=(("MASTER_ADDR", "10.0.0.9"),) if where == "request" else ()), engine)
    assert engine.ran[0].env["MASTER_ADDR"] == "10.0.0.9"


def test_mpirun_adds_no_tags_to_records() -> None:
    """kit-rank sends each line with its rank."""
    engine = FakeEngine(is_here=False)
    local(ClusterSpec(), RunRequest(tag_output=True), engine)
    assert "--tag-output" not in engine.ran[0].argv


def test_a_dry_run_asks_no_engine() -> None:
    engine = FakeEngine(has_image=False)
    result = local(ClusterSpec(), RunRequest(np=2, dry_run=True), engine)
    assert result.exit_code is None
    assert not engine.ran
    assert "localhost:2" in result.argv


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        ({"command": ("cat", "caf\udce9")}, "a word of the command is not UTF-8: caf\\udce9"),
        ({"command": ("ls",), "env": (("A", "caf\udce9"),)}, "the value of A is not UTF-8: caf\\udce9"),
        (
            {"command": ("ls", "x" * 130_000)},
            "the command is too long: it has 130003 bytes, and a run can have at most 124 KiB",
        ),
        ({"command": ("ls",), "env": (("KIT_OUTPUT_DIR", "/data/out"),)}, "-x KIT_OUTPUT_DIR: kit sets this variable"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_words_that_the_engine_or_mpirun_would_spoil_are_refused(
    wish: dict[str, Any], text: str, *, dry_run: bool
) -> None:
    engine = FakeEngine()
    with pytest.raises(InputError) as caught:
        local(ClusterSpec(), RunRequest(dry_run=dry_run, **wish), engine)
    assert caught.value.message == text
    assert engine.ran == []


def test_a_variable_that_only_a_cluster_sets_is_yours(tmp_path: Path) -> None:
    """As is the folder for checkpoints, because there is no --checkpoint-dir."""
    engine = FakeEngine()
    env = {"KIT_CHECKPOINT_DIR": "/data", "KIT_ATTEMPT": "2", "KIT_NODE": "gpu1", "KIT_WORKDIR": "/work"}
    local(ClusterSpec(), RunRequest(env=tuple(env.items())), engine)
    assert env.items() <= engine.ran[0].env.items()
    coded = replace(ClusterSpec(), code=str(tmp_path))
    with pytest.raises(InputError, match="-x KIT_WORKDIR: kit sets this variable"):
        local(coded, RunRequest(env=(("KIT_WORKDIR", "/work"),), dry_run=True), engine)


@pytest.mark.parametrize("content", ["", "x"])
def test_input_that_no_rank_gets_is_named(content: str, tmp_path: Path) -> None:
    reporter = Remembering()
    (tmp_path / "in").write_text(content)
    with (tmp_path / "in").open() as file:
        local(ClusterSpec(), RunRequest(stdin=file.fileno()), FakeEngine(is_here=False), reporter=reporter)
    warned = [event.text for event in reporter.events if isinstance(event, Warned)]
    assert warned == (["ranks of kit local do not get your standard input"] if content else [])


def test_a_colon_does_not_end_the_command() -> None:
    engine = FakeEngine(is_here=False)
    local(ClusterSpec(), RunRequest(command=("echo", ":")), engine)
    assert engine.ran[0].argv[-3:] == ("sh", "-c", "exec echo :")


@pytest.mark.parametrize(
    ("builder", "hint"), [("local", "run: kit image build"), ("head", "run: kit image build --builder local")]
)
def test_no_image_says_how_to_get_it(builder: Literal["local", "head"], hint: str) -> None:
    engine = FakeEngine(has_image=False)
    with pytest.raises(NotReadyError) as caught:
        local(ClusterSpec(builder=builder), RunRequest(), engine)
    assert caught.value.hint == hint
    assert engine.closed
    assert not engine.ran


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterSpec:
    """A project with code, and its kit.yaml."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "sub" / "net.py").write_text("net\n")
    return spec_from({"code": str(folder)})


def folder_of(spec: ClusterSpec) -> Path:
    return Path(spec.code_source or "")


def test_ranks_start_in_a_copy_of_the_code(code: ClusterSpec) -> None:
    engine = FakeEngine()
    seen: list[Any] = []
    engine.ranks = lambda run: seen.extend(
        [(run / "work" / "train.py").read_text(), sorted(path.name for path in run.iterdir())]
    )
    result = local(code, RunRequest(workdir="sub"), engine, folder_of(code))
    assert seen == ["print(1)\n", ["checkpoints", "output", "work"]]
    (container,) = engine.ran
    inside = container.env["KIT_WORKDIR"]
    assert container.argv[container.argv.index("--wdir") + 1] == f"{inside}/sub"
    outside, _, mounted = container.volumes[-1].partition(":")
    assert (f"{mounted}/work", Path(outside).parent) == (inside, folder_of(code) / ".kit" / "runs")
    assert container.env["KIT_OUTPUT_DIR"] == f"{mounted}/output"
    # The run made nothing, so nothing stays.
    assert result.made == ""
    assert [path.name for path in (folder_of(code) / ".kit").iterdir()] == [".gitignore"]


def test_what_the_run_made_stays(code: ClusterSpec) -> None:
    engine, reporter = FakeEngine(), Remembering()

    def ranks(run: Path) -> None:
        (run / "work" / "train.py").write_text("print(2)\n")
        (run / "work" / "sub" / "__pycache__").mkdir()
        (run / "work" / "sub" / "__pycache__" / "net.pyc").touch()
        (run / "checkpoints" / "epoch-1").touch()

    engine.ranks = ranks
    result = local(code, RunRequest(), engine, folder_of(code), reporter)
    made = Path(result.made)
    assert sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()) == [
        "checkpoints/epoch-1", "work/train.py",
    ]  # fmt: skip
    assert not (made / "work" / "sub").exists()
    assert not (made / "output").exists()
    assert (folder_of(code) / "train.py").read_text() == "print(1)\n"
    assert [note.text for note in reporter.events if isinstance(note, Note)] == [f"what the run made is in {made}"]
    # The next snapshot does not have it.
    engine.ranks = lambda run: None
    assert local(code, RunRequest(), engine, folder_of(code)).made == ""


def test_a_run_without_code_has_folders_for_what_it_makes(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.ranks = lambda run: (run / "output" / "model").write_text("weights")
    result = local(ClusterSpec(), RunRequest(), engine, tmp_path)
    (container,) = engine.ran
    inside = container.volumes[-1].partition(":")[2]
    assert (container.env["KIT_OUTPUT_DIR"], container.env["KIT_CHECKPOINT_DIR"]) == (
        f"{inside}/output",
        f"{inside}/checkpoints",
    )
    assert "KIT_WORKDIR" not in container.env
    assert "--wdir" not in container.argv
    assert [path.name for path in Path(result.made).iterdir()] == ["output"]
    engine.ranks = lambda run: None
    assert local(ClusterSpec(), RunRequest(), engine, tmp_path).made == ""


def test_a_folder_that_you_may_only_read(code: ClusterSpec) -> None:
    """Without code, the ranks have no folder for what they make. With code, kit says what to do."""
    engine, reporter = FakeEngine(), Remembering()
    # As a folder that may not be written to: root may write to all.
    (folder_of(code) / ".kit").write_text("")
    result = local(ClusterSpec(), RunRequest(command=("nvidia-smi",)), engine, folder_of(code), reporter)
    (container,) = engine.ran
    assert (result.exit_code, result.made, result.argv) == (engine.code, "", container.argv)
    assert "KIT_OUTPUT_DIR" not in container.env
    assert container.volumes == ()
    (warning,) = [event for event in reporter.events if isinstance(event, Warned)]
    assert warning.text.startswith("what the run makes is not kept: the working folder cannot be made in ")
    with pytest.raises(KitError, match="cannot be made in") as caught:
        local(code, RunRequest(), engine, folder_of(code))
    assert "kit local --code none" in str(caught.value.hint)


@pytest.mark.parametrize("uid", [0, 1234])
def test_ranks_of_another_user_own_the_code_and_the_files_are_yours_in_the_end(
    code: ClusterSpec, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    engine = FakeEngine(code=0)
    engine.facts = facts(1, gpus=TWO, gpu_engine=GPU_ENGINE)
    engine.ranks = lambda run: (run / "output" / "model").touch()
    result = local(replace(code, user="1000:1001"), RunRequest(gpus="1"), engine, folder_of(code))
    given, ran, *taken = engine.ran
    mounted = ran.env["KIT_OUTPUT_DIR"].rpartition("/")[0]
    assert given.argv == ("chown", "-R", "1000:1001", mounted)
    assert ran.env["KIT_USER"] == "1000:1001"
    assert ran.gpus is not None
    assert [one.argv for one in taken] == [("chown", "-R", f"{uid}:{os.getegid()}", mounted)]
    assert all(not one.env and one.gpus is None for one in (given, *taken))
    assert result.made


def test_what_a_rootless_engine_leaves_is_yours(code: ClusterSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its root is you, and its user 1000 is one of your subordinate users."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    engine = FakeEngine(code=0)
    engine.is_rootless = True
    local(replace(code, user="1000:1001"), RunRequest(), engine, folder_of(code))
    assert [one.argv[:3] for one in (engine.ran[0], engine.ran[-1])] == [
        ("chown", "-R", "1000:1001"),
        ("chown", "-R", "0:0"),
    ]


def test_a_folder_that_cannot_be_given_to_the_user_stops_the_run(code: ClusterSpec) -> None:
    engine = FakeEngine()
    with pytest.raises(StepError, match="the run's folder cannot be given to the user 1000:1001") as caught:
        local(replace(code, user="1000:1001"), RunRequest(), engine, folder_of(code))
    assert "remove user: from kit.yaml" in str(caught.value.hint)
    assert [path.name for path in (folder_of(code) / ".kit").iterdir()] == [".gitignore"]


def test_what_the_run_made_stays_after_ctrl_c(code: ClusterSpec) -> None:
    engine = FakeEngine()

    def ranks(run: Path) -> None:
        (run / "output" / "log").touch()
        raise Interrupted("the command was stopped, and its container is gone")

    engine.ranks = ranks
    with pytest.raises(Interrupted):
        local(code, RunRequest(), engine, folder_of(code))
    assert [path.name for path in (folder_of(code) / ".kit" / "runs").glob("*/*/*")] == ["log"]


def test_a_local_run_that_cannot_have_the_code(code: ClusterSpec, tmp_path: Path) -> None:
    engine = FakeEngine()
    with pytest.raises(InputError, match="the code has no folder missing"):
        local(code, RunRequest(workdir="missing"), engine, folder_of(code))
    with pytest.raises(InputError, match="is a folder of the code, and this run has none"):
        local(ClusterSpec(), RunRequest(workdir="sub"), engine)
    with pytest.raises(InputError, match="because its path has a colon"):
        local(code, RunRequest(), engine, tmp_path / "a:b")
    engine.is_here = False
    with pytest.raises(NotReadyError, match="an engine on another machine"):
        local(code, RunRequest(), engine, folder_of(code))
    assert engine.ran == []


def test_a_dry_run_refuses_code_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the code has no folder none"):
        local(ClusterSpec(code=str(tmp_path)), RunRequest(dry_run=True, workdir="none"), FakeEngine(), tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        local(ClusterSpec(code=str(tmp_path / "none")), RunRequest(dry_run=True), FakeEngine(), tmp_path)


def test_a_dry_run_takes_no_code(code: ClusterSpec) -> None:
    result = local(code, RunRequest(dry_run=True, workdir="sub"), FakeEngine(), folder_of(code))
    assert "--wdir" in result.argv
    assert not (folder_of(code) / ".kit").exists()


@pytest.mark.parametrize(
    ("engine", "driver"),
    [(GPU_ENGINE, "nvidia"), (GpuEngine(cdi_enabled=True, cdi=("all",)), "cdi"), (GpuEngine(), "")],
)
def test_the_gpus_of_this_machine(engine: GpuEngine, driver: Any) -> None:
    fake, reporter = FakeEngine(), Remembering()
    fake.facts = facts(1, gpus=gpus(2), gpu_engine=engine)
    local(ClusterSpec(), RunRequest(), fake, reporter=reporter)
    (container,) = fake.ran
    assert container.gpus == (LocalGpus(driver=driver) if driver else None)
    warnings = reporter.of(Warned)
    assert len(warnings) == (driver == "")
    assert all("the ranks see no GPU" in warning.text for warning in warnings)


def test_data_sets_that_this_machine_has_are_mounted(tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    nvme = tmp_path / "nvme"
    (nvme / "kit-data" / "kit" / "web" / "files").mkdir(parents=True)
    (nvme / "kit-data" / "kit" / "text" / "files").mkdir(parents=True)
    (nvme / "kit-data" / "kit" / "web" / "staged.json").touch()
    spec = spec_from(
        {
            "data": {
                "labels": {"from": str(tmp_path / "labels"), "to": "/data/labels", "write": True},
                "web": {"from": "s3://corpus/web", "to": "/data/web", "dir": "/nvme", "split": "hosts"},
                "text": {"from": "s3://corpus/text", "to": "/data/text", "dir": "/nvme"},
                "gone": {"from": str(tmp_path / "gone"), "to": "/data/gone"},
                "shared": {"from": "nfs://10.0.0.9/shared", "to": "/data/shared", "stage": "none"},
            }
        }
    )
    here = tuple(replace(one, dir=str(nvme)) if one.dir else one for one in spec.data)
    engine, reporter = FakeEngine(), Remembering()
    local(replace(spec, data=here), RunRequest(), engine, tmp_path, reporter)
    (container,) = engine.ran
    assert container.volumes[:2] == (
        f"{tmp_path}/labels:/data/labels:ro",
        f"{nvme}/kit-data/kit/web/files:/data/web:ro",
    )
    assert {name: value for name, value in container.env.items() if name.startswith("KIT_DATA_")} == {
        "KIT_DATA_LABELS": "/data/labels",
        "KIT_DATA_WEB": "/data/web",
        "KIT_DATA_WEB_SPLIT": "hosts",
    }
    notes = [note.text for note in reporter.of(Note) if note.text.startswith("the data set")]
    assert notes == [
        f"the data set {name} is not on this machine: the ranks have no /data/{name}"
        for name in ("text", "gone", "shared")
    ]


def test_an_engine_elsewhere_gets_no_data_set(tmp_path: Path) -> None:
    spec = spec_from({"data": {"labels": {"from": str(tmp_path), "to": "/data/labels"}}})
    engine, reporter = FakeEngine(is_here=False), Remembering()
    local(spec, RunRequest(), engine, reporter=reporter)
    assert engine.ran[0].volumes == ()
    assert [note.text for note in reporter.of(Note)] == [
        "the data set labels is not on this machine: the ranks have no /data/labels"
    ]
