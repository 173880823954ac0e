"""What the scripts of kit do on a VM. One suite for the fake VM and for the real shell scripts, so that none can drift.

A module runs it by a class that derives from ScriptContract and has the fixture `vm`: a Machine that is a VM with an
engine, this image and nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

import pytest

from kit.model.observed import HostFacts
from kit.remote.cluster.look import Wanted
from kit.remote.cluster.observe import listener_word, parse
from kit.remote.scripts import in_node, script
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import host

IMAGE = "kit:1"
OTHER = "other"
TOKEN = "SWMTKN-1-s3cret"
COMPOSE = {
    "name": "kit-lab",
    "services": {
        "mpinode": {
            "image": IMAGE,
            "container_name": "kit-lab-mpinode",
            "labels": {"kit.cluster": "lab"},
            "volumes": [],
            "environment": {"KIT_ADDRESS": "10.0.0.1", "SSH_PORT": "33"},
        }
    },
}


class Machine(ABC):
    """A VM on which a case sets something up, runs scripts, and looks."""

    root: str
    cluster: str
    # The id that Swarm gives to this VM, and an address of it at which nobody listens.
    node: str
    address = "127.0.0.9"

    @property
    def folder(self) -> str:
        return f"{self.root}/{self.cluster}"

    @property
    def lock(self) -> str:
        return f"{self.root}/.lock/{self.cluster}"

    @property
    def member_file(self) -> str:
        return f"{self.root}/.swarm"

    @abstractmethod
    def argv(self, argv: list[str], stdin: bytes) -> Completed: ...

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return a file, or None if it does not exist."""

    @abstractmethod
    def write(self, path: str, content: bytes) -> None: ...

    @abstractmethod
    def container(self, name: str, *, cluster: str, running: bool = True, task: bool = False) -> None: ...

    @abstractmethod
    def stop_engine(self) -> None: ...

    @abstractmethod
    def break_compose(self) -> None: ...

    @abstractmethod
    def held(self) -> AbstractContextManager[str]:
        """Somebody holds the cluster's lock. Yields the PID of the holder."""

    @abstractmethod
    def rank(self, run: str, number: int) -> AbstractContextManager[str]:
        """A rank of the cluster. Yields its PID."""

    @abstractmethod
    def listener(self) -> AbstractContextManager[tuple[str, int]]: ...

    @abstractmethod
    def swarm_to_join(self) -> str:
        """Return the address of a manager of a swarm."""

    @abstractmethod
    def break_join(self) -> None: ...

    @abstractmethod
    def member(self, node: str, labels: dict[str, str] | None = None, *, up: bool = True) -> None:
        """Bring another host into this VM's swarm."""

    @abstractmethod
    def service(self, name: str, cluster: str | None) -> None:
        """Start a service in this VM's swarm, of a cluster of kit or of a stranger."""

    @abstractmethod
    def secret(self, name: str, cluster: str) -> None: ...

    def run(self, name: str, *arguments: str, stdin: bytes = b"") -> Completed:
        return self.argv(list(script(name, *arguments)), stdin)

    def lines(self, name: str, *arguments: str) -> list[str]:
        """Return what a script prints that must succeed."""
        done = self.run(name, *arguments)
        assert done.code == 0, done.error_text
        return done.text.splitlines()

    def facts(self, *paths: str, image: str = IMAGE, wanted: Wanted = "compose") -> HostFacts:
        done = self.run("observe", self.folder, image, wanted, *paths)
        assert done.code == 0, done.error_text
        return parse(host(1), done.text)

    def put(self, path: str, content: bytes, mode: str = "644") -> None:
        done = self.run("write_file", self.folder, path, mode, str(len(content)), stdin=content)
        assert (done.code, done.text) == (0, ""), done.error_text

    def init(self) -> str:
        (node,) = self.lines("swarm_init", self.address, "2377", self.member_file, "20s")
        return node


class ScriptContract:
    # observe

    def test_an_empty_vm(self, vm: Machine) -> None:
        facts = vm.facts("/nowhere/a", "/")
        assert (facts.engine, facts.compose) == ("26.1.5", "2.26.1")
        assert facts.arch
        assert min(facts.cores, facts.memory_mib, facts.disk_free_mib) > 0
        assert facts.image_id is not None
        assert (facts.containers, facts.files, facts.record, facts.host_key, facts.living) == ((), {}, None, None, ())
        assert facts.absent >= {"/nowhere/a"}
        assert (facts.swarm.state, facts.swarm.made, facts.swarm.nodes) == ("inactive", False, ())

    def test_an_image_that_is_not_there(self, vm: Machine) -> None:
        assert vm.facts(image="kit:2").image_id is None

    def test_containers_of_every_cluster_are_seen(self, vm: Machine) -> None:
        vm.container("one", cluster=vm.cluster)
        vm.container("two", cluster=OTHER, running=False)
        containers = {c.name: (c.cluster, c.service, c.image, c.running, c.swarm) for c in vm.facts().containers}
        assert containers == {
            "one": (vm.cluster, "mpinode", IMAGE, True, False),
            "two": (OTHER, "mpinode", IMAGE, False, False),
        }

    def test_a_task_of_swarm_is_seen_as_one(self, vm: Machine) -> None:
        vm.container("one", cluster=vm.cluster, task=True)
        assert [c.swarm for c in vm.facts().containers] == [True]

    def test_without_an_engine_the_rest_is_seen(self, vm: Machine) -> None:
        vm.put("cluster.json", b'{"kit": 1}\n')
        vm.stop_engine()
        facts = vm.facts()
        assert (facts.engine, facts.compose, facts.record) == ("", None, '{"kit": 1}')

    # files

    def test_files_modes_and_keys(self, vm: Machine) -> None:
        vm.put("ssh/host_ed25519", b"private\n-----END KEY-----\n", "600")
        vm.put("ssh/host_ed25519.pub", b"ssh-ed25519 AAAA kit\n")
        vm.put("ssh/id_ed25519.pub", b"ssh-ed25519 BBBB alone\n")
        vm.put("data/volume", b"not in sight of kit\n")
        facts = vm.facts()
        assert facts.modes == {
            "ssh/host_ed25519": "600", "ssh/host_ed25519.pub": "644", "ssh/id_ed25519.pub": "644",
        }  # fmt: skip
        assert (facts.host_key, facts.client_key) == ("ssh-ed25519 AAAA kit", None)

    @pytest.mark.parametrize("left", [b"\0" * 387, b"", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb"])
    def test_a_private_key_that_a_power_loss_damaged_is_missing(self, vm: Machine, left: bytes) -> None:
        for name in ("host", "id"):
            vm.put(f"ssh/{name}_ed25519", left, "600")
            vm.put(f"ssh/{name}_ed25519.pub", b"ssh-ed25519 AAAA kit\n")
        facts = vm.facts()
        assert (facts.host_key, facts.client_key) == (None, None)

    def test_a_part_of_a_file_changes_nothing(self, vm: Machine) -> None:
        vm.put("f", b"old")
        done = vm.run("write_file", vm.folder, "f", "600", "4", stdin=b"new")
        assert (done.code, "only a part of f arrived" in done.error_text) == (1, True)
        assert vm.read(f"{vm.folder}/f") == b"old"

    def test_a_folder_for_a_mount(self, vm: Machine) -> None:
        path = f"{vm.root}/data/a"
        assert vm.facts(path).absent == {path}
        assert vm.lines("make_folder", path, "755") == []
        assert vm.lines("make_folder", path, "755") == []
        assert vm.facts(path).absent == frozenset()

    def test_a_pattern_in_the_last_part_of_a_path(self, vm: Machine) -> None:
        vm.lines("make_folder", f"{vm.root}/my plugin", "755")
        path = f"{vm.root}/my plugin/libnccl-net*.so*"
        assert vm.facts(path).absent == {path}
        for name in ("libnccl.so.2", "libnccl-net.a", "xlibnccl-net.so"):
            vm.lines("make_folder", f"{vm.root}/my plugin/{name}", "755")
        assert vm.facts(path).absent == {path}
        vm.lines("make_folder", f"{vm.root}/my plugin/libnccl-net-ofi.so.0", "755")
        assert vm.facts(path).absent == frozenset()

    def test_plugins_that_a_deploy_has_copied(self, vm: Machine) -> None:
        assert vm.facts().plugins == frozenset()
        vm.put("f", b"x")
        assert vm.facts().plugins == frozenset()
        for name in ("0123456789abcdef", "unknown"):
            vm.lines("make_folder", f"{vm.folder}/plugins/{name}", "755")
        assert vm.facts().plugins == {"0123456789abcdef"}

    def test_a_folder_for_a_data_set(self, vm: Machine) -> None:
        vm.lines("make_folder", f"{vm.root}/nvme", "755")
        path = f"{vm.root}/nvme/kit-data/lab/web/files"
        assert vm.facts(path).absent == {path}
        assert vm.lines("make_data_folder", path) == []
        assert vm.lines("make_data_folder", path) == []
        assert vm.facts(path).absent == frozenset()

    def test_the_tail_of_a_file(self, vm: Machine) -> None:
        assert vm.lines("tail", f"{vm.folder}/log", "2") == []
        vm.put("log", b"one\ntwo\nthree\n")
        assert vm.lines("tail", f"{vm.folder}/log", "2") == ["two", "three"]
        assert vm.lines("tail", f"{vm.folder}/log", "9") == ["one", "two", "three"]

    def test_the_audit_grows_and_outlives_its_cluster(self, vm: Machine) -> None:
        audit = f"{vm.folder}-audits/one"
        assert vm.run("audit", vm.folder, audit, stdin=b"lost\n").code == 0
        assert vm.lines("tail", audit, "9") == []
        vm.put("compose.yaml", b"")
        for line in (b"one\n", b"two\n"):
            assert vm.run("audit", vm.folder, audit, stdin=line).code == 0
        assert vm.lines("tail", audit, "9") == ["one", "two"]
        vm.lines("remove", vm.cluster, vm.folder, "all")
        assert vm.run("audit", vm.folder, audit, stdin=b"three\n").code == 0
        assert vm.lines("tail", audit, "1") == ["three"]

    # the lock

    def test_a_lock_that_nobody_has(self, vm: Machine) -> None:
        assert vm.lines("lock_status", vm.lock) == ["kit-lock free"]
        assert vm.lines("lock_release", vm.lock, "1") == ["kit-lock released"]

    def test_a_lock_that_is_held(self, vm: Machine) -> None:
        with vm.held() as pid:
            first, *rest = vm.lines("lock_status", vm.lock)
            fields = dict(line.split(" ", 1) for line in rest)
            assert (first, fields["pid"], fields["who"], fields["what"]) == (
                "kit-lock held",
                pid,
                "ann@laptop",
                "kit deploy",
            )
            assert int(fields["now"]) >= int(fields["since"])
            assert vm.lines("lock_release", vm.lock, str(int(pid) + 1)) == ["kit-lock changed"]
            assert vm.lines("lock_status", vm.lock)[0] == "kit-lock held"
            assert vm.lines("lock_release", vm.lock, pid) == ["kit-lock released"]
            assert vm.lines("lock_status", vm.lock) == ["kit-lock free"]

    # ranks

    def test_ranks_are_listed_and_stopped_by_their_run(self, vm: Machine) -> None:
        one, two = f"{vm.cluster}-1", f"{vm.cluster}-2"
        assert vm.lines("ranks", vm.cluster) == []
        with vm.rank(one, 3) as first, vm.rank(two, 0) as second:
            assert sorted(vm.lines("ranks", vm.cluster)) == [f"{one} 3 {first}", f"{two} 0 {second}"]
            assert [line.strip() for line in vm.lines("stop_run", one)] == ["0"]
            assert vm.lines("ranks", vm.cluster) == [f"{two} 0 {second}"]

    def test_a_look_is_the_state_and_then_the_ranks(self, vm: Machine) -> None:
        with vm.rank(f"{vm.cluster}-1", 3) as pid:
            lines = vm.lines("look", vm.folder, "kit:none", "state")
        end = lines.index("@@ end")
        assert lines[end + 1 :] == ["@@ ranks", f"{vm.cluster}-1 3 {pid}"]
        assert [line for line in lines[:end] if line.startswith("@@ ")] == [
            line
            for line in vm.lines("observe", vm.folder, "kit:none", "state")
            if line.startswith("@@ ") and line != "@@ end"
        ]

    def test_the_load(self, vm: Machine) -> None:
        lines = vm.lines("load", vm.folder)
        assert [line.split()[0] for line in lines] == ["cores", "before", "after", "end"]
        before, after = ([int(word) for word in line.split()[2:]] for line in lines[1:3])
        assert lines[1].split()[1] == "cpu"
        assert sum(after) >= sum(before)

    def test_no_runs(self, vm: Machine) -> None:
        assert vm.lines("runs", vm.folder, "list") == ['{"end": true, "more": 0}']

    # a node

    def test_somebody_listens(self, vm: Machine) -> None:
        with vm.listener() as (address, port):
            assert vm.lines("wait_sshd", listener_word(address, port), "5", "kit-lab-mpinode") == []
            assert f"{address}:{port}" in vm.facts().listening

    def test_nobody_listens(self, vm: Machine) -> None:
        vm.container("kit-lab-mpinode", cluster=vm.cluster, running=False)
        done = vm.run("wait_sshd", listener_word(vm.address, 1), "5", "kit-lab-mpinode")
        assert done.code == 1
        assert done.text.splitlines()[0].startswith("container kit-lab-mpinode: ")

    def test_compose_that_fails_says_why_on_standard_error(self, vm: Machine) -> None:
        vm.put("compose.yaml", json.dumps(COMPOSE).encode())
        vm.break_compose()
        done = vm.run("compose_up", vm.folder)
        assert (done.code, done.text) == (1, "")
        assert "failed to create shim task" in done.error_text

    def test_a_command_in_a_node_that_is_not_there(self, vm: Machine) -> None:
        done = vm.argv(list(in_node("kit-lab-mpinode", ["true"])), b"")
        assert (done.code, "No such container: kit-lab-mpinode" in done.error_text) == (1, True)
        vm.container("kit-lab-mpinode", cluster="lab")
        assert vm.argv(list(in_node("kit-lab-mpinode", ["true"])), b"").code == 0

    # down

    def test_remove_takes_the_cluster_and_nothing_else(self, vm: Machine) -> None:
        vm.put("cluster.json", b"{}")
        vm.container("one", cluster=vm.cluster)
        vm.container("two", cluster=vm.cluster, running=False)
        vm.container("three", cluster=OTHER)
        assert vm.lines("remove", vm.cluster, vm.folder, "keep", IMAGE, "kit:2") == [
            "container one", "container two", f"folder {vm.folder}", f"image {IMAGE}",
        ]  # fmt: skip
        facts = vm.facts()
        assert ([c.name for c in facts.containers], facts.files, facts.image_id) == (["three"], {}, None)
        assert vm.lines("remove", vm.cluster, vm.folder, "keep", IMAGE) == []

    def test_remove_without_an_engine_keeps_the_files(self, vm: Machine) -> None:
        """Containers may come back with the engine; a folder that goes before them would leave orphans."""
        vm.put("cluster.json", b"{}")
        vm.stop_engine()
        done = vm.run("remove", vm.cluster, vm.folder, "keep", IMAGE)
        assert (done.code, done.text, "Cannot connect to the Docker daemon" in done.error_text) == (1, "", True)
        assert vm.read(f"{vm.folder}/cluster.json") == b"{}"

    def test_remove_node_takes_containers_alone(self, vm: Machine) -> None:
        vm.put("cluster.json", b"{}\n")
        vm.container("one", cluster=vm.cluster)
        vm.container("two", cluster=OTHER)
        assert vm.lines("remove_node", vm.cluster) == []
        facts = vm.facts()
        assert ([c.name for c in facts.containers], facts.record) == (["two"], "{}")

    def test_what_a_probe_left(self, vm: Machine) -> None:
        assert vm.lines("probe_clean", "bench-none") == []

    # swarm

    def test_a_swarm_is_made_and_remembered(self, vm: Machine) -> None:
        node = vm.init()
        swarm = vm.facts().swarm
        assert (swarm.state, swarm.node_id, swarm.manager, swarm.made) == ("active", node, True, True)
        assert [(member.id, member.state) for member in swarm.nodes] == [(node, "ready")]

    def test_a_worker_joins_and_knows_no_members(self, vm: Machine) -> None:
        request = {"RemoteAddrs": [f"{vm.swarm_to_join()}:2377"], "JoinToken": TOKEN, "AdvertiseAddr": vm.address,
                   "DataPathAddr": vm.address}  # fmt: skip
        done = vm.run("swarm_join", vm.member_file, IMAGE, stdin=json.dumps(request).encode())
        assert (done.code, done.error_text) == (0, "")
        swarm = vm.facts().swarm
        assert (swarm.state, swarm.node_id, swarm.manager, swarm.made) == ("active", done.text.strip(), False, True)
        assert swarm.nodes == ()
        assert vm.lines("swarm_remove", vm.cluster, vm.folder, "all") == []
        assert vm.lines("swarm_leave", vm.member_file, "", "", vm.cluster) == [f"left {done.text.strip()}"]
        assert (vm.facts().swarm.state, vm.read(vm.member_file)) == ("inactive", None)

    def test_a_join_that_fails_is_not_remembered(self, vm: Machine) -> None:
        request = {"RemoteAddrs": [f"{vm.swarm_to_join()}:2377"], "JoinToken": TOKEN, "AdvertiseAddr": vm.address,
                   "DataPathAddr": vm.address}  # fmt: skip
        vm.break_join()
        done = vm.run("swarm_join", vm.member_file, IMAGE, stdin=json.dumps(request).encode())
        assert (done.code, done.text, "connection error" in done.error_text) == (1, "", True)
        assert TOKEN not in done.error_text
        assert vm.read(vm.member_file) is None

    def test_labels_of_members(self, vm: Machine) -> None:
        node = vm.init()
        vm.member("n2")
        assert vm.lines("swarm_nodes", f"kit.{vm.cluster}", f"{node}=head", "n2=node") == []
        labels = {member.id: dict(member.labels) for member in vm.facts().swarm.nodes}
        assert labels == {node: {f"kit.{vm.cluster}": "head"}, "n2": {f"kit.{vm.cluster}": "node"}}

    def test_a_cluster_goes_from_its_swarm(self, vm: Machine) -> None:
        node = vm.init()
        vm.member("n2", {f"kit.{vm.cluster}": "node"})
        vm.member("n3", {f"kit.{vm.cluster}": "node", f"kit.{OTHER}": "head"})
        vm.service("own", vm.cluster)
        vm.service("others", OTHER)
        vm.secret("key", vm.cluster)
        vm.secret("otherkey", OTHER)
        assert [secret.name for secret in vm.facts().swarm.secrets] == ["key"]
        assert vm.lines("swarm_remove", vm.cluster, vm.folder, "all") == [
            "manager",
            "removed service own",
            "removed secret key",
            "stay n3",
        ]
        swarm = vm.facts().swarm
        assert {member.id: dict(member.labels) for member in swarm.nodes} == {
            node: {},
            "n2": {},
            "n3": {f"kit.{OTHER}": "head"},
        }
        assert ([service.name for service in swarm.services], swarm.secrets) == (["others"], ())
        assert vm.lines("swarm_remove", vm.cluster, vm.folder, "all") == ["manager", "stay n3"]

    def test_a_strangers_service_keeps_all_members(self, vm: Machine) -> None:
        vm.init()
        vm.service("web", None)
        assert vm.lines("swarm_remove", vm.cluster, vm.folder, "all") == ["manager", "stay all"]

    def test_a_manager_leaves_last(self, vm: Machine) -> None:
        node = vm.init()
        vm.member("n2")
        vm.member("n3", up=False)
        for stay in ("all", f"n2 {node}"):
            assert vm.lines("swarm_leave", vm.member_file, stay, "", vm.cluster) == []
        assert vm.lines("swarm_leave", vm.member_file, "", "", vm.cluster) == ["stays for n2"]
        vm.service("own", vm.cluster)
        assert vm.lines("swarm_leave", vm.member_file, "", "n2", vm.cluster) == []
        vm.lines("swarm_nodes", f"kit.{vm.cluster}", f"{node}=head")
        done = vm.run("swarm_leave", vm.member_file, "", "n2", vm.cluster)
        text = f"Swarm still runs the stack of {vm.cluster}, which this host manages"
        assert (done.code, done.error_text.strip()) == (1, text)
        vm.lines("swarm_remove", vm.cluster, vm.folder, "all")
        assert vm.facts().swarm.state == "active"
        assert vm.lines("swarm_leave", vm.member_file, "", "n2", vm.cluster) == [f"left {node}"]
        assert (vm.facts().swarm.state, vm.read(vm.member_file)) == ("inactive", None)
        assert vm.lines("swarm_leave", vm.member_file, "", "", vm.cluster) == []

    def test_who_runs_a_task_stays(self, vm: Machine) -> None:
        vm.init()
        vm.container("task", cluster=OTHER, task=True)
        assert vm.lines("swarm_leave", vm.member_file, "", "", vm.cluster) == []
        assert vm.facts().swarm.state == "active"

    def test_a_swarm_that_kit_did_not_make_is_left_alone(self, vm: Machine) -> None:
        node = vm.init()
        vm.write(vm.member_file, b"n99\n")
        assert not vm.facts().swarm.made
        assert vm.lines("swarm_leave", vm.member_file, "", "", vm.cluster) == []
        assert (vm.facts().swarm.node_id, vm.read(vm.member_file)) == (node, None)
