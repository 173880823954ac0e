"""kit setup on bare hosts of the lab: systemd, sshd, sudo, and real packages of the distribution. In this order."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from kit.errors import StepError
from kit.flows.setup.setup import SetupRequest, draft, setup
from kit.model.setup.paths import NON_FREE_SOURCES
from kit.model.setup.steps import ChangeMtu, InstallPackages, WriteSystemFile
from kit.plan.setup import mtu
from kit.remote.cluster.execution import Execution
from kit.remote.setup import steps
from kit.remote.ssh.transport import Transport
from tests.integration.bare import BareLab
from tests.integration.rig import kit, kit_argv, kit_environ, objects, taken_down, until

NAME = f"test-{os.getpid()}-setup"
DAEMON = "/etc/docker/daemon.json"
# Odd on purpose: kit must bring exactly these bytes back.
BEFORE = '{ "debug":false,\n\t"log-driver": "local" }'

# A 3D controller of NVIDIA on the bus, as the kernel lists it.
PRETENDED_GPU = """
folder=/run/pci/0000:17:00.0 && mkdir -p "$folder"
echo 0x10de >"$folder/vendor" && echo 0x030200 >"$folder/class" && echo {device} >"$folder/device"
mount --bind /run/pci /sys/bus/pci/devices
"""


@pytest.fixture(scope="module")
def lab(bases: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareLab]:
    folder = tmp_path_factory.mktemp("bare")
    with taken_down(folder, NAME):
        up = kit(folder, "lab", "up", "--bare", "--hosts", "2", "--user", "ubuntu", "--name", NAME)
        assert up.returncode == 0, up.stderr
        yield BareLab(folder)


def test_a_killed_setup_goes_on_and_the_second_time_there_is_nothing_to_do(lab: BareLab) -> None:
    """kit and dpkg are both killed on gpu2, in the middle of the engine's package."""
    process = subprocess.Popen(
        kit_argv("-C", str(lab.folder), "setup", "-H", "gpu2", "--only", "docker"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=kit_environ(),
        start_new_session=True,
    )
    try:
        # The host itself waits: seconds later, dpkg may be done.
        unpacked = "until [ -e /var/lib/dpkg/info/docker.io.list ]; do sleep 0.05; done"
        lab.on("gpu2", f"timeout 150 sh -c '{unpacked}'")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lab.on("gpu2", "pkill -9 apt-get; pkill -9 dpkg; ! docker version >/dev/null 2>&1")

    (result,) = objects(lab.setup("--only", "docker", "--json"))
    assert [host["host"] for host in result["hosts"]] == ["gpu1", "gpu2"]
    for host in ("gpu1", "gpu2"):
        assert lab.on(host, "docker version --format '{{.Server.Version}}'").startswith("26.")
        assert lab.on(host, "docker compose version --short").startswith("2.")
        assert lab.on(host, "systemctl is-enabled docker").strip() == "enabled"
        assert lab.on(host, "dpkg --audit") == ""
    look = "find /etc /opt/kit -type f -printf '%p %T@\\n' | sort; systemctl show docker -p MainPID"
    before = lab.on("gpu1", look)
    assert lab.setup("--only", "docker").stdout.startswith("Nothing to do: 2 hosts: gpu[1-2] are ready")
    assert lab.on("gpu1", look) == before


def test_daemon_json_is_merged_and_comes_back_byte_for_byte(lab: BareLab) -> None:
    lab.on("gpu1", f"mkdir -p /etc/docker && cat >{DAEMON} && chmod 640 {DAEMON} && systemctl restart docker", BEFORE)
    proxy = {"KIT_SETUP_PROXY": "http://proxy.example:3128"}
    done = kit(lab.folder, "setup", "-H", "gpu1", "--only", "docker", **proxy)
    assert done.returncode == 0, done.stderr
    merged = json.loads(lab.on("gpu1", f"cat {DAEMON}"))
    assert merged["log-driver"] == "local"
    assert lab.on("gpu1", "docker info --format '{{.HTTPProxy}}'").strip() == "http://proxy.example:3128"
    assert lab.on("gpu1", f"stat -c %a {DAEMON}").strip() == "640"

    lab.setup("-H", "gpu1", "--only", "docker", "--undo")
    assert lab.on("gpu1", f"cat {DAEMON}") == BEFORE
    assert lab.on("gpu1", f"stat -c '%a %U' {DAEMON}").strip() == "640 root"
    assert lab.on("gpu1", "docker info --format '{{.HTTPProxy}}|{{.LoggingDriver}}'").strip() == "|local"


def test_an_engine_that_does_not_start_gets_its_former_settings(lab: BareLab) -> None:
    """The engine of gpu1 refuses to start with a proxy, as one of another version might."""
    unit = "/etc/systemd/system/docker.service.d/refuse.conf"
    refuse = f"[Service]\nExecStartPre=/bin/sh -c '! grep -q proxies {DAEMON}'\n"
    lab.on("gpu1", f"mkdir -p {unit.rpartition('/')[0]} && cat >{unit} && systemctl daemon-reload", refuse)
    done = kit(lab.folder, "setup", "-H", "gpu1", "--only", "docker", KIT_SETUP_PROXY="http://proxy.example:3128")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "The engine runs with them" in done.stderr
    assert lab.on("gpu1", f"cat {DAEMON}") == BEFORE
    assert lab.on("gpu1", "docker version --format '{{.Server.Version}}'")
    lab.on("gpu1", f"rm {unit} && systemctl daemon-reload")


def test_containers_that_run_prevent_a_restart(lab: BareLab) -> None:
    lab.on("gpu1", "tar -cf - --files-from /dev/null | docker import - empty >/dev/null")
    mounts = "-v /bin:/bin -v /lib:/lib -v /lib64:/lib64 -v /usr:/usr"
    lab.on("gpu1", f"docker run -d --name busy {mounts} --entrypoint sleep empty 600")
    done = kit(lab.folder, "setup", "-H", "gpu1", "--only", "docker", KIT_SETUP_PROXY="http://proxy.example:3128")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "1 container runs" in done.stderr
    assert lab.on("gpu1", f"cat {DAEMON}") == BEFORE
    lab.on("gpu1", "docker rm -f busy")


def test_kernel_settings_are_set_and_come_back(lab: BareLab) -> None:
    keys = "net.ipv4.tcp_rmem net.ipv4.tcp_slow_start_after_idle net.ipv4.tcp_mtu_probing"
    look = f"sysctl {keys}; ls /etc/sysctl.d /etc/security/limits.d"
    before = lab.on("gpu2", look)
    lab.setup("-H", "gpu2", "--only", "sysctl")
    during = lab.on("gpu2", look)
    assert "tcp_rmem = 4096\t131072\t67108864" in during
    assert "tcp_mtu_probing = 1" in during
    assert "Nothing to do" in lab.setup("-H", "gpu2", "--only", "sysctl").stdout
    lab.setup("-H", "gpu2", "--only", "sysctl", "--undo")
    assert lab.on("gpu2", look) == before
    assert "Nothing to undo" in lab.setup("-H", "gpu2", "--only", "sysctl", "--undo").stdout


def test_a_confirmed_mtu_stays_and_a_lost_one_goes_back(lab: BareLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtu, "ChangeMtu", functools.partial(ChangeMtu, seconds=6))
    look = "cat /sys/class/net/eth0/mtu"
    connect, rule = steps.new_connection, "INPUT -p tcp --dport 22 -m conntrack --ctstate NEW -j REJECT"

    def cut(execution: Execution, name: str) -> Transport:
        """What was connected stays connected, and nobody gets in any more."""
        lab.on("gpu1", f"iptables -I {rule} --reject-with tcp-reset")
        return connect(execution, name)

    monkeypatch.setattr(steps, "new_connection", cut)
    with pytest.raises(StepError, match="the MTU of eth0 is not confirmed"):
        setup(lab.context("gpu1", {"setup.mtu": 9000}), SetupRequest(areas=("mtu",)))
    until("the host takes its MTU back", lambda: lab.on("gpu1", look).strip() == "1500")
    lab.on("gpu1", f"iptables -D {rule} --reject-with tcp-reset")

    monkeypatch.setattr(steps, "new_connection", connect)
    assert setup(lab.context("gpu1", {"setup.mtu": 9000}), SetupRequest(areas=("mtu",))).changed
    until("the timer has ended", lambda: not lab.on("gpu1", "pgrep -f [k]it-mtu || :"))
    assert lab.on("gpu1", look).strip() == "9000"
    lab.setup("-H", "gpu1", "--only", "mtu", "--undo")
    assert lab.on("gpu1", look).strip() == "1500"


@pytest.mark.parametrize(
    ("device", "module"),
    [("0x2330", "nvidia-kernel-dkms"), ("0x2342", "nvidia-open-kernel-dkms")],
    ids=["H100", "GH200"],
)
def test_the_drivers_packages_are_in_debians_sources(lab: BareLab, device: str, module: str) -> None:
    """apt finds all of them in the real sources that kit adds, and stops before it downloads 300 MB."""
    lab.on("gpu2", PRETENDED_GPU.format(device=device))
    context = lab.context("gpu2", {})
    drafted, _ = draft(context, SetupRequest(areas=("driver",)))
    planned = [step for _, step in drafted.plan.steps()]
    (sources,) = [step for step in planned if isinstance(step, WriteSystemFile) and step.path == NON_FREE_SOURCES]
    (install,) = [step for step in planned if isinstance(step, InstallPackages)]
    assert module in install.packages
    lab.do(context, "gpu2", sources)
    apt = "apt-get -q --simulate --no-install-recommends --no-remove install"
    text = lab.on("gpu2", f"apt-get -qq update && {apt} {' '.join(install.packages)}; umount /sys/bus/pci/devices")
    assert {line.split()[1] for line in text.splitlines() if line.startswith("Inst ")} >= set(install.packages)
    assert "0 to remove" in text
    lab.setup("-H", "gpu2", "--only", "driver", "--undo")
    assert lab.on("gpu2", f"ls {NON_FREE_SOURCES} || :") == ""


def test_a_host_reboots_and_keeps_what_was_set_up(lab: BareLab) -> None:
    lab.reboot("gpu2")
    assert "Nothing to do" in lab.setup("--only", "docker").stdout


def test_undo_names_the_packages_that_stay(lab: BareLab) -> None:
    done = lab.setup("--undo")
    assert "packages that kit setup installed stay: containerd docker-cli docker-compose docker.io" in done.stderr
    assert lab.on("gpu1", "docker version --format '{{.Server.Version}}'")
    assert lab.on("gpu1", "stat -c %a /opt/kit/.setup").strip() == "700"
    assert lab.on("gpu1", "ls /opt/kit/.setup/files /opt/kit/.setup/values | grep -v :") == "\n"
