"""`kit local`: run a command in one fresh container on this machine's engine, with nothing deployed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

from kit.errors import NotReadyError
from kit.events import Reporter
from kit.flows.image.content import tag_of
from kit.flows.run.environment import variables
from kit.model.launch import RunRequest
from kit.model.local import LocalContainer
from kit.model.result import LocalResult
from kit.model.spec import ClusterSpec
from kit.plan.run.local import local_container


class ContainerEngine(Protocol):
    """What `local` needs of this machine's engine. kit.remote.engine.container has the real one."""

    def has_image(self, tag: str) -> bool: ...

    def run(self, container: LocalContainer, reporter: Reporter, *, tagged: bool) -> int: ...

    def close(self) -> None: ...


def local(
    spec: ClusterSpec, folder: Path, request: RunRequest, *, reporter: Reporter, engine: ContainerEngine | None = None
) -> LocalResult:
    """Run `request.np` ranks (default: slots of kit.yaml, or 1). `exit_code` is the job's. A dry run needs no engine.

    Raises NotReadyError if the engine lacks the image, and Interrupted after Ctrl-C, when the container is gone.
    """
    start = time.monotonic()
    image = tag_of(spec)
    env, forward = variables(request.env)
    container = local_container(
        spec,
        image=image,
        folder=folder.resolve(),
        np=request.np or (spec.slots if spec.slots != "auto" else 1),
        cores=len(os.sched_getaffinity(0)),
        command=request.command or spec.command,
        env=env,
        forward=forward,
        tag_output=request.tag_output,
    )
    code = None if request.dry_run else _run(container, reporter, engine, tagged=request.tag_output)
    return LocalResult(image=image, argv=container.argv, exit_code=code, seconds=time.monotonic() - start)


def _run(container: LocalContainer, reporter: Reporter, engine: ContainerEngine | None, *, tagged: bool) -> int:
    if engine is None:
        from kit.remote.engine.container import LocalEngine  # noqa: PLC0415  (the docker SDK: not for a dry run)

        engine = LocalEngine()
    try:
        if not engine.has_image(container.image):
            raise NotReadyError(f"the image {container.image} is not on this machine", hint="run: kit image build")
        return engine.run(container, reporter, tagged=tagged)
    finally:
        engine.close()
