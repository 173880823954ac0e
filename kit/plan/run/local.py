"""Plans kit local: one container on this machine's engine, and the mpirun command in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType

from kit.model import names
from kit.model.launch import Node, Placement
from kit.model.local import LocalContainer
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import fence
from kit.plan.cluster.data import variables as data_variables
from kit.plan.run import mpi

# Ranks of one container need no other network and must not wait for one.
_LOOPBACK = (("btl_tcp_if_include", "127.0.0.0/8"), ("oob_tcp_if_include", "127.0.0.0/8"))


def local_container(
    spec: ClusterSpec,
    *,
    image: str,
    folder: PurePath,
    np: int,
    cores: int,
    command: Sequence[str],
    env: Mapping[str, str],
    forward: Sequence[str] = (),
    run: str,
    run_folder: PurePath | None = None,
    code: bool = False,
    workdir: str = "",
    devices: Mapping[str, str] = MappingProxyType({}),
    data: Mapping[str, str] = MappingProxyType({}),
) -> LocalContainer:
    """Return the container of a local run. Relative sources of volumes start at `folder`.

    `run` is the run's id.

    The container sees `run_folder` where a node has it. With `code`, the run's code is in its `work`, and the ranks
    start in `workdir` below that. `devices` are the variables by which kit-rank chooses GPUs (kit.plan.run.gpus).
    `data` maps the names of data sets to their folders on this machine, which the container gets read-only.
    """
    argv = ["mpirun", "--allow-run-as-root", "-np", str(np), "--host", f"localhost:{np}"]
    argv += ["--map-by", "slot", "--bind-to", mpi.binding(spec)]
    # With the run's name, kit-rank sends lines as records, which kit reads.
    ours: dict[str, str] = {**devices, "KIT_RUN": run, "KIT_LEAVE": "1"}
    here = [one for one in spec.data if one.name in data]
    mounts: tuple[str, ...] = tuple(f"{data[one.name]}:{one.to}:ro" for one in here)
    # These folders are read-only, also where a node would write to a store.
    ours |= data_variables([replace(one, write=False) for one in here])
    if run_folder is not None:
        ours |= _variables(f"{names.RUNS_MOUNT}/{run_folder.name}", code=code)
        mounts = (
            *mounts,
            f"{run_folder}:{names.RUNS_MOUNT}/{run_folder.name}",
        )
    if code:
        argv += ["--wdir", "/".join([ours[mpi.WORK_VARIABLE], *filter(None, [workdir])])]
    for name, value in (*mpi.TRANSPORTS, *_LOOPBACK):
        argv += ["--mca", name, value]
    placement = Placement(nodes=(Node(name="localhost", address="localhost", slots=np, cores=cores),), counts=(np,))
    if mpi.yields(spec, placement):
        argv += ["--mca", "mpi_yield_when_idle", "1"]
    for name in (*env, *(name for name in forward if name not in env)):
        argv += ["-x", name]
    return LocalContainer(
        image=image,
        argv=(*argv, *spec.mpi.args, *mpi.RELAY, *mpi.words_of(command)),
        env={**fence.local_environment(spec), "MASTER_ADDR": "127.0.0.1", **spec.env, **ours, **env},
        volumes=(*(_absolute(volume, folder) for volume in spec.volumes), *mounts),
        shm_size=spec.shm_size,
        ulimits=_ulimits(spec),
        capabilities=fence.local_capabilities(spec),
        security_options=tuple(fence.security_options(spec)),
        pids=spec.processes,
        ranks=np,
    )


def _variables(folder: str, *, code: bool) -> dict[str, str]:
    """Return the variables by which a rank finds its folders, as on a cluster."""
    return {
        **({mpi.WORK_VARIABLE: f"{folder}/{names.WORK}"} if code else {}),
        "KIT_OUTPUT_DIR": f"{folder}/{names.OUTPUT}",
        "KIT_CHECKPOINT_DIR": f"{folder}/{names.CHECKPOINTS}",
    }


def _absolute(volume: str, folder: PurePath) -> str:
    """Return a volume with an absolute source, because the engine, unlike Compose, takes no ./data."""
    source, colon, rest = volume.partition(":")
    return f"{folder / source}{colon}{rest}" if source.startswith(("./", "../")) else volume


def _ulimits(spec: ClusterSpec) -> dict[str, int]:
    limits = {"memlock": -1} if spec.ulimits.memlock == "unlimited" else {}
    given = {"nofile": spec.ulimits.nofile, "stack": spec.ulimits.stack}
    return limits | {name: value for name, value in given.items() if value}
