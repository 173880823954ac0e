"""A VM in memory: files, an engine, addresses, and faults that a test switches on. It answers the scripts of kit.

What it cannot know by itself (which VM has an address) it asks its Fleet.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import yaml

from kit.errors import NotReadyError, SlowError
from kit.model.host import Host
from kit.model.names import NODE_NAMES, VM_NAMES
from kit.remote.cluster.observe import listener_word
from kit.remote.ssh.transport import Completed
from tests.fakes.probes import FakeLink
from tests.fakes.swarm import FakeSwarm, SwarmScripts, completed, failed

if TYPE_CHECKING:
    from tests.fakes.fleet import Fleet

Fault = Literal["unreachable", "sudo", "no engine", "compose fails", "disk full", "sshd dies", "firewall", "no flock",
    "no CA", "registry breaks", "engine hangs up", "stack fails",
    "engine hiccups", "no ps", "data folder of another", "mount fails", "mount hangs", "low limits",
    "no plugin", "another source",
]  # fmt: skip

# A tag that kit gave an image.
_OURS = re.compile(r"kit:[a-z-]*-[0-9a-f]{12}")
MODEL, DRIVER = "NVIDIA A100-SXM4-40GB", "535.104.05"
LOST = "Failed to initialize NVML: Unknown Error"
RESET = "unable to start container process: waiting for init preliminary setup: read init-p: connection reset by peer"


NO_LIMIT = (
    "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: "
    "unable to start container process: error during container init: error setting rlimit type 8: operation not "
    "permitted"
)


def mount_failure(volume: str) -> str:
    """Return what an engine says of a file system whose server refuses the connection."""
    at = f"/var/lib/docker/volumes/{volume}/_data"
    return (
        f"error while mounting volume '{at}': failed to mount local volume: mount :/web:{at}, flags: 0x1, "
        "data: addr=10.0.0.9,nfsvers=4.1,hard: connection refused"
    )


def listed(*runs: tuple[dict[str, Any], dict[str, Any] | None], live: bool = False) -> str:
    """Return what runs.py prints for these runs, each as its record and how it ended."""
    rows: list[dict[str, Any]] = [
        {"id": record["id"], "live": live, "record": json.dumps(record), "end": json.dumps(end) if end else ""}
        for record, end in runs
    ]
    return "".join(f"{json.dumps(row)}\n" for row in [*rows, {"end": True, "more": 0}])


@dataclass
class FakeContainer:
    """`host_key` is what its sshd read when it started. `task`: Swarm made it."""

    name: str
    project: str
    service: str
    image: str
    labels: dict[str, str]
    address: str
    port: int
    host_key: str
    running: bool = True
    task: bool = False


@dataclass
class FakeLock:
    """The content of the lock's file, and whether its holder lives. kit's side is kit.remote.cluster.lock.Lock."""

    vm: FakeVM
    file: str
    what: str
    who: str = "ann@laptop"
    pid: int = 4711
    held: bool = True

    def check(self) -> None:
        if not self.held:
            raise NotReadyError("the lock of the cluster was lost", host=self.vm.host.name)

    def release(self) -> None:
        with self.vm.fleet.answering:
            self._release()

    def _release(self) -> None:
        if self.held:
            self.held = False
            del self.vm.locks[self.file]


@dataclass
class FakeVM(SwarmScripts):
    """`changed` lists each command that changed something, in order."""

    host: Host
    internal: str
    fleet: Fleet
    faults: set[Fault] = field(default_factory=set)
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    containers: list[FakeContainer] = field(default_factory=list)
    gpus: int = 0
    others_listen: set[tuple[str, int]] = field(default_factory=lambda: {("0.0.0.0", 22)})  # noqa: S104
    ranks: list[tuple[str, int, int]] = field(default_factory=list)
    busy: float = 0.0
    driver: str = DRIVER
    model: str = MODEL
    capability: str = "8.0"
    # The node lost all GPUs, as after a daemon-reload, until it is recreated; or it never gets these.
    lost_gpus: bool = False
    hidden_gpus: tuple[int, ...] = ()
    # The node has its GPUs, and no nvidia-smi.
    blind: bool = False
    # What nvidia-smi prints besides its GPUs.
    nvidia_smi: list[str] = field(default_factory=list)
    # Lines of gpu_processes.sh.
    gpu_processes: list[str] = field(default_factory=list)
    living: list[str] = field(default_factory=list)
    # Lines of `runs.py slots`.
    slots: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    cordoned: bool = False
    # What the reader of kit doctor reads, by the words of the read: `file /etc/hosts`. None: no python3.
    reads: dict[str, Any] = field(default_factory=dict)
    python: str | None = "3.13.5"
    runs: str = ""
    # In place of these: what they are whenever kit asks.
    read_runs: Callable[[], bytes] | None = None
    diffs: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, Completed] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    locks: dict[str, FakeLock] = field(default_factory=dict)
    # By path. kit down keeps them.
    audits: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    swarm: FakeSwarm | None = None
    node_id: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    hiccups: list[str] = field(default_factory=list)
    # What live commands read, the mark of the last one, and an event that an endless command waits for.
    inputs: list[bytes] = field(default_factory=list)
    mark: str = ""
    endless: threading.Event | None = None
    # For kit doctor: the links to other VMs by name, the clock, and raw answers of the probe.
    links: dict[str, FakeLink] = field(default_factory=dict)
    clock_s: float = 0.0
    probe_answers: dict[str, bytes] = field(default_factory=dict)

    def exists(self, path: str) -> bool:
        inside = any(f == path or f.startswith(f"{path}/") for f in self.files)
        return (
            inside
            or path == VM_NAMES
            or path in self.folders
            or any(fnmatchcase(folder, path) for folder in self.folders)
        )

    def answer(self, argv: list[str], stdin: bytes) -> Completed | None:
        """Return None for a command that is not one of kit's. Commands run one at a time, although kit uses threads."""
        with self.fleet.answering:
            return self._answer(argv, stdin)

    def _answer(self, argv: list[str], stdin: bytes) -> Completed | None:
        if argv[:2] == ["sh", "-c"] and len(argv) > 3 and argv[3].startswith("kit-"):
            name = argv[3].removeprefix("kit-")
            done: Completed = getattr(self, f"_{name}")(stdin, *argv[4:])
            return done
        if argv[0] == "docker":
            return self._docker(argv[1:], stdin)
        return self._answer_plain(argv)

    def _answer_plain(self, argv: list[str]) -> Completed | None:
        if argv[:2] == ["test", "-e"]:
            return completed() if argv[2] in self.files else failed("")
        if argv[0] == "cat" and argv[1:] and argv[1].startswith("/opt/kit/"):
            return completed(self.files[argv[1]][0].decode()) if argv[1] in self.files else failed("")
        if argv[0] == "python3" and argv[3:4] == ["survey"] and f"{argv[4]}/stack.yaml" in self.files:
            # Tests of runs have their folders on this machine, and no stack.
            return completed('{"stack": true}\n{"end": true}\n')
        if argv[0] == "rm":
            for path in argv[argv.index("--") + 1 :]:
                self._forget(path)
            return completed()
        return None

    # The scripts, by their names

    def _observe(self, stdin: bytes, folder: str, image: str, _wanted: str, *paths: str) -> Completed:
        inside = {path.removeprefix(f"{folder}/"): file for path, file in self.files.items() if path.startswith(folder)}
        below = {path: file for path, file in inside.items() if path.rpartition("/")[0] in ("", "ssh")}
        sections: dict[str, list[str]] = {
            "system": [
                "arch x86_64", "cores 8", *([f"python {self.python}"] if self.python else []), "memory_kib 65536000",
                "os Debian GNU/Linux 13 (trixie)",
                f"disk_free_kib {1024 if 'disk full' in self.faults else 100 * 1024 * 1024}",
            ],
            "addresses": [
                "1: lo    inet 127.0.0.1/8 scope host lo",
                "2: docker0    inet 172.17.0.1/16 brd 172.17.255.255 scope global docker0",
                f"3: eth0    inet {self.internal}/24 scope global eth0",
            ],
            "route": ["default via 10.0.0.254 dev eth0"],
            "listening": [listener_word(*one) for one in sorted(self._listening())],
            "gpus": [
                f"{self.model}, 40960, GPU-{self.host.name}-{n}, {n}, 00000000:{n:02X}:00.0, {self.driver}, Disabled, "
                f"{self.capability}"
                for n in range(self.gpus)
            ]
            + self.nvidia_smi,
            "gpu_node": self._node_gpus(),
            "gpu_engine": ["hook /usr/bin/nvidia-container-runtime-hook"] if self.gpus else [],
            "engine": [self._info()],
            "image": [f"{self.images[tag]} {tag}" for tag in image.split() if tag in self.images],
            "containers": [] if "no engine" in self.faults else [_row(container) for container in self.containers],
            "files": [f"{mode} ./{path}" for path, (_, mode) in below.items()],
            "digests": [f"{hashlib.sha256(data).hexdigest()}  ./{path}" for path, (data, _) in below.items()],
            "host_key": _public(below, "ssh/host_ed25519"),
            "client_key": _public(below, "ssh/id_ed25519"),
            "record": below["cluster.json"][0].decode().splitlines() if "cluster.json" in below else [],
            "plugins": sorted(self._plugins(folder)),
            "cordoned": ["yes"] if self.cordoned else [],
            "living": self.living,
            "waiting": self.waiting,
            "udp": [],
            "absent": [path for path in paths if not self.exists(path)],
            **self._swarm_sections(folder.rpartition("/")[2]),
            "end": [],
        }  # fmt: skip
        start = " ".join(["@@", *stdin.decode().split()])
        return completed(
            "".join(f"{start} {name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())
        )

    def _write_file(self, stdin: bytes, folder: str, path: str, mode: str, size: str) -> Completed:
        if "disk full" in self.faults:
            return failed("cat: write error: No space left on device")
        if len(stdin) != int(size):
            return failed(f"only a part of {path} arrived")
        self.files[f"{folder}/{path}"] = (stdin, mode)
        self.changed.append(f"write {path}")
        return completed()

    def _make_data_folder(self, _stdin: bytes, path: str) -> Completed:
        if "data folder of another" in self.faults:
            return failed(f"{path.rpartition('/')[0]} is a link, or another user's: remove it first")
        self.folders.add(path)
        self.changed.append(f"make {path}")
        return completed()

    def _plugins(self, folder: str) -> set[str]:
        top = f"{folder}/plugins/"
        return {path.removeprefix(top) for path in self.folders if path.startswith(top)}

    def _copy_plugin(self, _stdin: bytes, cluster: str, image: str, path: str, folder: str) -> Completed:
        assert folder.startswith(f"/opt/kit/{cluster}/plugins/")
        if image not in {*self.images, *self.images.values()}:
            return failed(f"{path} cannot be copied: Error response from daemon: No such image: {image}")
        self.images.pop(image, None)
        if "no plugin" in self.faults:
            return failed(f"{path} has no libnccl-net*.so")
        self.folders.add(folder)
        self.changed.append(f"copy {path}")
        return completed()

    def _wait_sshd(self, _stdin: bytes, word: str, _seconds: str, container: str) -> Completed:
        if any(listener_word(*one) == word for one in self._listening()):
            return completed()
        return Completed(code=1, stdout=f"container {container}: restarting:4\n".encode(), stderr=b"")

    def _data_end(self, _stdin: bytes, _cluster: str) -> Completed:
        """No fake VM has a stager."""
        return failed("Cannot connect to the Docker daemon") if "no engine" in self.faults else completed()

    def _remove(self, _stdin: bytes, cluster: str, folder: str, what: str, *words: str) -> Completed:
        if "no engine" in self.faults:
            return failed("Cannot connect to the Docker daemon")
        at = words.index("--") if "--" in words else len(words)
        if f"{folder}/stack.yaml" in self.files and self._keeps_stack(cluster):
            return failed(f"Swarm still runs the stack of {cluster}, which this host manages")
        images, data = words[:at], words[at + 1 :]
        kept = [one.rpartition("/")[2] for one in data if f"{one}/staged.json" in self.folders]
        homes = ["home stays"] if what == "keep" and f"{folder}/var/home" in self.folders else []
        self.folders -= {f"{one}/files" for one in data if f"{one}/staged.json" not in self.folders}
        self.folders = {path for path in self.folders if not path.startswith(f"{folder}/")}
        removed = [f"container {c.name}" for c in self.containers if c.labels["kit.cluster"] == cluster]
        self.containers = [c for c in self.containers if c.labels["kit.cluster"] != cluster]
        if any(path.startswith(f"{folder}/") for path in self.files):
            removed.append(f"folder {folder}")
            self._forget(folder)
        used = {container.image for container in self.containers}
        earlier = [tag for tag in self.images if images and _OURS.fullmatch(tag) and tag not in used]
        removed += [f"image {image}" for image in dict.fromkeys([*images, *earlier]) if self.images.pop(image, None)]
        self.changed += removed
        return completed("".join(f"{line}\n" for line in [*removed, *homes, *(f"kept {name}" for name in kept)]))

    def _look(self, stdin: bytes, folder: str, image: str, wanted: str) -> Completed:
        state = self._observe(stdin, folder, image, wanted)
        start = " ".join(["@@", *stdin.decode().split()])
        users = "".join(f"{line}\n" for line in [f"{start} gpu_processes", *self.gpu_processes]) if self.gpus else ""
        slots = "".join(f"{line}\n" for line in [f"{start} slots", *self.slots]) if self.slots else ""
        return completed(f"{state.text}{users}{slots}{start} ranks\n{self._ranks(stdin, folder).text}")

    def _doctor(self, stdin: bytes) -> Completed:
        """Answer a request to the reader with `reads`, by the words of a read. It has nothing else, and the look."""
        if self.python is None:
            return Completed(code=69, stdout=b"", stderr=b"")
        request = json.loads(json.loads(stdin.decode().rpartition("\nmain(")[2].strip()[:-1]))
        empty: dict[str, Any] = {"files": {}, "links": {}, "lookup": []}
        values = [self.reads.get(" ".join(_flat(read)), empty.get(read[0])) for read in request["reads"]]
        look = None
        if request["look"]:
            argv, mark, _ = request["look"]
            done = self._answer(argv, mark.encode())
            look = [done.code, done.text, done.error_text] if done else None
        answer = json.dumps({"reads": values, "missing": [], "look": look})
        return completed(f"@@ {request['mark']} {answer}\n")

    def _gpu_processes(self, _stdin: bytes, _cluster: str) -> Completed:
        listed = [f"has GPU {n}: {self.model} (UUID: GPU-{self.host.name}-{n})" for n in range(self.gpus)]
        return completed("".join(f"{line}\n" for line in [*self.gpu_processes, *listed, *self._node_gpus()]))

    def _gpu_node(self, _stdin: bytes, _cluster: str) -> Completed:
        return completed("".join(f"{line}\n" for line in self._node_gpus()))

    def _node_gpus(self) -> list[str]:
        if self.blind or not self.gpus or not any(container.running for container in self.containers):
            return []
        if self.lost_gpus:
            return [f"says {LOST}"]
        return [f"sees GPU-{self.host.name}-{n}" for n in range(self.gpus) if n not in self.hidden_gpus]

    def _ranks(self, _stdin: bytes, _cluster: str) -> Completed:
        return completed("".join(f"{run} {rank} {pid}\n" for run, rank, pid in self.ranks))

    def _compose_up(self, _stdin: bytes, folder: str, *options: str) -> Completed:
        return self._compose(f"{folder}/compose.yaml", force="--force-recreate" in options)

    def _lock_status(self, _stdin: bytes, file: str) -> Completed:
        if file not in self.locks:
            return completed("kit-lock free\n")
        lock = self.locks[file]
        state = "held" if lock.held else "stale"
        return completed(f"kit-lock {state}\nnow 1120\npid {lock.pid}\nsince 1000\nwho {lock.who}\nwhat {lock.what}\n")

    def _lock_release(self, _stdin: bytes, file: str, pid: str) -> Completed:
        if file in self.locks:
            if str(self.locks[file].pid) != pid:
                return completed("kit-lock changed\n")
            self.locks.pop(file).held = False
        return completed("kit-lock released\n")

    def _audit(self, stdin: bytes, folder: str, file: str) -> Completed:
        if "disk full" in self.faults:
            return failed("cat: write error: No space left on device")
        if file in self.audits or any(path.startswith(f"{folder}/") for path in self.files):
            self.audits[file] = self.audits.get(file, b"") + stdin
        return completed()

    def _tail(self, _stdin: bytes, file: str, count: str) -> Completed:
        content = self.audits[file] if file in self.audits else self.files.get(file, (b"", ""))[0]
        return completed("".join(content.decode().splitlines(keepends=True)[-int(count) :]))

    def _list(self) -> str:
        return self.read_runs().decode() if self.read_runs else self.runs or listed()

    def _runs(self, _stdin: bytes, folder: str, operation: str, run: str = "", file: str = "") -> Completed:
        assert folder.startswith("/opt/kit/")
        if operation == "read":
            assert file == "code.diff"
            return completed(self.diffs.get(run, b""))
        if operation == "living" and "disk full" not in self.faults:
            return completed("".join(f"{run}\n" for run in self.living))
        if operation == "slots" and "disk full" not in self.faults:
            return completed("".join(f"{line}\n" for line in self.slots))
        return failed("sh: out of memory") if "disk full" in self.faults else completed(self._list())

    def _load(self, _stdin: bytes, folder: str) -> Completed:
        assert folder.startswith("/opt/kit/")
        work = round(self.busy * 50)
        clocks = ["cpu 0 0 0 9000 0 0 0 0 0 0", f"cpu {work} 0 0 {9400 - work} 0 0 0 0 0 0"]
        living = "".join(f"living {run}\n" for run in self.living)
        return completed(f"cores 8\nbefore {clocks[0]}\nafter {clocks[1]}\n{living}end\n")

    def _probe_clean(self, _stdin: bytes, mark: str) -> Completed:
        self.changed.append(f"clean {mark}")
        return completed()

    def _stop_run(self, _stdin: bytes, run: str) -> Completed:
        self.ranks = [rank for rank in self.ranks if rank[0] != run]
        return completed("0\n")

    def _end_exec(self, _stdin: bytes, mark: str) -> Completed:
        """End the command of an earlier exec, if it is the one with this mark."""
        if "no ps" in self.faults:
            return failed("awk: not found")
        self.changed.append("end exec")
        if self.endless is None or self.mark != f"KIT_EXEC={mark}":
            return completed("0 0\n")
        self.endless.set()
        return completed("2 0\n")

    # docker

    def _node(self, _stdin: bytes, name: str, verb: str, *words: str) -> Completed:
        cluster = name.removeprefix("kit-").rpartition("-mpi")[0]
        tasks = [c.name for c in self.containers if c.task and c.running and c.labels["kit.cluster"] == cluster]
        node = tasks[0] if tasks and f"/opt/kit/{cluster}/node.env" in self.files else name
        at = words.index("--")
        return self._docker([verb, *words[:at], node, *words[at + 1 :]], b"")

    def _docker(self, argv: list[str], stdin: bytes) -> Completed:
        by_swarm = self._swarm_docker(argv, stdin)
        if by_swarm is not None:
            return by_swarm
        if argv[0] == "exec":
            argv = self._without_options(argv)
            container = next((c for c in self.containers if c.name == argv[1] and c.running), None)
            if container is None:
                return failed(f"Error response from daemon: No such container: {argv[1]}")
            if self._hiccup("exec"):
                # Engine 20.10 prints this on stdout.
                return Completed(
                    code=126, stdout=f"OCI runtime exec failed: exec failed: {RESET}\n".encode(), stderr=b""
                )
            if argv[2:4] == ["sh", "-c"] and argv[5:6] == ["kit-peers"]:
                return self._peers(container, argv[6:])
            return self.answers.get(" ".join(argv[2:]), completed())
        return failed(f"docker: '{argv[0]}' is not a command of the fake")

    def _without_options(self, argv: list[str]) -> list[str]:
        words = argv[1:]
        while words[0].startswith("--"):
            if words[0] == "--env":
                self.mark = words[1]
            words = words[2 if words[0] in ("--env", "--env-file") else 1 :]
        return ["exec", *words]

    def _hiccup(self, what: str) -> bool:
        """Whether the engine's runtime fails now: the first time that it is to begin something of a kind."""
        if "engine hiccups" not in self.faults or what in self.hiccups:
            return False
        self.hiccups.append(what)
        return True

    def _compose(self, path: str, *, force: bool) -> Completed:
        if self._hiccup("compose"):
            return failed(f"Error response from daemon: failed to create shim task: OCI runtime create failed: {RESET}")
        if "compose fails" in self.faults:
            return failed("Error response from daemon: failed to create shim task: OCI runtime create failed")
        if "low limits" in self.faults:
            return failed(f"Error response from daemon: {NO_LIMIT}: unknown")
        document = yaml.safe_load(self.files[path][0])
        project = document["name"]
        services = document["services"]
        if "mount hangs" in self.faults:
            raise SlowError("a command did not end within 300 s", host=self.host.name)
        if "mount fails" in self.faults:
            return failed(mount_failure(next(iter(document["volumes"]))))
        # Orphans first, as Compose does.
        self.containers = [c for c in self.containers if c.project != project or c.service in services]
        for service, body in services.items():
            if body["image"] not in self.images:
                return failed(f"Error: No such image: {body['image']}")
            source = body["volumes"][0].split(":")[0]
            plugin = next((v.split(":")[0] for v in body["volumes"] if v.endswith(":/opt/nccl-plugin:ro")), "")
            # Compose would create the folder, empty.
            assert not plugin or self.exists(plugin) or self.exists(f"{plugin}/*"), plugin
            assert self.exists(f"{source}/{NODE_NAMES}")
            sources = {volume.split(":")[0] for volume in body["volumes"]}
            self.folders |= {one for one in sources if not self.exists(one)}
            own = [c for c in self.containers if c.project == project]
            if own and own[0].running and own[0].labels == body["labels"] and not force:
                continue
            self.containers = [c for c in self.containers if c.project != project]
            self.lost_gpus = False
            environment = body["environment"]
            self.containers.append(
                FakeContainer(
                    name=body["container_name"],
                    project=project,
                    service=service,
                    image=body["image"],
                    labels=body["labels"],
                    address=environment["KIT_ADDRESS"],
                    port=int(environment["SSH_PORT"]),
                    host_key=self.files[f"{source}/ssh/host_ed25519.pub"][0].decode().strip(),
                )
            )
            self.changed.append(f"up {service}")
        return completed()

    def _peers(self, container: FakeContainer, addresses: list[str]) -> Completed:
        """Log in as ssh does: the port is open, the host key is the pinned one, and the client's key may log in."""
        folder = f"/opt/kit/{container.labels['kit.cluster']}/ssh"
        pinned = {
            line.split(" ", 1)[0].split(",")[0]: line.split(" ", 1)[1]
            for line in self.files[f"{folder}/known_hosts"][0].decode().splitlines()
        }
        client = self._client_key(container, folder)
        lines = []
        for address in addresses:
            peer = self.fleet.at(address)
            # The head's ssh config sends it to the port of its own cluster.
            daemons = [c for c in peer.containers if (c.address, c.port) == (address, container.port)] if peer else []
            daemon = next((c for c in daemons if c.running), None)
            if peer is None or daemon is None or {"firewall", "sshd dies"} & peer.faults:
                lines.append(f"{address} ssh: connect to host {address}: Connection timed out")
            elif pinned.get(f"[{address}]:{daemon.port}") != daemon.host_key:
                lines.append(f"{address} Host key verification failed.")
            elif (
                f'from="{container.address}" {client}\n' not in peer.files[f"{folder}/authorized_keys"][0].decode()
                or "another source" in peer.faults
            ):
                lines.append(f"{address} root@{address}: Permission denied (publickey).")
        return completed("".join(f"{line}\n" for line in lines))

    def _client_key(self, container: FakeContainer, folder: str) -> str:
        """The public half of what the head logs in with: a file of the VM's, or a secret of the swarm's."""
        if not container.task:
            return self.files[f"{folder}/id_ed25519.pub"][0].decode().strip()
        clients = [labels for labels, _ in self._managed().secrets.values() if labels["kit.role"] == "client"]
        return clients[-1]["kit.public"]

    # Below

    def _listening(self) -> set[tuple[str, int]]:
        own = {(c.address, c.port) for c in self.containers if c.running and "sshd dies" not in self.faults}
        return self.others_listen | own

    def _info(self) -> str:
        if "no engine" in self.faults:
            return "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
        runtimes: dict[str, Any] = {"runc": {}}
        plugins = [{"Name": "compose", "Version": "2.26.1"}]
        return json.dumps(
            {"ServerVersion": "26.1.5", "Runtimes": runtimes, "ClientInfo": {"Plugins": plugins},
             "Swarm": self._swarm_info(), **self.info}
        )  # fmt: skip

    def _forget(self, path: str) -> None:
        if path in self.folders:
            self.folders.remove(path)
            self.changed.append(f"delete {path}")
        gone = [known for known in self.files if known == path or known.startswith(f"{path}/")]
        for known in gone:
            del self.files[known]
            self.changed.append(f"delete {known}")


def _flat(read: list[Any]) -> list[str]:
    """Return the words of a read without its limit of time."""
    return [read[0], *(read[1] if isinstance(read[1], list) else [read[1]])]


def _public(below: dict[str, tuple[bytes, str]], private: str) -> list[str]:
    there = b"\n-----END " in below.get(private, (b"", ""))[0] and f"{private}.pub" in below
    return [below[f"{private}.pub"][0].decode().strip()] if there else []


def _row(container: FakeContainer) -> str:
    return json.dumps(
        {
            "Names": container.name,
            "Labels": ",".join(f"{name}={value}" for name, value in container.labels.items()),
            "State": "running" if container.running else "exited",
            "Status": "Up 2 hours" if container.running else "Exited (137) 2 hours ago",
            "Image": container.image,
        }
    )
