"""kit setup on VMs in folders: kit's real scripts, and stand-ins for apt, systemd, Docker and NVIDIA's programs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.cli.screen import jsonout
from kit.cli.text import plan as plantext
from kit.errors import AnswerError, KitError, NotReadyError, StepError
from kit.events import HostStep
from kit.flows.setup.setup import SetupRequest, preview, setup
from kit.model.host import Login
from kit.model.plan import Step
from kit.model.setup.areas import AREAS, Area
from kit.model.setup.paths import LOCK
from kit.model.setup.result import SetupResult
from kit.model.setup.steps import ConfigureEngine, StartEngine
from kit.model.values import replace
from kit.remote.cluster.execute import ON_HOST
from kit.remote.cluster.execution import Execution
from kit.remote.cluster.lock import Lock
from kit.remote.setup.observe import observe
from kit.remote.setup.programs import program
from kit.remote.ssh.transport import Completed, Transport
from tests.fakes.reporter import Remembering
from tests.fakes.setup_host import HeldLock, SetupHost, SetupTransport, context_of
from tests.processes import files_of_processes

DOCKER: tuple[Area, ...] = ("docker",)


@pytest.fixture(autouse=True)
def _new_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection to a VM in a folder is the same as the old one."""
    monkeypatch.setattr(
        "kit.remote.setup.steps.new_connection", lambda execution, name: execution.connect(execution.hosts[name])
    )


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[SetupHost]:
    host = SetupHost(tmp_path / "gpu1")
    yield host
    # No timer outlives its test.
    for name in ("over", "first", "second", "accepts", "end"):
        host.write(f"/fake/{name}", "")


def up(reporter: Remembering, vm: SetupHost, *areas: Area, undo: bool = False, **spec: Any) -> SetupResult:
    request = SetupRequest(areas=areas or DOCKER, undo=undo)
    return setup(context_of(reporter, vm, **spec), request)


def test_a_bare_host_gets_engine_and_compose_once(reporter: Remembering, vm: SetupHost) -> None:
    first = up(reporter, vm)
    assert [(host.status, host.engine, host.compose) for host in first.hosts] == [("ok", "26.1.5", "2.26.1")]
    assert first.hosts[0].packages == ("ca-certificates", "docker-cli", "docker-compose", "docker.io", "iptables")
    assert " --no-remove install -- docker.io" in vm.read("/opt/kit/.setup/apt.log")
    done = vm.log
    second = up(reporter, vm)
    assert not second.changed
    assert vm.log == done
    assert json.loads(vm.read("/opt/kit/.setup/audit"))["outcome"] == "done"


def test_an_entry_of_the_audit_that_a_full_disk_cut_stays_alone(reporter: Remembering, vm: SetupHost) -> None:
    audit = vm.root / "opt/kit/.setup/audit"
    audit.parent.mkdir(parents=True)
    audit.write_text('{"time": "2026-0')
    up(reporter, vm)
    cut, whole = vm.read("/opt/kit/.setup/audit").splitlines()
    assert cut == '{"time": "2026-0'
    assert json.loads(whole)["outcome"] == "done"


def test_a_dry_run_shows_the_plan_and_changes_nothing(reporter: Remembering, vm: SetupHost) -> None:
    draft = preview(context_of(reporter, vm), SetupRequest(areas=DOCKER))
    text = plantext.setup_plan(draft.plan)
    assert "install  docker.io docker-cli docker-compose ca-certificates iptables" in text
    assert vm.log == []
    assert not vm.path("/opt/kit").exists()


def test_json_has_what_the_text_leaves_open(reporter: Remembering, vm: SetupHost) -> None:
    vm.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
    pages = {"hugepages": 2}
    draft = jsonout.setup_plan(preview(context_of(reporter, vm, setup=pages), SetupRequest(areas=("hugepages",))))
    assert [step["step"] for step in draft["rounds"][0]["hosts"][0]["steps"]] == ["ReservePages"]
    (remark,) = draft["remarks"]
    assert remark["host"] == "gpu1"
    assert "the pages are gone after a reboot" in remark["text"]
    assert remark["hint"]
    vm.write("/etc/default/grub", "")
    draft = jsonout.setup_plan(preview(context_of(reporter, vm, setup=pages), SetupRequest(areas=("hugepages",))))
    assert draft["waiting"] == {"gpu1": ["2 pages of 1 GiB, if the kernel has no room for them now"]}
    vm.path("/etc/default/grub").unlink()
    result = up(reporter, vm, "hugepages", setup={"hugepages": 4})
    assert result.remarks == ()
    vm.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
    (left,) = jsonout.encode(up(reporter, vm, "hugepages", setup={"hugepages": 4}))["remarks"]
    assert "the pages are gone after a reboot" in left["text"]


def test_an_old_engine_that_works_is_kept(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine("20.10.24")
    result = up(reporter, vm)
    assert not result.changed
    assert result.hosts[0].engine == "20.10.24"


def test_an_engine_that_does_not_answer_is_started(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.path("/fake/engine").unlink()
    assert up(reporter, vm).hosts[0].steps == 2
    assert "systemctl start docker" in vm.log
    assert not any(line.startswith("install") for line in vm.log)


def test_an_engine_that_hangs_is_not_taken_for_one_that_is_missing(vm: SetupHost) -> None:
    vm.with_engine()
    vm.write("/bin/all/docker", '#!/bin/sh\n[ "$1" != version ] || exit 124\n')
    facts = observe(SetupTransport(vm), ())
    assert (facts.engine, facts.engine_fault) == ("", "it did not answer within 20 s")


def test_an_engine_whose_client_warns_is_not_taken_for_one_that_is_missing(
    reporter: Remembering, vm: SetupHost
) -> None:
    """Docker 28 about a config.json that a full disk cut. Older clients say: Error loading config file."""
    vm.with_engine()
    warning = "WARNING: Error parsing config file (/root/.docker/config.json): unexpected EOF"
    client = vm.read("/bin/all/docker").replace("#!/bin/sh\n", f"#!/bin/sh\necho '{warning}' >&2\n", 1)
    vm.write("/bin/all/docker", client)
    assert observe(SetupTransport(vm), ()).engine == "26.1.5"
    assert not up(reporter, vm).changed
    vm.path("/fake/engine").unlink()
    assert "Cannot connect" in observe(SetupTransport(vm), ()).engine_fault


def test_podmans_docker_is_known_by_its_version(vm: SetupHost) -> None:
    vm.with_engine()
    assert not observe(SetupTransport(vm), ()).podman
    vm.write("/bin/all/docker", '#!/bin/sh\n[ "$1" != --version ] || echo "podman version 5.2.2"\n')
    assert observe(SetupTransport(vm), ()).podman


def test_an_engine_whose_unit_changed_is_restarted_only_without_containers(
    reporter: Remembering, vm: SetupHost
) -> None:
    """Such as after a kit setup that was killed. Live-restore does not keep the GPUs of containers through a reload."""
    vm.with_engine()
    assert not observe(SetupTransport(vm), ()).stale_engine
    vm.write("/fake/stale-unit", "yes")
    vm.write("/fake/live-restore", "true")
    vm.write("/fake/containers", "abc\n")
    with pytest.raises(NotReadyError, match="systemd must reload to read the engine's unit again"):
        up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    assert "systemctl" not in vm.log
    vm.write("/fake/containers", "")
    assert up(reporter, vm, setup={"proxy": "http://proxy:3128"}).changed
    assert vm.log.count("systemctl daemon-reload") == 1


def test_settings_are_merged_and_everything_that_was_there_stays(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    before = b'{\n    "log-driver": "local",\n    "proxies": {"no-proxy": "x"}\n}'
    vm.write("/etc/docker/daemon.json", before.decode())
    vm.path("/etc/docker/daemon.json").chmod(0o640)
    up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    text = vm.read("/etc/docker/daemon.json")
    assert json.loads(text)["log-driver"] == "local"
    assert json.loads(text)["proxies"]["https-proxy"] == "http://proxy:3128"
    assert text.startswith('{\n    "log-driver"')
    assert vm.path("/etc/docker/daemon.json").stat().st_mode & 0o777 == 0o640
    assert not up(reporter, vm, setup={"proxy": "http://proxy:3128"}).changed

    undone = up(reporter, vm, undo=True)
    assert undone.changed
    assert vm.path("/etc/docker/daemon.json").read_bytes() == before
    assert vm.path("/etc/docker/daemon.json").stat().st_mode & 0o777 == 0o640
    assert vm.log.count("systemctl restart docker") == 2
    assert not up(reporter, vm, undo=True).changed


@pytest.mark.parametrize("link", [False, True], ids=["file", "link"])
@pytest.mark.parametrize("before", ['{"debug": false}', None], ids=["changed", "new"])
def test_settings_that_somebody_writes_meanwhile_stay(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch, before: str | None, link: bool
) -> None:
    """The administrator writes daemon.json while apt works."""
    vm.with_engine()
    path, theirs = "/etc/docker/daemon.json", '{"data-root": "/data"}'
    if before is not None:
        vm.write(path, before)
    write = ON_HOST[ConfigureEngine]

    def late(execution: Execution, transport: Transport, step: ConfigureEngine) -> None:
        vm.path(path).unlink(missing_ok=True)
        vm.write("/etc/docker/theirs.json" if link else path, theirs)
        if link:
            vm.path(path).symlink_to("theirs.json")
        write(execution, transport, step)

    with monkeypatch.context() as patch:
        steps: dict[type[Step], Any] = {**ON_HOST, ConfigureEngine: late}
        patch.setattr("kit.remote.cluster.execute.ON_HOST", steps)
        with pytest.raises(StepError, match="somebody changed it while kit setup was at work") as error:
            up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    assert (error.value.hint or "").endswith(": kit setup")
    assert vm.read(path) == theirs
    assert vm.log == []
    if not link:
        assert up(reporter, vm, setup={"proxy": "http://proxy:3128"}).changed
        assert json.loads(vm.read(path))["data-root"] == "/data"


@pytest.mark.parametrize("login", ["", "ann:secret@"])
def test_proxy_and_runtime_come_into_one_file(reporter: Remembering, vm: SetupHost, login: str) -> None:
    vm.with_engine()
    vm.with_gpu()
    vm.write("/etc/docker/daemon.json", '{"debug": false}')
    vm.write("/fake/fingerprint", "C95B321B61E88C1809C4F759DDCAE044F796ECB0")
    _key_server(vm)
    up(reporter, vm, "docker", "toolkit", setup={"proxy": f"http://{login}proxy:3128"})
    assert list(json.loads(vm.read("/etc/docker/daemon.json"))) == ["debug", "proxies", "runtimes"]
    # Each area alone would take the settings of the other one.
    areas: tuple[Area, ...] = ("docker", "toolkit")
    before = vm.read("/etc/docker/daemon.json")
    for area in areas:
        remarks = up(reporter, vm, area, undo=True).remarks
        assert vm.read("/etc/docker/daemon.json") == before
        (hint,) = [one.hint for one in remarks if "also has settings of the area" in one.text]
        assert hint == "undo both: kit setup --undo --only docker,toolkit"
    up(reporter, vm, "docker", "toolkit", undo=True)
    assert vm.read("/etc/docker/daemon.json") == '{"debug": false}'


def test_what_an_earlier_kit_has_saved_is_undone(reporter: Remembering, vm: SetupHost) -> None:
    """It wrote one area, although two had changed the file."""
    vm.with_engine()
    up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    assert vm.read("/opt/kit/.setup/files/+etc+docker+daemon.json/area") == "docker\n"
    up(reporter, vm, undo=True)
    assert not vm.path("/etc/docker/daemon.json").exists()


def test_an_engine_that_does_not_come_back_gets_its_former_settings(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.plan.setup.docker.proxies", lambda _spec: {"crash": True})
    vm.with_engine()
    before = b'{"debug": false}\n'
    vm.write("/etc/docker/daemon.json", before.decode())
    # Time passes quickly: each look at how long the VM has been up is 40 s later.
    clock, cut = f"{vm.root}/fake/now", vm.path("/tools/cut").resolve()
    passed = f"n=$(cat {clock} 2>/dev/null); n=$((${{n:-0}} + 40)); echo $n >{clock}; echo $n"
    vm.path("/tools/cut").unlink()
    vm.write("/tools/cut", f'#!/bin/sh\ncase "$*" in */proc/uptime) {passed} ;; *) exec {cut} "$@" ;; esac\n')
    vm.path("/tools/cut").chmod(0o755)
    with pytest.raises(StepError, match=r"has its former ones again\. The engine runs with them") as error:
        up(reporter, vm)
    assert "invalid storage driver" in error.value.message
    assert vm.path("/etc/docker/daemon.json").read_bytes() == before
    assert vm.path("/fake/engine").exists()


@pytest.mark.parametrize(("login", "mode"), [("", 0o644), ("ann:secret@", 0o600)])
def test_a_new_file_with_a_password_is_for_root_only(
    reporter: Remembering, vm: SetupHost, login: str, mode: int
) -> None:
    vm.with_engine()
    up(reporter, vm, setup={"proxy": f"http://{login}proxy:3128"})
    assert vm.path("/etc/docker/daemon.json").stat().st_mode & 0o777 == mode


def test_a_file_that_gets_a_password_is_for_root_only_until_the_undo(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.write("/etc/docker/daemon.json", '{"debug": false}')
    vm.path("/etc/docker/daemon.json").chmod(0o644)
    up(reporter, vm, setup={"proxy": "http://ann:secret@proxy:3128"})
    assert "ann:secret@" in vm.read("/etc/docker/daemon.json")
    assert vm.path("/etc/docker/daemon.json").stat().st_mode & 0o777 == 0o600
    up(reporter, vm, undo=True)
    assert vm.path("/etc/docker/daemon.json").stat().st_mode & 0o777 == 0o644


def test_settings_that_dockerd_refuses_change_nothing(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.plan.setup.docker.proxies", lambda _spec: {"bad-key": True})
    vm.with_engine()
    with pytest.raises(
        StepError, match="dockerd refuses the file, and nothing was changed: unable to configure: bad-key"
    ):
        up(reporter, vm)
    assert not vm.path("/etc/docker/daemon.json").exists()
    assert "systemctl restart docker" not in vm.log


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n  "debug": true,\n}', r"is not JSON: line 3, column 1"),
        ("[1]", "has no { } around its settings"),
        ("[" * 100000, "is nested too deeply|is not JSON"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(reporter: Remembering, vm: SetupHost, text: str, message: str) -> None:
    vm.with_engine()
    vm.write("/etc/docker/daemon.json", text)
    with pytest.raises(StepError, match=message):
        up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    assert vm.read("/etc/docker/daemon.json") == text


def test_a_change_that_was_killed_before_the_restart_is_finished(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    vm.write("/opt/kit/.setup/daemon.json.before.absent", "")
    restarts = vm.log.count("systemctl restart docker")
    assert up(reporter, vm, setup={"proxy": "http://proxy:3128"}).changed
    assert vm.log.count("systemctl restart docker") == restarts + 1
    assert not up(reporter, vm, setup={"proxy": "http://proxy:3128"}).changed


def test_packages_of_an_interrupted_installation_are_kits(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.write("/opt/kit/.setup/before", "base-files\n")
    vm.write("/opt/kit/.setup/before.area", "docker\n")
    vm.write("/fake/packages", "base-files 13 installed\ndocker.io 26.1.5 half-configured\n")
    up(reporter, vm)
    assert vm.read("/opt/kit/.setup/packages") == "docker.io docker\n"
    assert not vm.path("/opt/kit/.setup/before").exists()


def test_containers_that_a_restart_would_end_prevent_it(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.write("/fake/containers", "abc\ndef\n")
    assert not up(reporter, vm).changed
    with pytest.raises(NotReadyError, match="2 containers run, and kit setup would restart the engine"):
        up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    assert vm.log == []


@pytest.mark.parametrize("answers", ["version", ""], ids=["hangs at ps", "hangs"])
def test_an_engine_that_hangs_does_not_hide_its_containers(reporter: Remembering, vm: SetupHost, answers: str) -> None:
    vm.with_engine()
    client = vm.read("/bin/all/docker").replace(
        "case $1 in", f"case $1 in '{answers}' | --*) ;; *) exit 124 ;; esac\ncase $1 in"
    )
    vm.write("/bin/all/docker", client)
    assert not up(reporter, vm).changed if answers else observe(SetupTransport(vm), ()).running == 0
    for number, name in {7: "containerd", 8: "containerd-shim", 9: "containerd-shim", 10: "bash"}.items():
        vm.write(f"/proc/{number}/comm", f"{name}\n")
    facts = observe(SetupTransport(vm), ())
    assert (bool(facts.engine), facts.running) == (bool(answers), 2)
    with pytest.raises(NotReadyError, match="2 containers run, and kit setup would restart the engine") as error:
        up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    assert ("pgrep -a containerd-shim" in (error.value.hint or "")) is not bool(answers)
    vm.write("/fake/stale-unit", "yes")
    for argv in (_reboot(), program("unit", "clocks", "kit-gpu-clocks.service")):
        done = vm.run(argv, b"", 10)
        assert (done.code, "containers run" in done.error_text) == (1, True)
    assert vm.log == []


def test_a_killed_installation_goes_on(reporter: Remembering, vm: SetupHost) -> None:
    vm.write("/fake/packages", "base-files 13 installed\ndocker.io 26.1.5 half-configured\n")
    up(reporter, vm)
    assert vm.log.index("configure") < vm.log.index("update")
    # dkms may build for minutes there. Without a fraction, it would be on terminals only.
    assert [
        step.fraction for step in reporter.of(HostStep) if step.text == "finishing an interrupted installation"
    ] == [0]
    assert not up(reporter, vm).changed


def test_a_package_without_checksums_is_no_interrupted_installation(reporter: Remembering, vm: SetupHost) -> None:
    """dpkg --audit names both."""
    assert up(reporter, vm).changed
    assert not [step for step in reporter.of(HostStep) if "interrupted" in step.text]


def test_the_end_of_a_command_that_a_killed_kit_started_is_not_that_of_another(
    reporter: Remembering, vm: SetupHost
) -> None:
    vm.write("/fake/orphan", "100\n")
    assert up(reporter, vm).hosts[0].engine == "26.1.5"
    assert not vm.path("/fake/orphan").exists()


@pytest.mark.parametrize(
    ("phase", "log", "message"),
    [
        ("update", "Err:1 http://deb.example x\n  Temporary failure resolving 'deb.example'", "resolve the name deb"),
        ("update", "E: Failed to fetch http://deb.example/x  407  Proxy Authentication Required", "apt's proxy ref"),
        ("update", "E: Failed to fetch http://deb.example/x  Invalid response from proxy: HTTP 403", "apt's proxy ref"),
        ("update", "E: Failed to fetch http://deb.example/x  Unsupported proxy configured: ftp://x", "apt's proxy ref"),
        # Mirrors of Nexus and Artifactory are often called so.
        ("update", "E: Failed to fetch http://m.example/debian-proxy/Release  404  Not Found", "does not exist .404"),
        ("update", "W: Failed to fetch http://apt-proxy.example/x  Could not connect to apt-proxy.example:3142 "
         "(10.0.0.9). - connect (111: Connection refused)", "connect to apt-proxy.example:3142$"),
        ("update", "E: Conflicting values set for option Signed-By regarding source http://x", "same repository"),
        ("update", "E: Failed to fetch http://deb.example/dists/x/Release  404  Not Found", "does not exist .404"),
        ("update", "W: GPG error: http://x stable InRelease: EXPKEYSIG 1A2B", "checked: http://x stable InRel"),
        # The words of apt 3, on Debian 13.
        ("update", "W: OpenPGP signature verification failed: http://x ./ InRelease: Sub-process /usr/bin/sqv returned "
         "an error code (1), error message is: Missing key 6E5C\nE: The repository 'http://x ./ InRelease' is not "
         "signed.", "signature cannot be checked: http://x ./ InRelease"),
        ("update", "W: OpenPGP signature verification failed: http://x ./ InRelease: Sub-process /usr/bin/sqv returned "
         "an error code (1), error message is: Verifying signature:    Not live until 2026-12-01", "clock is behind"),
        ("update", "E: Release file for http://x/InRelease is not valid yet (invalid for another 2d 23h 59min 19s). "
         "Updates for this repository will not be applied.", "clock is behind"),
        ("update", "E: Failed to fetch https://x/y  Certificate verification failed: The certificate is NOT trusted. "
         "The certificate chain uses not yet valid certificate.", "clock is behind"),
        ("install", "The following packages will be REMOVED:\n  moby-cli\n  moby-engine\n0 upgraded\n"
         "E: Packages need to be removed but remove is disabled.", "of the host for that: moby-cli moby-engine$"),
        ("install", "E: Unable to locate package docker.io", "no repository of the host has the package docker.io"),
        ("install", "E: Unable to locate package linux-modules-nvidia-580-6.8.0-9-generic", "only the newest kernels"),
        ("install", "E: You don't have enough free space in /var/cache/apt/archives/.", "its disk is full"),
        ("install", "Error! Bad return status for module build on kernel: 6.12.118+deb13-amd64 (x86_64)\n"
         "Consult /var/lib/dkms/nvidia-current/550.163.01/build/make.log for more information.\n"
         "dpkg: error processing package nvidia-kernel-dkms (--configure):", "dkms cannot build a module"),
        ("install", "dpkg: error processing package docker.io (--configure):\n exit status 1", "cannot configure dock"),
    ],
)  # fmt: skip
def test_a_failure_of_apt_names_its_first_cause(
    reporter: Remembering, vm: SetupHost, phase: str, log: str, message: str
) -> None:
    vm.write("/fake/apt-install-fails", "E: Unable to locate package docker.io")
    vm.write(f"/fake/apt-{phase}-fails", log)
    with pytest.raises(StepError, match=message) as error:
        up(reporter, vm)
    assert error.value.host == "gpu1"
    assert error.value.hint
    assert len(error.value.message) < 400
    for name in ("update", "install"):
        vm.path(f"/fake/apt-{name}-fails").unlink(missing_ok=True)
    assert up(reporter, vm).hosts[0].engine == "26.1.5"


def test_a_broken_repository_prevents_no_packages_of_others(reporter: Remembering, vm: SetupHost) -> None:
    broken = "W: GPG error: http://x stable InRelease: EXPKEYSIG 1A2B\n"
    vm.write("/fake/apt-update-fails", broken)
    assert up(reporter, vm).hosts[0].engine == "26.1.5"
    # A failure that has nothing to do with it has its own cause.
    vm.write("/fake/packages", "base-files 13 installed\n")
    vm.path("/fake/engine").unlink()
    vm.write("/fake/apt-install-fails", "dpkg: error processing package docker.io (--configure):\n exit status 1")
    with pytest.raises(StepError, match=r"dpkg cannot configure docker\.io"):
        up(reporter, vm)


def test_somebody_elses_apt_is_waited_for_and_named(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.remote.setup.steps.APT_LOCK_S", 0)
    vm.write("/var/lib/dpkg/lock-frontend", "")
    inode = vm.path("/var/lib/dpkg/lock-frontend").stat().st_ino
    vm.write("/proc/locks", f"1: POSIX  ADVISORY  WRITE 77 00:2c:{inode} 0 EOF\n")
    vm.write("/proc/77/comm", "unattended-upgr\n")
    with pytest.raises(StepError, match=r"held by process 77 \(unattended-upgr\)"):
        up(reporter, vm)
    vm.path("/proc/locks").unlink()
    assert up(reporter, vm).changed


@pytest.mark.parametrize("phase", ["update", "install"])
def test_a_lock_that_is_taken_between_two_commands_is_waited_for(
    reporter: Remembering, vm: SetupHost, phase: str
) -> None:
    vm.write(f"/fake/lock-{phase}", "taken\ntaken\n")
    assert up(reporter, vm).hosts[0].engine == "26.1.5"
    assert [line.split()[0] for line in vm.log if line.startswith(phase)] == [phase] * 3


def test_a_lock_that_stays_taken_is_the_cause(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.remote.setup.steps.APT_LOCK_S", 0)
    vm.write("/fake/lock-install", "taken\n" * 9)
    with pytest.raises(StepError, match=r"another program holds apt's lock: process 77 \(unattended-upgr\)"):
        up(reporter, vm)


def test_another_operator_is_named(reporter: Remembering, vm: SetupHost) -> None:
    with pytest.raises(NotReadyError, match="ann@laptop holds this host's lock of kit setup"):
        setup(context_of(reporter, vm, held_by="ann@laptop"), SetupRequest(areas=DOCKER))
    assert vm.log == []


def test_one_host_that_fails_does_not_stop_the_others(reporter: Remembering, tmp_path: Path) -> None:
    vms = [SetupHost(tmp_path / f"gpu{number}", number) for number in (1, 2)]
    vms[0].write("/fake/apt-install-fails", "E: Unable to locate package docker.io")
    with pytest.raises(StepError, match="no repository of the host"):
        setup(context_of(reporter, *vms), SetupRequest(areas=DOCKER))
    assert vms[1].path("/fake/engine").exists()


def test_a_host_that_cannot_be_reached_changes_nothing_anywhere(reporter: Remembering, tmp_path: Path) -> None:
    vms = [SetupHost(tmp_path / f"gpu{number}", number) for number in (1, 2)]
    vms[1].unreachable = True
    with pytest.raises(KitError):
        setup(context_of(reporter, *vms), SetupRequest(areas=DOCKER))
    assert vms[0].log == []


def test_kernel_settings_are_raised_and_come_back(reporter: Remembering, vm: SetupHost) -> None:
    vm.write("/proc/sys/net/core/wmem_max", "134217728\n")
    vm.write("/etc/sysctl.d/90-kit.conf", "somebody's own\n")
    up(reporter, vm, "sysctl")
    assert vm.read("/proc/sys/net/core/rmem_max") == "67108864\n"
    assert vm.read("/proc/sys/net/core/wmem_max") == "134217728\n", "kit lowers nothing"
    assert vm.read("/proc/sys/net/ipv4/tcp_rmem") == "4096 131072 67108864\n"
    text = vm.read("/etc/sysctl.d/90-kit.conf")
    assert "net.ipv4.tcp_slow_start_after_idle = 0" in text
    assert "gc_thresh" not in text, "this kernel has no such key"
    assert "rp_filter" not in text, "it has one card"
    assert "memlock unlimited" in vm.read("/etc/security/limits.d/90-kit.conf")
    assert not up(reporter, vm, "sysctl").changed

    up(reporter, vm, "sysctl", undo=True)
    assert vm.read("/proc/sys/net/core/rmem_max") == "212992\n"
    assert vm.read("/etc/sysctl.d/90-kit.conf") == "somebody's own\n"
    assert not vm.path("/etc/security/limits.d/90-kit.conf").exists()
    assert list(vm.path("/opt/kit/.setup/files").iterdir()) == []
    assert list(vm.path("/opt/kit/.setup/values").iterdir()) == []


def test_later_files_of_kernel_settings_are_read(vm: SetupHost) -> None:
    vm.write(
        "/etc/sysctl.conf",
        "# a comment\nnet.core.rmem_max=16777216\n-net/ipv4/tcp_rmem = 4096\t87380  16777216\nvm.x = 1\n",
    )
    vm.path("/etc/sysctl.d").mkdir()
    vm.path("/etc/sysctl.d/99-sysctl.conf").symlink_to("../sysctl.conf")
    vm.write("/usr/lib/sysctl.d/99-sysctl.conf", "net.core.rmem_max = 1\n")
    vm.write("/usr/lib/sysctl.d/99-z.conf", "net.core.wmem_max = 2\n")
    vm.write("/etc/sysctl.d/10-early.conf", "net.core.wmem_max = 3\n")
    vm.write("/proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n")
    facts = observe(SetupTransport(vm), ("net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem"))
    assert facts.later_settings == {
        "net.core.rmem_max": ("/etc/sysctl.d/99-sysctl.conf", "16777216"),
        "net.core.wmem_max": ("/usr/lib/sysctl.d/99-z.conf", "2"),
        "net.ipv4.tcp_rmem": ("/etc/sysctl.d/99-sysctl.conf", "4096 87380 16777216"),
    }
    assert facts.memory_kib == 16384000


@pytest.mark.parametrize(
    ("of_all", "of_eth1", "loosened"), [("1", "0", True), ("0", "1", True), ("0", "0", False), ("2", "1", False)]
)
def test_packets_may_come_in_by_any_of_several_cards(
    reporter: Remembering, vm: SetupHost, of_all: str, of_eth1: str, loosened: bool
) -> None:
    """The kernel takes the larger value: that of "all", or that of the interface."""
    vm.write("/sys/class/net/eth1/mtu", "1500\n")
    vm.write(
        "/fake/addresses",
        "2: eth0    inet 10.0.0.1/24 scope global eth0\n3: eth1    inet 10.0.0.2/24 scope global eth1\n",
    )
    for name, value in {"all": of_all, "eth0": "0", "eth1": of_eth1}.items():
        vm.write(f"/proc/sys/net/ipv4/conf/{name}/rp_filter", f"{value}\n")
    up(reporter, vm, "sysctl")
    assert ("net.ipv4.conf.all.rp_filter = 2" in vm.read("/etc/sysctl.d/90-kit.conf")) is loosened
    assert vm.read("/proc/sys/net/ipv4/conf/all/rp_filter").strip() == ("2" if loosened else of_all)
    assert not up(reporter, vm, "sysctl").changed


def test_a_file_that_somebody_changed_since_stays(reporter: Remembering, vm: SetupHost) -> None:
    up(reporter, vm, "sysctl")
    vm.write("/etc/sysctl.d/90-kit.conf", "mine\n")
    up(reporter, vm, "sysctl", undo=True)
    assert vm.read("/etc/sysctl.d/90-kit.conf") == "mine\n"
    assert any("was changed after kit setup wrote it" in warning.text for warning in reporter.warnings)


def test_an_undo_keeps_what_was_added_between_two_setups(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    path = "/etc/docker/daemon.json"
    vm.write(path, '{"debug": false}')
    up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    vm.write(path, json.dumps({**json.loads(vm.read(path)), "data-root": "/data"}))
    assert up(reporter, vm, setup={"proxy": "http://other:3128"}).changed
    assert up(reporter, vm, setup={"proxy": "http://third:3128"}).changed
    before = vm.read(path)
    up(reporter, vm, undo=True)
    assert vm.read(path) == before
    assert json.loads(before)["data-root"] == "/data"
    assert any("was changed after kit setup wrote it" in warning.text for warning in reporter.warnings)


def test_an_undo_gives_back_the_original_after_several_setups(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.write("/etc/docker/daemon.json", '{"debug": false}')
    for port in (1, 2, 3):
        up(reporter, vm, setup={"proxy": f"http://proxy:{port}"})
    up(reporter, vm, undo=True)
    assert vm.read("/etc/docker/daemon.json") == '{"debug": false}'


def test_a_confirmed_mtu_stays(reporter: Remembering, vm: SetupHost) -> None:
    vm.write("/fake/sleep", "/fake/over")
    up(reporter, vm, "mtu", setup={"mtu": 9000})
    assert vm.read("/sys/class/net/eth0/mtu") == "9000\n"
    assert any("a reboot forgets the MTU" in warning.text for warning in reporter.warnings)
    vm.write("/fake/over", "")
    _until(lambda: not _alive(vm))
    assert vm.read("/sys/class/net/eth0/mtu") == "9000\n"
    assert not up(reporter, vm, "mtu", setup={"mtu": 9000}).changed
    vm.write("/fake/sleep", "/fake/end")
    up(reporter, vm, "mtu", undo=True)
    vm.write("/fake/end", "")
    _until(lambda: not _alive(vm))
    assert vm.read("/sys/class/net/eth0/mtu") == "1500\n"


def test_an_mtu_without_a_confirmation_goes_back(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut(SetupTransport):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            raise StepError("a command did not end within 30 s", host="gpu1")

    monkeypatch.setattr("kit.remote.setup.steps.new_connection", lambda *_: Cut(vm))
    with pytest.raises(StepError, match="the MTU of eth0 is not confirmed") as error:
        up(reporter, vm, "mtu", setup={"mtu": 9000})
    assert "changes it back 60 s after the change" in (error.value.hint or "")
    _until(lambda: vm.read("/sys/class/net/eth0/mtu") == "1500\n")


def test_an_mtu_that_nobody_confirmed_does_not_become_permanent(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again, while the first timer still runs."""
    vm.write("/fake/sleep", "/fake/first")
    vm.write("/fake/manager", "ifupdown")
    vm.write("/etc/network/interfaces", "auto eth0\n")
    (vm.root / "bin" / "ifup").symlink_to(vm.root / "bin" / "ip")
    kept = vm.path("/etc/network/if-up.d/kit-mtu")
    with monkeypatch.context() as patch:
        patch.setattr("kit.remote.setup.steps.confirm_mtu", _cut)
        for _ in range(2):
            with pytest.raises(StepError, match="the MTU of eth0 is not confirmed"):
                up(reporter, vm, "mtu", setup={"mtu": 9000})
            assert vm.read("/sys/class/net/eth0/mtu") == "9000\n"
            assert not kept.exists()
            vm.write("/fake/sleep", "/fake/second")
    vm.write("/fake/second", "")
    # The second timer leads back to what was before the first change.
    _until(lambda: vm.read("/sys/class/net/eth0/mtu") == "1500\n")
    vm.write("/fake/first", "")
    _until(lambda: not _alive(vm))
    assert vm.read("/sys/class/net/eth0/mtu") == "1500\n"


def change_unconfirmed(reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the MTU to 9000, and break the connection over which kit confirms that."""
    with monkeypatch.context() as patch:
        patch.setattr("kit.remote.setup.steps.confirm_mtu", _cut)
        with pytest.raises(StepError, match="is not confirmed"):
            up(reporter, vm, "mtu", setup={"mtu": 9000})


@pytest.mark.parametrize("least", [9001, 1500], ids=["at once", "by the timer"])
def test_a_later_mtu_that_the_card_refuses_leaves_the_way_back_of_an_earlier_one(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    vm.write("/fake/sleep", "/fake/accepts")
    change_unconfirmed(reporter, vm, monkeypatch)
    refuses = f'case "$*" in "link set "*) [ "$6" -lt {least} ] || [ -e $root/fake/accepts ] || exit 2 ;; esac'
    vm.write("/bin/ip", vm.read("/bin/ip").replace("case", f"{refuses}\ncase", 1))
    with pytest.raises(StepError, match="refuses an MTU of 9100 on eth0"):
        up(reporter, vm, "mtu", setup={"mtu": 9100})
    assert (vm.read("/sys/class/net/eth0/mtu") == "1500\n") is (least == 9001)
    vm.write("/fake/accepts", "")
    _until(lambda: vm.read("/sys/class/net/eth0/mtu") == "1500\n")
    _until(lambda: not list(vm.path("/opt/kit/.setup/mtu/eth0").iterdir()))


def test_an_mtu_for_which_no_file_fits_keeps_the_way_back_of_an_earlier_one(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm.write("/fake/sleep", "/fake/over")
    change_unconfirmed(reporter, vm, monkeypatch)
    # A folder in place of the file cannot be written, as on a full disk.
    vm.path("/opt/kit/.setup/mtu/eth0/second").mkdir()
    assert vm.run(program("mtu", "mtu", "eth0", "4000", "1", "second"), b"", 10).code == 1
    vm.write("/fake/over", "")
    _until(lambda: vm.read("/sys/class/net/eth0/mtu") == "1500\n")


def test_an_earlier_timer_does_not_undo_a_later_mtu(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm.write("/fake/sleep", "/fake/over")
    change_unconfirmed(reporter, vm, monkeypatch)
    up(reporter, vm, "mtu", setup={"mtu": 4000})
    vm.write("/fake/over", "")
    _until(lambda: not _alive(vm))
    assert vm.read("/sys/class/net/eth0/mtu") == "4000\n"
    assert list(vm.path("/opt/kit/.setup/mtu/eth0").iterdir()) == []
    assert not up(reporter, vm, "mtu", setup={"mtu": 4000}).changed
    vm.write("/fake/sleep", "/fake/end")
    up(reporter, vm, "mtu", undo=True)
    vm.write("/fake/end", "")
    _until(lambda: not _alive(vm))
    assert vm.read("/sys/class/net/eth0/mtu") == "1500\n"


def test_a_confirmation_of_another_change_is_refused(vm: SetupHost) -> None:
    vm.write("/fake/sleep", "/fake/over")
    for token in ("first", "second"):
        vm.run(program("mtu", "mtu", "eth0", "9000", "1", token), b"", 10)
    assert vm.run(program("mtu_confirm", "eth0", "9000", "first"), b"x", 10).code == 1
    assert vm.run(program("mtu_confirm", "eth0", "9000", "second"), b"x", 10).code == 0
    vm.write("/fake/over", "")
    _until(lambda: not _alive(vm))
    assert vm.read("/sys/class/net/eth0/mtu") == "9000\n"


@pytest.mark.parametrize(
    ("manager", "path", "content"),
    [
        ("netplan", "/etc/netplan/90-kit-mtu.yaml", "    id0:\n      mtu: 9000\n"),
        (
            "systemd-networkd",
            "/etc/systemd/network/10-netplan-id0.network.d/90-kit-mtu.conf",
            "[Link]\nMTUBytes=9000\n",
        ),
        ("NetworkManager", "/etc/NetworkManager/dispatcher.d/90-kit-mtu", "ip link set dev eth0 mtu 9000"),
        ("ifupdown", "/etc/network/if-up.d/kit-mtu", "ip link set dev eth0 mtu 9000"),
    ],
)
def test_an_mtu_is_kept_in_the_way_of_the_network_manager(
    reporter: Remembering, vm: SetupHost, manager: str, path: str, content: str
) -> None:
    vm.write("/fake/sleep", "/fake/over")
    vm.write("/fake/manager", manager)
    vm.write("/run/systemd/netif/links/2", "NETWORK_FILE=/run/systemd/network/10-netplan-id0.network\n")
    if manager == "netplan":
        vm.write("/etc/netplan/50-cloud-init.yaml", "network: {}\n")
        vm.write("/sys/class/net/eth0/device/vendor", "0x1af4\n")
        (vm.root / "bin" / "netplan").symlink_to(vm.root / "bin" / "ip")
    if manager == "ifupdown":
        vm.write("/etc/network/interfaces", "auto eth0\n")
        (vm.root / "bin" / "ifup").symlink_to(vm.root / "bin" / "ip")
    folder = vm.path(path).parent
    was_there = folder.exists()
    up(reporter, vm, "mtu", setup={"mtu": 9000})
    assert content in vm.read(path)
    assert not up(reporter, vm, "mtu", setup={"mtu": 9000}).changed
    up(reporter, vm, "mtu", undo=True)
    assert not vm.path(path).exists()
    assert folder.exists() is was_there


@pytest.mark.parametrize(("before", "since"), [(True, ()), (False, ("mine.conf",))])
def test_an_undo_leaves_a_folder_that_is_not_kits_alone(
    reporter: Remembering, vm: SetupHost, before: bool, since: tuple[str, ...]
) -> None:
    vm.write("/fake/sleep", "/fake/over")
    vm.write("/fake/manager", "systemd-networkd")
    vm.write("/run/systemd/netif/links/2", "NETWORK_FILE=/run/systemd/network/10-netplan-id0.network\n")
    folder = vm.path("/etc/systemd/network/10-netplan-id0.network.d")
    if before:
        folder.mkdir(parents=True)
    up(reporter, vm, "mtu", setup={"mtu": 9000})
    for name in since:
        (folder / name).touch()
    up(reporter, vm, "mtu", undo=True)
    assert [path.name for path in folder.iterdir()] == list(since)


def test_a_host_with_a_gpu_gets_driver_toolkit_and_clocks(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_gpu()
    vm.write("/fake/fingerprint", "C95B321B61E88C1809C4F759DDCAE044F796ECB0")
    _key_server(vm)
    result = up(reporter, vm, *AREAS)
    assert result.hosts[0].waiting == ()
    assert vm.read("/etc/apt/sources.list.d/kit-non-free.sources").startswith(
        "Types: deb\nURIs: http://deb.example/debian\nSuites: trixie\nComponents: contrib non-free non-free-firmware\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.pgp\n"
    )
    assert "Unattended-Upgrade::Package-Blacklist" in vm.read("/etc/apt/apt.conf.d/90kit-nvidia")
    assert json.loads(vm.read("/etc/docker/daemon.json"))["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    assert vm.read("/etc/apt/keyrings/kit-nvidia.asc") == "the key\n"
    assert "systemctl enable --no-reload kit-gpu-clocks.service" in vm.log
    assert vm.read("/fake/gpus") == "0, Enabled, 2619, 1980, 2619, 1980\n"
    assert not up(reporter, vm, *AREAS).changed

    up(reporter, vm, *AREAS, undo=True)
    assert not vm.path("/etc/systemd/system/kit-gpu-clocks.service").exists()
    assert not vm.path("/etc/docker/daemon.json").exists()
    assert "systemctl stop kit-gpu-clocks.service" in vm.log
    assert "systemctl disable --no-reload kit-gpu-clocks.service" in vm.log
    # A reload of systemd takes the GPUs from running containers.
    assert "systemctl daemon-reload" not in vm.log


def test_systemd_reloads_for_clocks_only_without_containers(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.with_gpu()
    vm.with_driver()
    vm.write("/fake/stale-unit", "yes")
    vm.write("/fake/containers", "abc\n")
    with pytest.raises(StepError, match="containers run, and systemd must reload"):
        up(reporter, vm, "clocks")
    assert "systemctl daemon-reload" not in vm.log
    vm.write("/fake/containers", "")
    assert up(reporter, vm, "clocks").changed
    assert "systemctl daemon-reload" in vm.log


@pytest.mark.parametrize(
    ("script", "clocks", "fault"),
    [
        ("echo 'WARNING: infoROM is corrupted at gpu 0'; cat $root/fake/gpus; exit 14", 1, ""),
        ("echo 'warning: x' >&2; cat $root/fake/gpus", 1, ""),
        ("echo 'No devices were found'", 0, "No devices were found"),
        ("exit 124", 0, "nvidia-smi did not answer within 60 s"),
        (
            "case $1 in *applications*) echo 'Field x is not a valid field'; exit 2; esac; echo '0, Disabled'",
            1,
            "",
        ),
    ],
    ids=["infoROM", "stderr", "none", "late", "fields"],
)
def test_other_lines_of_nvidia_smi_are_no_gpus(vm: SetupHost, script: str, clocks: int, fault: str) -> None:
    vm.with_gpu()
    vm.with_driver()
    vm.write("/bin/all/nvidia-smi", f"#!/bin/sh\nroot={vm.root}\n{script}\n")
    vm.write("/sys/bus/pci/devices/0000:17:00.0/device", "0x2330\n")
    facts = observe(SetupTransport(vm), ())
    assert (len(facts.clocks), facts.driver_fault, facts.smi_late) == (clocks, fault, "124" in script)
    assert all(gpu.persistence is False for gpu in facts.clocks)
    assert (facts.gpus_on_bus, facts.gpu_ids, facts.smi) == (1, (0x2330,), True)


def test_what_dkms_has_built_and_the_firmware_accepts_is_read(vm: SetupHost) -> None:
    """Debian's module is nvidia-current.ko.xz."""
    vm.with_gpu()
    vm.write("/lib/modules/6.12.118+deb13-amd64/updates/dkms/nvidia-current.ko.xz", "")
    vm.write("/lib/modules/6.12.90+deb13-amd64/updates/dkms/zfs.ko.xz", "")
    vm.write("/lib/modules/6.12.91+deb13-amd64/updates/dkms/nvidia-fs.ko", "")
    vm.write("/lib/modules/6.12.92+deb13-amd64/updates/dkms/nvidia.ko.zst", "")
    vm.write("/fake/packages", "linux-headers-amd64 6.12.118-1 installed\nlinux-headers-6.12.118 1 installed\n")
    variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    vm.write(variable, "\x06\0\0\0\1")
    assert observe(SetupTransport(vm), ()).secure_boot
    vm.write(variable, "\x06\0\0\0\0")
    facts = observe(SetupTransport(vm), ())
    assert not facts.secure_boot
    assert facts.module_kernels == ("6.12.118+deb13-amd64", "6.12.92+deb13-amd64")
    assert facts.packages == {"linux-headers-amd64": "6.12.118-1"}


def test_sources_of_packages_have_the_options_of_their_files(vm: SetupHost) -> None:
    """apt has no name for them: kit reads them where apt says that the source is."""
    folder = "/etc/apt/sources.list.d"
    vm.write(
        f"{folder}/a.sources",
        "# a comment\n\nEnabled: no\nTypes: deb\nURIs: http://x/debian\n\n# more\nTypes: deb\nURIs: http://a/debian\n"
        "signed-by:\n /k.pgp,\n /l.pgp\nTrusted: yes\n\n"
        "Types: deb\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n",
    )
    vm.write(f"{folder}/b.list", "\ndeb [arch=amd64 signed-by=/n.gpg check-valid-until=no] https://b/ $(ARCH) /\n")
    vm.write(
        "/fake/sources",
        f"source|http://a/debian/|trixie|main|{folder}/a.sources:2\nsource|http://c/|trixie|main|{folder}/a.sources:3\n"
        f"source|https://b/||$(COMPONENT)|{folder}/b.list:2\n",
    )
    vm.write("/fake/origins", "origin|http://a/debian/|trixie|Debian\norigin|https://b/||$(ORIGIN)\n")
    a, c, b = observe(SetupTransport(vm), ()).sources
    assert (a.place, a.component, a.origin) == (("http://a/debian", "trixie"), "main", "Debian")
    assert a.options == (("signed-by", "/k.pgp,/l.pgp"), ("trusted", "yes"))
    assert (b.place, b.component, b.origin, b.file) == (("https://b", "/"), "", "", f"{folder}/b.list")
    assert b.options == (("signed-by", "/n.gpg"), ("check-valid-until", "no"))
    assert c.options == (("signed-by", "inline"),)


def test_a_replaced_key_of_a_repository_is_refused(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.with_gpu()
    _key_server(vm)
    vm.write("/fake/fingerprint", "0" * 40)
    with pytest.raises(StepError, match=f"has the fingerprint {'0' * 40}, not C95B"):
        up(reporter, vm, "toolkit")
    assert not vm.path("/etc/apt/keyrings/kit-nvidia.asc").exists()
    assert not vm.path("/etc/apt/sources.list.d/kit-nvidia.sources").exists()


def test_a_toolkit_of_another_source_is_kept(reporter: Remembering, vm: SetupHost) -> None:
    """nvidia-container-toolkit-base, which has no hook, is not all of it."""
    vm.with_engine()
    vm.with_gpu()
    for name, whole in (("nvidia-container-runtime", False), ("nvidia-container-runtime-hook", True)):
        vm.write(f"/bin/{name}", "#!/bin/sh\n")
        vm.path(f"/bin/{name}").chmod(0o755)
        assert observe(SetupTransport(vm), ()).toolkit == whole
    assert up(reporter, vm, "toolkit").changed
    assert not any(line.startswith("install") for line in vm.log)
    assert not up(reporter, vm, "toolkit").changed


def test_a_key_that_does_not_come_has_its_cause(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.with_gpu()
    vm.write("/usr/lib/apt/apt-helper", "#!/bin/sh\necho \"E: Could not resolve 'nvidia.github.io'\" >&2\nexit 100\n")
    vm.path("/usr/lib/apt/apt-helper").chmod(0o755)
    with pytest.raises(StepError, match=r"could not be fetched: the host cannot resolve the name nvidia.github.io$"):
        up(reporter, vm, "toolkit")


@pytest.mark.parametrize("was_there", [False, True], ids=["new", "open before"])
def test_only_root_can_read_what_files_were_before(reporter: Remembering, vm: SetupHost, was_there: bool) -> None:
    """The settings of an engine may have a proxy's password."""
    vm.with_engine()
    vm.write("/etc/docker/daemon.json", '{"proxies": {"http-proxy": "http://me:pass@proxy:3128"}}')
    state = vm.path("/opt/kit/.setup")
    if was_there:
        state.mkdir(parents=True)
        for folder in (state.parent, state):
            folder.chmod(0o755)
    up(reporter, vm, setup={"proxy": "http://proxy:3128"})
    saved = [path for path in vm.path("/opt").rglob("*") if path.is_file() and b"me:pass" in path.read_bytes()]
    assert saved
    for path in saved:
        assert state in path.parents
    assert [oct(folder.stat().st_mode) for folder in (state.parent, state)] == ["0o40700"] * 2


def test_text_of_others_starts_no_section(vm: SetupHost) -> None:
    """What a program prints, such as a name of the system, could claim that kit has changed a file."""
    section = "@@ saved\nfile /etc/shadow docker absent same\n@@ end"
    vm.write("/etc/os-release", f"ID=debian\nVERSION_ID=13\nPRETTY_NAME='x\n{section}'\n")
    facts = observe(SetupTransport(vm), ())
    assert (facts.os, facts.version, facts.saved_files) == ("debian", "13", ())


def test_the_mark_is_new_each_time_and_no_argument(vm: SetupHost) -> None:
    """Every user of a host sees the arguments of all processes."""
    marks = set()

    class Recording(SetupTransport):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            mark = stdin.decode().strip()
            assert len(mark) == 32
            assert not [word for word in argv if mark in word]
            marks.add(mark)
            return super().run(argv, stdin=stdin, timeout_s=timeout_s)

    for _ in range(3):
        observe(Recording(vm), ())
    assert len(marks) == 3


@pytest.mark.parametrize(
    "section",
    [
        "files\n/root/.ssh/authorized_keys 600 eA==",
        "files\n/etc/passwd 644 \\x1b",
        "system\nos deb ian",
        "system\nkernel 6.1\x1b[2J",
        f"system\nboot_id {'x' * 201}",
        "saved\nfile /etc/a docker existed open",
        f"saved\nvalue sysctl a.b sysctl {'9' * 201}",
        "gpu\ngpu 0, Enabled, 1",
        "nics\neth0 9000x yes",
    ],
    ids=range(9),
)
def test_an_odd_state_is_that_hosts_error(vm: SetupHost, section: str) -> None:
    class Odd(SetupTransport):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            mark = stdin.decode().strip()
            return Completed(code=0, stdout=f"@@ {mark} {section}\n@@ {mark} end\n".encode(), stderr=b"")

    with pytest.raises(AnswerError) as caught:
        observe(Odd(vm), ())
    assert caught.value.host == "gpu1"
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("line", "message"),
    [("x" * 5000, "more than 4000 bytes"), ("@@ {mark} kernel\n" + "a b\n" * 300, "more than 200 lines")],
    ids=["bytes", "lines"],
)
def test_a_state_without_an_end_is_that_hosts_error(
    vm: SetupHost, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.setattr("kit.remote.setup.observe.MOST_BYTES", 4000)
    monkeypatch.setattr("kit.remote.setup.observe._MOST_LINES", 200)

    class Flooding(SetupTransport):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            mark = stdin.decode().strip()
            text = f"{line}\n@@ {{mark}} end\n".replace("{mark}", mark)
            return Completed(code=0, stdout=text.encode(), stderr=b"")

    with pytest.raises(AnswerError, match=message) as caught:
        observe(Flooding(vm), ())
    assert caught.value.host == "gpu1"


def test_a_driver_that_cannot_be_loaded_waits_for_a_reboot(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.remote.setup.steps._POLL_S", 0.01)
    vm.with_gpu()
    vm.write("/fake/old-module", "")
    first = up(reporter, vm, "driver", "clocks")
    assert "reboot" in " ".join(warning.text for warning in reporter.warnings)
    assert first.hosts[0].waiting == ("the driver: NVIDIA-SMI has failed because it couldn't communicate",)
    assert not up(reporter, vm, "driver", "clocks").changed

    request = SetupRequest(areas=("driver", "clocks"), reboot=True)
    done = setup(context_of(reporter, vm), request)
    assert "systemctl reboot" in vm.log
    assert done.hosts[0].waiting == ()
    assert vm.read("/fake/gpus").startswith("0, Enabled, 2619, 1980")
    assert not setup(context_of(reporter, vm), request).changed


def test_a_reboot_that_does_not_help_is_not_repeated(
    reporter: Remembering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.remote.setup.steps._POLL_S", 0.01)
    vms = [SetupHost(tmp_path / f"gpu{number}", number) for number in (1, 2)]
    for vm in vms:
        vm.with_gpu()
        vm.write("/fake/old-module", "")
    # Secure Boot refuses the module also after the reboot.
    vms[0].write("/fake/refused-module", "")
    request = SetupRequest(areas=("driver", "clocks"), reboot=True)
    with pytest.raises(StepError, match="a reboot did not help: the driver: NVIDIA-SMI has failed") as error:
        setup(context_of(reporter, *vms), request)
    assert error.value.host == "gpu1"
    assert "mokutil --sb-state" in (error.value.hint or "")
    assert [vm.log.count("systemctl reboot") for vm in vms] == [1, 1]
    assert vms[1].read("/fake/gpus").startswith("0, Enabled, 2619, 1980"), "the other host is finished"


def test_a_host_with_containers_is_not_rebooted(
    reporter: Remembering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.remote.setup.steps._POLL_S", 0.01)
    vms = [SetupHost(tmp_path / f"gpu{number}", number) for number in (1, 2)]
    for vm in vms:
        vm.with_engine()
        vm.with_gpu()
        vm.write("/fake/old-module", "")
    vms[1].write("/fake/containers", "abc\n")
    request = SetupRequest(areas=("driver",), reboot=True)
    with pytest.raises(
        NotReadyError, match="1 container runs, and kit setup would reboot the host, which ends it"
    ) as e:
        setup(context_of(reporter, *vms), request)
    assert e.value.host == "gpu2"
    assert "then: kit setup --allow-reboot" in (e.value.hint or "")
    # Somebody starts one after kit has looked.
    assert vms[1].run(_reboot("b007-2"), b"", 10).code == 0
    assert vms[1].run(_reboot(), b"", 10).code == 1
    assert [vm.log.count("systemctl reboot") for vm in vms] == [0, 0]
    vms[1].write("/fake/containers", "")
    setup(context_of(reporter, *vms), request)
    assert [vm.log.count("systemctl reboot") for vm in vms] == [1, 1]


def test_a_host_on_which_somebody_is_at_work_is_not_rebooted(vm: SetupHost) -> None:
    """A lock that nobody holds any more is left by a kit that was killed."""
    vm.write(LOCK, "pid 7\nsince 1\nwho ann@laptop\nwhat kit setup\n")
    with vm.path(LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = vm.run(_reboot(), b"", 10)
        assert (done.code, done.error_text) == (1, "ann@laptop holds this host's lock of kit setup")
    vm.write("/var/lib/dpkg/lock", "")
    vm.write("/proc/locks", f"1: POSIX  ADVISORY  WRITE 77 00:2c:{vm.path('/var/lib/dpkg/lock').stat().st_ino} 0 EOF\n")
    vm.write("/proc/77/comm", "unattended-upgr\n")
    done = vm.run(_reboot(), b"", 10)
    assert (done.code, "process 77 (unattended-upgr) holds apt's lock" in done.error_text) == (1, True)
    assert vm.log == []
    vm.path("/proc/locks").unlink()
    assert vm.run(_reboot(), b"", 10).code == 0
    _until(lambda: vm.log == ["systemctl reboot"])


def test_a_reboot_waits_for_apts_lists(reporter: Remembering, vm: SetupHost) -> None:
    vm.write("/var/lib/apt/lists/lock", "")
    inode = vm.path("/var/lib/apt/lists/lock").stat().st_ino
    vm.write("/proc/locks", f"1: POSIX  ADVISORY  WRITE 77 00:2c:{inode} 0 EOF\n")
    vm.write("/bin/sleep", f"#!/bin/sh\nrm -f {vm.root}/proc/locks\n")
    assert vm.run(program("reboot", "b007-1", LOCK, "100"), b"", 10).code == 0
    _until(lambda: vm.log == ["systemctl reboot"])


def test_a_host_that_changes_meanwhile_is_changed_only_with_its_lock(reporter: Remembering, tmp_path: Path) -> None:
    vms = [SetupHost(tmp_path / f"gpu{number}", number) for number in (1, 2)]
    vms[1].with_engine()
    context = context_of(reporter, *vms)
    taken: list[str] = []

    def take(login: Login, file: str, what: str) -> Lock:
        assert vms[1].log == [], "it was changed without its lock"
        if not taken:
            vms[1].path("/fake/engine").unlink()
        taken.append(login.host)
        return context.take(login, file, what)

    assert setup(replace(context, take=take), SetupRequest(areas=DOCKER)).changed
    assert taken == ["gpu1", "gpu2"]
    assert vms[1].path("/fake/engine").exists()


def test_no_host_reboots_under_its_lock(reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else finishes all steps but the reboot before kit has the lock."""
    monkeypatch.setattr("kit.remote.setup.steps._POLL_S", 0.01)
    vm.with_gpu()
    vm.write("/fake/old-module", "")
    context = context_of(reporter, vm)
    reboots: list[int] = []

    class Counting(HeldLock):
        def release(self) -> None:
            reboots.append(vm.log.count("systemctl reboot"))

    def take(_login: Login, _file: str, _what: str) -> Lock:
        up(reporter, vm, "driver")
        return Counting()

    setup(replace(context, take=take), SetupRequest(areas=("driver",), reboot=True))
    assert reboots == [0]
    assert vm.log.count("systemctl reboot") == 1


def test_kit_never_reboots_its_own_machine(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kit.flows.setup.setup._own_boot_id", lambda: "b007-1")
    vm.with_gpu()
    vm.write("/fake/old-module", "")
    setup(context_of(reporter, vm), SetupRequest(areas=("driver",), reboot=True))
    assert "systemctl reboot" not in vm.log
    assert any("never reboots the machine that it runs on" in warning.text for warning in reporter.warnings)


def test_huge_pages_are_reserved_now_and_at_boot(reporter: Remembering, vm: SetupHost) -> None:
    pages = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    vm.write(pages, "0\n")
    vm.write("/etc/default/grub", "")
    up(reporter, vm, "hugepages", setup={"hugepages": 4})
    assert vm.read(pages) == "4\n"
    assert "hugepagesz=1G hugepages=4" in vm.read("/etc/default/grub.d/90-kit.cfg")
    assert vm.log.count("update-grub") == 1
    assert not up(reporter, vm, "hugepages", setup={"hugepages": 4}).changed
    # As after a reboot of a machine with too little memory for one block: the setting waits for no further reboot.
    vm.write(pages, "3\n")
    vm.write("/proc/cmdline", "root=/dev/sda1 hugepagesz=1G hugepages=4\n")
    assert up(reporter, vm, "hugepages", setup={"hugepages": 4}).hosts[0].waiting == ()
    assert any("reserved only 3 of 4 pages" in warning.text for warning in reporter.warnings)
    up(reporter, vm, "hugepages", undo=True)
    assert vm.read(pages) == "0\n"
    assert not vm.path("/etc/default/grub.d/90-kit.cfg").exists()
    assert vm.log.count("update-grub") == 2


def test_grub_reads_its_settings_after_a_kit_that_was_killed(reporter: Remembering, vm: SetupHost) -> None:
    vm.write("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
    vm.write("/etc/default/grub", "")
    vm.write("/fake/grub-fails", "")
    with pytest.raises(StepError, match="update-grub failed"):
        up(reporter, vm, "hugepages", setup={"hugepages": 4})
    vm.path("/fake/grub-fails").unlink()
    assert up(reporter, vm, "hugepages", setup={"hugepages": 4}).changed
    assert vm.log.count("update-grub") == 2
    assert not up(reporter, vm, "hugepages", setup={"hugepages": 4}).changed

    vm.write("/fake/grub-fails", "")
    with pytest.raises(StepError, match="update-grub failed"):
        up(reporter, vm, "hugepages", undo=True)
    vm.path("/fake/grub-fails").unlink()
    assert not vm.path("/etc/default/grub.d/90-kit.cfg").exists()
    assert up(reporter, vm, "hugepages", undo=True).changed
    assert vm.log.count("update-grub") == 4
    assert not up(reporter, vm, "hugepages", undo=True).changed


def test_an_engine_reads_its_former_settings_after_an_undo_that_was_killed(
    reporter: Remembering, vm: SetupHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm.with_engine()
    up(reporter, vm, setup={"proxy": "http://proxy:3128"})

    def killed(*_: object) -> None:
        raise StepError("killed", host="gpu1")

    with monkeypatch.context() as patch:
        steps: dict[type[Step], Any] = {**ON_HOST, StartEngine: killed}
        patch.setattr("kit.remote.cluster.execute.ON_HOST", steps)
        with pytest.raises(StepError, match="killed"):
            up(reporter, vm, undo=True)
    assert not vm.path("/etc/docker/daemon.json").exists()
    assert vm.log.count("systemctl restart docker") == 1
    assert up(reporter, vm, undo=True).changed
    assert vm.log.count("systemctl restart docker") == 2
    assert not up(reporter, vm, undo=True).changed
    assert not up(reporter, vm).changed


def test_an_engine_that_was_restarted_by_hand_is_not_restarted_again(reporter: Remembering, vm: SetupHost) -> None:
    vm.with_engine()
    vm.write("/opt/kit/.setup/unfinished/engine", "")
    os.utime(vm.path("/opt/kit/.setup/unfinished/engine"), (1000, 1000))
    vm.write("/run/docker.pid", "1")
    assert not up(reporter, vm).changed
    os.utime(vm.path("/run/docker.pid"), (500, 500))
    vm.write("/fake/containers", "abc\n")
    with pytest.raises(NotReadyError, match="kit setup would restart the engine"):
        up(reporter, vm)


def _reboot(boot_id: str = "b007-1") -> Sequence[str]:
    """Return the command that reboots a VM at once, or refuses that."""
    return program("reboot", boot_id, LOCK, "0")


def _cut(*_: object) -> None:
    raise StepError("a command did not end within 30 s", host="gpu1")


def _key_server(vm: SetupHost) -> None:
    """Let apt's own program fetch any address."""
    vm.write("/usr/lib/apt/apt-helper", '#!/bin/sh\necho "the key" >"$5"\n')
    vm.path("/usr/lib/apt/apt-helper").chmod(0o755)


def _alive(vm: SetupHost) -> bool:
    """Return whether the timer of an MTU still runs."""
    return any(str(vm.root) in line for line in _commands())


def _commands() -> list[str]:
    lines = []
    for path in files_of_processes("cmdline"):
        try:
            lines.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return lines


def _until(done: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)
