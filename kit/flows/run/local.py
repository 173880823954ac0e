"""`kit local`: run a command in one fresh container on this machine's engine, with nothing deployed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kit.errors import InputError, KitError, NotReadyError, StepError
from kit.events import Note, Reporter, Warned
from kit.flows.image.content import tag_of
from kit.flows.run.code import Taken, check_folder, check_workdir
from kit.flows.run.environment import variables
from kit.flows.run.unread import without_input
from kit.model.launch import RunRequest
from kit.model.local import LocalContainer, LocalGpus
from kit.model.observed import HostFacts
from kit.model.result import LocalResult
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import fence
from kit.plan.cluster.data import local_folders
from kit.plan.run import encoding, local_gpus
from kit.plan.run import gpus as device_rules
from kit.plan.run.local import local_container
from kit.remote.run.door import new_run_id

if TYPE_CHECKING:
    from kit.remote.code.working import RunFolder


class ContainerEngine(Protocol):
    """What `local` needs of this machine's engine. kit.remote.engine.container has the real one."""

    @property
    def is_here(self) -> bool:
        """Whether it can mount folders of this machine."""

    @property
    def is_rootless(self) -> bool:
        """Whether the root of a container is the user who runs the engine."""

    def has_image(self, tag: str) -> bool: ...

    def gpu_facts(self) -> HostFacts:
        """Return what decides how a container gets this machine's GPUs."""

    def run(self, container: LocalContainer, reporter: Reporter, *, tagged: bool) -> int: ...

    def close(self) -> None: ...


def local(
    spec: ClusterSpec, folder: Path, request: RunRequest, *, reporter: Reporter, engine: ContainerEngine | None = None
) -> LocalResult:
    """Run `request.np` ranks (default: one for each share of `request.gpus`; else slots of kit.yaml, or 1).

    `exit_code` is the job's. A dry run needs no engine. The run has a new folder in `folder`. With code, the ranks
    start in a copy of the snapshot there. What they make stays. If the folder cannot be made, a run without code does
    without it.

    Raises NotReadyError if the engine lacks the image, and Interrupted after Ctrl-C, when the container is gone.
    """
    start = time.monotonic()
    image = tag_of(spec)
    env, forward = variables(request.env)
    source = spec.code_source
    encoding.check_local(request, request.command or spec.job, env, code=bool(source))
    runs = folder.resolve() / ".kit" / "runs"
    run_name = new_run_id()
    run_folder = runs / run_name
    share, wish = device_rules.per_rank(request, spec), local_gpus.wished(request.gpus)
    local_gpus.check_ranks(wish, share, request.np)
    code = Taken(source, reporter) if source and not request.dry_run else None
    if request.dry_run:
        check_folder(source, request.workdir)
    else:
        check_workdir(request.workdir, code)

    def container(run_folder: Path | None, data: Mapping[str, str]) -> LocalContainer:
        return local_container(
            spec,
            image=image,
            folder=folder.resolve(),
            np=request.np or local_gpus.ranks(spec, wish, share),
            cores=len(os.sched_getaffinity(0)),
            command=request.command or spec.job,
            env=env,
            forward=forward,
            run=run_name,
            run_folder=run_folder,
            code=bool(source),
            workdir=request.workdir,
            devices=device_rules.variables(request, spec),
            data=data,
        )

    if request.dry_run:
        argv = container(run_folder, {}).argv
        return LocalResult(image=image, argv=argv, exit_code=None, seconds=time.monotonic() - start)
    with _ready(spec, image, engine) as ready:
        gpus = _gpus(wish, ready, reporter)
        data = _data(spec, ready, reporter)
        without_input(request, reporter, ranks="ranks of kit local")
        plan, made = replace(container(run_folder, data), gpus=gpus), None
        # Without code, the engine may be unable to mount a folder for what the ranks make. Then they have none.
        if code or (ready.is_here and ":" not in str(run_folder)):
            made = _run_in_folder(plan, code, run_folder, ready, reporter, tagged=request.tag_output)
        if made is None:
            plan = replace(container(None, data), gpus=gpus)
            made = ready.run(plan, reporter, tagged=request.tag_output), ""
    seconds = time.monotonic() - start
    return LocalResult(image=image, argv=plan.argv, exit_code=made[0], seconds=seconds, made=made[1])


def _gpus(wish: LocalGpus | None, engine: ContainerEngine, reporter: Reporter) -> LocalGpus | None:
    """Return the GPUs for the container. Without --gpus, warn if the engine cannot give this machine's GPUs to it."""
    gpus = None if wish is None else local_gpus.resolved(wish, engine.gpu_facts())
    if isinstance(gpus, KitError):
        reporter.report(Warned(text=f"the ranks see no GPU: {gpus.message}", hint=gpus.hint))
        return None
    return gpus


def _data(spec: ClusterSpec, engine: ContainerEngine, reporter: Reporter) -> dict[str, str]:
    """Return the folders of data sets that this machine has. Report the others."""
    folders = local_folders(spec) if engine.is_here else {}
    # The engine takes a colon for the end of a path.
    here = {name: folder for name, (folder, mark) in folders.items() if os.path.exists(mark) and ":" not in folder}  # noqa: PTH110
    for one in spec.data:
        if one.name not in here:
            reporter.report(Note(text=f"the data set {one.name} is not on this machine: the ranks have no {one.to}"))
    return here


@contextmanager
def _ready(spec: ClusterSpec, image: str, engine: ContainerEngine | None) -> Iterator[ContainerEngine]:
    """Yield an engine that has the image."""
    if engine is None:
        from kit.remote.engine.container import LocalEngine  # noqa: PLC0415  (the docker SDK: not for a dry run)

        engine = LocalEngine()
    try:
        if not engine.has_image(image):
            here = " --builder local" if spec.builder == "head" else ""
            raise NotReadyError(f"the image {image} is not on this machine", hint=f"run: kit image build{here}")
        yield engine
    finally:
        engine.close()


def _run_in_folder(
    container: LocalContainer,
    code: Taken | None,
    folder: Path,
    engine: ContainerEngine,
    reporter: Reporter,
    *,
    tagged: bool,
) -> tuple[int, str] | None:
    """Run with a folder, and a copy of the code. Return the exit code, and the folder with what the run made, or ''.

    Without code, warn and return None if the folder cannot be made: nothing has run then.
    """
    from kit.remote.code.working import CannotMake, RunFolder  # noqa: PLC0415

    if not engine.is_here:
        from kit.remote.machine import docker_context  # noqa: PLC0415  (only for this error)

        chosen = docker_context.choice(os.environ)
        raise NotReadyError(
            f"{chosen.by if chosen else 'docker'} names an engine on another machine, which cannot mount your code",
            hint=f"{chosen.undo if chosen else 'use one here'}; or run without code: kit local --code none",
        )
    if ":" in str(folder):
        raise InputError(
            f"the engine cannot mount {folder}, because its path has a colon",
            hint="rename the folder, or run without code: kit local --code none",
        )
    run_folder = RunFolder(folder)
    try:
        _seed(run_folder, code)
    except CannotMake as error:
        if code:
            raise
        hint = "to keep it, start kit in a folder that you can write to"
        reporter.report(Warned(text=f"what the run makes is not kept: {error.message}", hint=hint))
        return None
    user = container.env.get(fence.USER, "")
    made = given = False
    try:
        if user:
            _give(container, user, engine, reporter)
            given = True
        exit_code = engine.run(container, reporter, tagged=tagged)
    finally:
        if given or (os.geteuid() and run_folder.foreign):
            _take_over(container, engine, reporter)
        made = run_folder.settle()
        if made:
            reporter.report(Note(text=f"what the run made is in {folder}"))
    return exit_code, str(folder) if made else ""


def _seed(folder: RunFolder, code: Taken | None) -> None:
    """Make the folders, and copy the snapshot. If a file changes meanwhile, take the snapshot again."""
    while True:
        try:
            folder.seed(code.snapshot if code else None)
        except KitError as error:
            if code is None or not code.retake(error):
                raise
        else:
            return


def _give(container: LocalContainer, user: str, engine: ContainerEngine, reporter: Reporter) -> None:
    """Give the run's folder to the user of the ranks. Only root can, and kit need not be root here."""
    if code := engine.run(_chown(container, user), reporter, tagged=False):
        raise StepError(
            f"the run's folder cannot be given to the user {user}: chown ended with exit code {code}",
            hint="run as root in the container: remove user: from kit.yaml",
        )


def _take_over(container: LocalContainer, engine: ContainerEngine, reporter: Reporter) -> None:
    """Give you the files that the container's root, or the user of the ranks, has made."""
    # Your number in a container of a rootless engine is a number of your range of subordinate users, /etc/subuid.
    you = "0:0" if engine.is_rootless else f"{os.geteuid()}:{os.getegid()}"
    try:
        engine.run(_chown(container, you), reporter, tagged=False)
    except KitError as error:
        reporter.report(Warned(text=f"some files of the run belong to another user: {error.message}"))


def _chown(container: LocalContainer, owner: str) -> LocalContainer:
    """Return a container that gives the run's folder to this owner. It follows no link."""
    folder = container.env["KIT_OUTPUT_DIR"].rpartition("/")[0]
    return replace(container, argv=("chown", "-R", owner, folder), env={}, gpus=None)
