"""An NFS server, and a machine whose kernel has an NFS client, with a Docker Engine. Both are programs of this machine.

    with machine(folder) as m:
        (m.exported / "words").write_text("…")
        m.docker("run", …)

The server is NFS-Ganesha. The machine is user-mode Linux: a kernel that runs as a process. It sees the files of this
machine, without the right to change them, and runs this machine's dockerd. Nothing is installed (scripts/nfs), and
nothing but a network of these two is used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.rig import until
from tests.integration.store import accepts

ROOT = Path(__file__).resolve().parents[2]
# Benchmarking networks (RFC 2544): no route leads there.
HERE, THERE, PORT, API = "198.18.77.1", "198.18.77.2", 2049, 2375
EXPORT = "/exports/shared"
DEVICE = "kitnfs0"
GANESHA = """
NFS_CORE_PARAM {{
    Protocols = 4; NFS_Port = {port}; Bind_addr = {address}; Enable_NLM = false; Enable_RQUOTA = false;
    Plugins_Dir = "{plugins}";
}}
NFSv4 {{ Graceless = true; UseGetpwnam = true; Only_Numeric_Owners = true; RecoveryRoot = "{state}"; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
    Export_Id = 1; Path = {exported}; Pseudo = {export}; Access_Type = RW; Squash = No_root_squash; SecType = sys;
    Protocols = 4; FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = WARN; }}
"""
# The first process of the machine. Its root file system is read-only, so what dockerd writes is in memory.
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run
mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t devtmpfs dev /dev; mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts
for folder in /run /dev/shm /var/lib/docker /var/lib/containerd /etc/docker; do
  [ ! -d "$folder" ] || mount -t tmpfs tmpfs "$folder"
done
mount -o remount,ro /
ip link set lo up; ip address add {there}/24 dev eth0; ip link set eth0 up
for module in {modules}; do insmod "$module"; done
exec dockerd --host tcp://{there}:{api} --tls=false --iptables=false --ip6tables=false --bridge=none \\
  --storage-driver=vfs
"""
# What a container needs to read and write.
PROGRAMS = ("cat", "ls", "touch", "wc", "dash")


@dataclass
class Machine:
    """The machine. `exported` is the folder that the server exports."""

    programs: Path
    folder: Path
    exported: Path
    _server: subprocess.Popen[bytes] | None = field(default=None)

    def docker(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run docker with the machine's engine."""
        return subprocess.run(self.argv(*words), capture_output=True, text=True, check=check, timeout=200)

    def argv(self, *words: str) -> list[str]:
        return ["docker", "--host", f"tcp://{THERE}:{API}", *words]

    def serve(self) -> None:
        """Start the server, and wait until it listens."""
        libraries = {str(path.parent) for path in self.programs.rglob("lib*.so*")}
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        (plugins,) = {path.parent for path in self.programs.rglob("libfsalvfs.so")}
        text = GANESHA.format(
            port=PORT, address=HERE, plugins=plugins, state=state, exported=self.exported, export=EXPORT
        )
        (self.folder / "ganesha.conf").write_text(text)
        words: list[str | Path] = [
            "-F",
            "-f",
            self.folder / "ganesha.conf",
            "-L",
            self.folder / "log",
            "-p",
            self.folder / "pid",
        ]
        self._server = subprocess.Popen(
            [self.programs / "usr/bin/ganesha.nfsd", *words],
            env={**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until("the NFS server listens", lambda: self._alive() and accepts((HERE, PORT)))

    def kill_server(self) -> None:
        assert self._server
        self._server.kill()
        self._server.wait()

    def _alive(self) -> bool:
        assert self._server
        assert self._server.poll() is None, (self.folder / "log").read_text()[-3000:]
        return True


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Run both until the end of the block. Needs root, /dev/net/tun and dockerd."""
    found = subprocess.run([ROOT / "scripts/nfs"], capture_output=True, text=True, check=True, timeout=600)
    programs = Path(found.stdout.strip())
    made = Machine(programs, folder, folder / "exported")
    made.exported.mkdir()
    init = folder / "init"
    init.write_text(INIT.format(there=THERE, api=API, modules=" ".join(modules(programs, "nfs", "nfsv4"))))
    init.chmod(0o755)
    log = (folder / "console").open("wb")
    with contextlib.ExitStack() as stack:
        stack.callback(log.close)
        ip("tuntap", "add", "dev", DEVICE, "mode", "tap")
        stack.callback(ip, "link", "delete", DEVICE)
        ip("address", "add", f"{HERE}/24", "dev", DEVICE)
        ip("link", "set", DEVICE, "up")
        made.serve()
        stack.callback(made.kill_server)
        kernel = subprocess.Popen(
            [
                programs / "usr/bin/linux.uml",
                *("mem=1G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"init={init}", "quiet"),
                *(f"eth0=tuntap,{DEVICE},,{HERE}", f"uml_dir={folder}/", "con=null", "con0=null,fd:1"),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(kernel.wait)
        stack.callback(os.killpg, kernel.pid, signal.SIGKILL)

        def answers() -> bool:
            assert kernel.poll() is None, (folder / "console").read_text(errors="replace")[-3000:]
            return made.docker("version", check=False).returncode == 0

        until("the machine's engine answers", answers, patience_s=120)
        small_image(made)
        yield made


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def modules(programs: Path, *wanted: str) -> list[str]:
    """Return the files of these modules of the machine's kernel, each after those that it needs."""
    (table,) = programs.rglob("modules.dep")
    needs = {file: words.split() for file, _, words in (line.partition(":") for line in table.read_text().splitlines())}
    files: dict[str, None] = {}
    for name in wanted:
        (file,) = [one for one in needs if one.endswith(f"/{name}.ko")]
        files |= dict.fromkeys([*reversed(needs[file]), file])
    return [str(table.parent / file) for file in files]


def small_image(made: Machine) -> None:
    """Give the machine's engine the image `small`: a shell and a few programs of this machine."""
    top = made.folder / "image"
    for program in PROGRAMS:
        path = Path(shutil.which(program) or "").resolve()
        libraries = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.split()
        for file in (path, *(Path(word) for word in libraries if word.startswith("/"))):
            (top / file.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, top / file.relative_to("/"))
        (top / "bin").mkdir(exist_ok=True)
        shutil.copy2(path, top / "bin" / ("sh" if program == "dash" else program))
    subprocess.run(["tar", "-C", top, "-cf", made.folder / "image.tar", "."], check=True)
    made.docker("import", str(made.folder / "image.tar"), "small")
