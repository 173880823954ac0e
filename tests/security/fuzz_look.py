"""The look at a VM: what observe.sh prints, and the lines of ranks after it. `read` may raise only KitError."""

from __future__ import annotations

import json

from kit.model.host import Host
from kit.remote.cluster.observe import observe_ranks
from kit.remote.ssh.transport import Completed

MARK = "6f1c2d6f1c2d6f1c2d6f1c2d6f1c2d6f"
_SWARM = {
    "LocalNodeState": "active", "NodeID": "n1", "ControlAvailable": True, "Error": "",
    "RemoteManagers": [{"NodeID": "n1", "Addr": "10.0.0.1:2377"}],
    "Cluster": {"ID": "c1", "Spec": {"Dispatcher": {"HeartbeatPeriod": 20000000000}}},
}  # fmt: skip
_INFO = {
    "ServerVersion": "26.1.5", "Swarm": _SWARM, "Runtimes": {"runc": {"path": "runc"}, "nvidia": {}},
    "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"], "CgroupDriver": "systemd", "DockerRootDir": "/var/lib/docker",
    "LiveRestoreEnabled": True, "DefaultRuntime": "nvidia", "SecurityOptions": ["name=userns"],
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}],
    "GenericResources": [
        {"NamedResourceSpec": {"Kind": "gpu", "Value": "GPU-5c3b"}},
        {"DiscreteResourceSpec": {"Kind": "ssd", "Value": 3}},
    ],
    "ClientInfo": {"Plugins": [{"Name": "compose", "Version": "2.26.1"}]},
}  # fmt: skip
_LABELS = {"kit.cluster": "lab", "kit.service": "mpihead", "kit.spec": "1", "com.docker.swarm.task.id": "t"}
_ROW = {"Names": ["/kit-lab-mpihead"], "Image": "kit:1", "Labels": _LABELS, "State": "running", "Status": "Up 2 hours"}
_CLIENT_ROW = {**_ROW, "Names": "kit-lab-mpihead", "Labels": "kit.cluster=lab,kit.service=mpihead"}


def look(containers: str) -> bytes:
    sections = {
        "system": "arch x86_64\ncores 96\npython 3.11.2\nmemory_kib 1056489000\nos Ubuntu 22.04.4 LTS\n"
        "disk_free_kib 461373440\nhugepages_kib 4194304\nhugepages_free_kib 4194304",
        "addresses": "2: eth0    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0\n"
        "9: tun0    inet 10.8.0.6 peer 10.8.0.5/32 scope global tun0",
        "route": "default via 10.0.0.254 dev eth0",
        "listening": "0400000A:0021\n00000000:0016",
        "udp": "00000000:0044",
        "absent": "/data",
        "rdma": "device uverbs0\nport mlx5_0 1 4: ACTIVE|InfiniBand\nport mlx5_1 1 4: ACTIVE|Ethernet\n"
        "gid mlx5_1 1 3 eth0|RoCE v2|0000:0000:0000:0000:0000:ffff:0a00:0004",
        "gpus": "NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b, 0, 00000000:17:00.0, 535.104.05, Enabled, 8.0\n"
        "Tesla T4, [N/A], GPU-77aa\nGPU 0: A100 (UUID: GPU-5c3b)\n  MIG 1g.5gb  Device  0: (UUID: MIG-5c3b-1)",
        "gpu_engine": "program /usr/bin/dockerd\nstarted 1760000000\nhook /usr/bin/nvidia-container-runtime-hook\n"
        "hook_changed 1760000009\nruntime /usr/bin/nvidia-container-runtime\ncdi /etc/cdi all\n"
        "cdi_driver /etc/cdi 535.104.05",
        "gpu_node": "sees GPU-5c3b\nsays Failed to initialize NVML: Unknown Error",
        "engine": json.dumps(_INFO),
        "nodes": json.dumps(["n2", {"Labels": {"kit.lab": "node"}}, "vm2", {"State": "down", "Addr": "10.0.0.2"}]),
        "services": json.dumps(["kit-lab_mpinode", {"kit.cluster": "lab"}]) + '\n["web", null]',
        "secrets": json.dumps(["kit-lab-node-1", {"kit.role": "node", "kit.public": "ssh-ed25519 AAAA x"}]),
        "engine_ports": "10.0.0.1:2377",
        "member": "n1",
        "image": "sha256:12ab",
        "containers": containers,
        "files": "600 ./compose.yaml\n600 ssh/host_ed25519",
        "digests": f"{'a' * 64}  ./compose.yaml\n{'b' * 64}  ssh/host_ed25519",
        "host_key": "ssh-ed25519 AAAA kit-gpu4",
        "client_key": "ssh-ed25519 BBBB kit-lab",
        "record": '{\n "kit": 1\n}',
        "plugins": "0123456789abcdef",
        "cordoned": "yes",
        "living": "20261121-101500-3fa2\nby-hand-7",
        "waiting": "20261121-101501-3fa2",
        "end": "",
        "gpu_processes": "GPU-5c3b 4711 1024 root lab python3\nGPU-77aa 12 [N/A] ann - python3 -c",
        "slots": '{"id": "20261121-101500-3fa2", "places": [{"node": "gpu4", "slots": [0, 1]}]}',
        "ranks": "20261121-101500-3fa2 0 4711\nby-hand-7 3 4712",
    }
    return "".join(f"@@ {MARK} {name}\n{text}\n" for name, text in sections.items()).encode()


SAMPLES: tuple[bytes, ...] = (look(json.dumps([_ROW])), look(json.dumps(_CLIENT_ROW)))


class Printing:
    """A host that prints this text, whatever kit asks. The text has the mark of the look."""

    def __init__(self, text: bytes) -> None:
        self.host = Host(name="gpu4", address="192.0.2.4")
        self._text = text

    def run(self, argv: object, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        text = self._text.replace(MARK.encode(), stdin.strip())
        return Completed(code=0, stdout=text, stderr=b"")

    def close(self) -> None:
        pass


def read(answer: bytes) -> None:
    """Read it as kit ps and kit deploy do."""
    facts, _ = observe_ranks(Printing(answer), folder="/opt/kit/lab")
    assert isinstance(facts.memory_mib, int)
