"""A bare VM in a folder, in which kit's real scripts run. Small programs replace apt, systemd, Docker and NVIDIA's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from kit.config.validate import spec_from
from kit.errors import UnreachableError
from kit.events import Reporter
from kit.flows.context import Context
from kit.model.host import Host, Inventory, Login
from kit.model.lock import Holder
from kit.remote.cluster import lock
from kit.remote.ssh.transport import Completed, Live
from tests.fakes.shell import bare_path

# Each is a shell script with $root, the folder of the VM. `fake` below it has the state of the stand-ins.
PROGRAMS = {
    "dpkg": """
[ "$1" != --print-architecture ] || echo amd64
case $* in
  --audit) echo 'The following packages are missing the md5sums control file in the database' ;;
  '--force-confdef --force-confold --configure -a')
    echo configure >>"$root/fake/log"
    sed -i 's/half-configured/installed/' "$root/fake/packages" ;;
esac
""",
    "dpkg-query": """
case $3 in
  *Version*) cat "$root/fake/packages" ;;
  *)
    # What a killed kit had started ends now.
    [ ! -e "$root/fake/orphan" ] || mv "$root/fake/orphan" "$root/opt/kit/.setup/apt.status.code"
    sed 's/ [^ ]* / /' "$root/fake/packages" ;;
esac
""",
    "apt-get": """
if [ "$1" = indextargets ]; then
  case $* in *ReleaseInfo=0*) cat "$root/fake/sources" ;; *) cat "$root/fake/origins" ;; esac
  exit 0
fi
while [ "$1" != update ] && [ "$1" != install ]; do shift; done
echo "$*" >>"$root/fake/log"
if read -r _ <"$root/fake/lock-$1"; then
  # Another program takes the lock, one time for each line.
  sed -i 1d "$root/fake/lock-$1"
  echo 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 77 (unattended-upgr)'
  exit 100
fi 2>/dev/null
[ ! -e "$root/fake/apt-$1-fails" ] || { cat "$root/fake/apt-$1-fails"; exit 100; }
[ "$1" = install ] || exit 0
shift 2
for package; do
  grep -q "^$package " "$root/fake/packages" || echo "$package 1.0 installed" >>"$root/fake/packages"
  echo "pmstatus:$package:50.0:Unpacking $package" >&3
  case $package in
    docker.io|docker-ce) ln -sf "$root/bin/all/docker" "$root/bin/all/dockerd" "$root/bin/" ;;
    docker-compose|docker-compose-v2|docker-compose-plugin) : >"$root/fake/compose" ;;
    nvidia-utils-*|nvidia-smi) ln -sf "$root/bin/all/nvidia-smi" "$root/bin/" ;;
    gpg) ln -sf "$root/bin/all/gpg" "$root/bin/" ;;
  esac
done
""",
    "all/docker": """
[ "$1" != compose ] || { [ -e "$root/fake/compose" ] && echo "${compose:-2.26.1}"; exit; }
[ -e "$root/fake/engine" ] || { echo 'Cannot connect to the Docker daemon'; exit 1; }
case $1 in
  version) cat "$root/fake/engine" ;;
  ps) cat "$root/fake/containers" ;;
  info) cat "$root/fake/live-restore" 2>/dev/null || echo false ;;
esac
""",
    "all/dockerd": """
[ "$1" != --help ] || { echo '  --validate'; exit 0; }
! grep -q bad-key "$3" || { echo 'unable to configure: bad-key'; exit 1; }
""",
    "systemctl": """
case $1 in is-*|show) ;; *) echo "systemctl $*" >>"$root/fake/log" ;; esac
case "$*" in
  'is-failed'*) exit 1 ;;
  show*) printf 'LoadState=loaded\nNeedDaemonReload=%s\n' "$(cat "$root/fake/stale-unit" 2>/dev/null || echo no)" ;;
  'is-active'*) case "$*" in *"$(cat "$root/fake/manager")"*) exit 0 ;; esac; exit 3 ;;
  'start docker'|'restart docker')
    rm -f "$root/fake/engine"
    : >"$root/run/docker.pid"
    grep -qs crash "$root/etc/docker/daemon.json" || echo 26.1.5 >"$root/fake/engine" ;;
  reboot)
    rm -f "$root/fake/old-module"
    modprobe nvidia
    echo "b007-$(wc -l <"$root/fake/log")" >"$root/proc/sys/kernel/random/boot_id" ;;
  'restart kit-gpu-clocks.service') nvidia-smi -pm 1 && nvidia-smi -ac 1 ;;
esac
""",
    "journalctl": "echo 'failed to start daemon: invalid storage driver'",
    "ip": """
case "$*" in
  *'addr show'*) cat "$root/fake/addresses" ;;
  *'route show default'*) echo 'default via 10.0.0.254 dev eth0' ;;
  'link set dev '*) [ ! -e "$root/fake/ip-fails" ] && echo "$6" >"$root/sys/class/net/$4/mtu" ;;
esac
""",
    "modprobe": """
[ ! -e "$root/fake/old-module" ] && [ ! -e "$root/fake/refused-module" ] || exit 1
mkdir -p "$root/proc/driver/nvidia"
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun' >"$root/proc/driver/nvidia/version"
""",
    "all/nvidia-smi": """
[ -e "$root/proc/driver/nvidia/version" ] || { echo "NVIDIA-SMI has failed because it couldn't communicate"; exit 9; }
case $1 in
  --query-gpu*) cat "$root/fake/gpus" ;;
  -pm) sed -i 's/Disabled/Enabled/' "$root/fake/gpus" ;;
  -ac) sed -i 's/, 2619, 345,/, 2619, 1980,/' "$root/fake/gpus" ;;
esac
""",
    "all/gpg": """printf 'pub:\\nfpr:::::::::%s:\\n' "$(cat "$root/fake/fingerprint")" """,
    "update-grub": """
echo update-grub >>"$root/fake/log"
[ ! -e "$root/fake/grub-fails" ] || exit 1
: >"$root/boot/grub/grub.cfg"
""",
    # A time in seconds, or a file that ends the wait.
    "sleep": """time=$(cat "$root/fake/sleep")
case $time in
  /*) until [ -e "$root$time" ]; do /bin/sleep 0.02; done ;;
  *) exec /bin/sleep "$time" ;;
esac
""",
}
# What every Debian has. Nothing else of this machine may be on the PATH.
TOOLS = (
    "awk", "base64", "cat", "chmod", "chown", "cmp", "comm", "cp", "cut", "date", "env", "flock", "grep", "head", "id",
    "ln", "ls", "mkdir", "mktemp", "mv", "readlink", "rm", "rmdir", "sed", "setsid", "sh", "sha256sum", "sort", "stat",
    "tail", "timeout", "tr", "uname", "wc",
)  # fmt: skip
SETTINGS = {
    "net/core/rmem_max": "212992", "net/core/wmem_max": "212992", "net/ipv4/tcp_rmem": "4096\t131072\t6291456",
    "net/ipv4/tcp_wmem": "4096\t16384\t4194304", "net/ipv4/tcp_slow_start_after_idle": "1",
    "net/ipv4/tcp_mtu_probing": "0", "net/ipv4/conf/all/rp_filter": "1", "kernel/random/boot_id": "b007-1",
}  # fmt: skip


class SetupHost:
    """A VM below `root`. Its transports run commands on this machine, with the stand-ins first on the PATH."""

    def __init__(self, root: Path, number: int = 1, *, os_release: str = "debian 13 trixie") -> None:
        self.root = root
        self.host = Host(name=f"gpu{number}", address=f"10.0.0.{number}")
        self.unreachable = False
        name, version, codename = os_release.split()
        self.write(
            "/etc/os-release", f"ID={name}\nVERSION_ID={version}\nVERSION_CODENAME={codename}\nPRETTY_NAME={name}\n"
        )
        self.write("/run/systemd/system/.keep", "")
        for key, value in SETTINGS.items():
            self.write(f"/proc/sys/{key}", f"{value}\n")
        self.write("/sys/class/net/eth0/mtu", "1500\n")
        self.write("/sys/class/net/eth0/ifindex", "2\n")
        self.write("/fake/addresses", f"2: eth0    inet 10.0.0.{number}/24 scope global eth0\n")
        self.write("/fake/packages", "base-files 13 installed\n")
        self.write("/fake/sources", "")
        self.write("/fake/origins", "")
        self.write("/fake/containers", "")
        self.write("/fake/manager", "none")
        self.write("/boot/grub/grub.cfg", "")
        self.write("/fake/sleep", "0.02")
        root.mkdir(exist_ok=True)
        bare_path(root / "tools", TOOLS)
        for program, text in PROGRAMS.items():
            path = root / "bin" / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\nroot={root}\n{text}")
            path.chmod(0o755)

    def write(self, path: str, text: str) -> None:
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    @property
    def log(self) -> list[str]:
        """What the stand-ins did, in order."""
        file = self.path("/fake/log")
        return file.read_text().splitlines() if file.exists() else []

    def with_engine(self, version: str = "26.1.5") -> None:
        """Give it an engine that works, with Compose v2, as if somebody had installed it."""
        self.write("/fake/engine", f"{version}\n")
        self.write("/fake/compose", "")
        self.write("/fake/packages", "docker.io 26.1.5 installed\ndocker-compose 2.26.1 installed\n")
        for program in ("docker", "dockerd"):
            (self.root / "bin" / program).symlink_to(self.root / "bin" / "all" / program)

    def with_gpu(self) -> None:
        """Give it a GPU on the bus, with slow clocks once there is a driver."""
        self.write("/sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n")
        self.write("/sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n")
        # Debian's own place. apt has not fetched its list yet.
        file = "/etc/apt/sources.list.d/debian.sources"
        key = "/usr/share/keyrings/debian-archive-keyring.pgp"
        self.write(file, f"URIs: http://deb.example/debian\nSuites: trixie\nComponents: main\nSigned-By: {key}\n")
        self.write("/fake/sources", f"source|http://deb.example/debian|trixie|main|{file}:1\n")
        self.write("/fake/gpus", "0, Disabled, 2619, 345, 2619, 1980\n")

    def with_driver(self) -> None:
        """Load a driver that nvidia-smi knows, as packages bring it."""
        self.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun\n")
        (self.root / "bin" / "nvidia-smi").symlink_to(self.root / "bin" / "all" / "nvidia-smi")

    def run(self, argv: Sequence[str], stdin: bytes, timeout_s: float) -> Completed:
        if self.unreachable:
            raise UnreachableError("no SSH connection", host=self.host.name)
        environment = {"PATH": f"{self.root}/bin:{self.root}/tools", "KIT_SETUP_ROOT": str(self.root)}
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False, env=environment)
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


class SetupTransport:
    def __init__(self, vm: SetupHost) -> None:
        self._vm = vm

    @property
    def host(self) -> Host:
        return self._vm.host

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        return self._vm.run(argv, stdin, timeout_s)

    def stream(self, argv: Sequence[str], live: Live) -> int:
        done = self._vm.run(argv, b"", 60)
        live.out(done.stdout)
        live.err(done.stderr)
        return done.code

    def close(self) -> None:
        """Nothing is open."""


class HeldLock:
    """A lock that nobody takes away."""

    def check(self) -> None:
        """It is never lost."""

    def release(self) -> None:
        """Nothing holds it."""


def context_of(reporter: Reporter, *vms: SetupHost, held_by: str = "", **spec: object) -> Context:
    """Return a context on these VMs. `held_by` is somebody who holds the lock of each."""
    by_name = {vm.host.name: vm for vm in vms}

    def take(login: Login, _file: str, what: str) -> HeldLock:
        if held_by:
            raise lock.refused(Holder(who=held_by, what=what, since="2026-11-23T06:00:00Z", age_s=9, pid=7), login.host)
        return HeldLock()

    return Context(
        inventory=Inventory(hosts=tuple(vm.host for vm in vms), source="hosts"),
        spec=spec_from({"name": "lab", **spec}),
        folder=Path(),
        reporter=reporter,
        connect=lambda host: SetupTransport(by_name[host.name]),
        take=take,
    )
