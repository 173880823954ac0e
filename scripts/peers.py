"""Copy data to the hosts of a lab as people do without kit: rclone on each host, rsync or tar from here.

scripts/measure-data compares kit with these. They use the lab's own logins, and the rclone of the cluster's image.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kit.model.host import Login
from kit.remote.ssh.openssh import openssh_argv

COPY = "/opt/kit-measure-data"
# In images of kit.
RCLONE = "/opt/kit/rclone/rclone"
INSTALL = "command -v rsync >/dev/null || { apt-get update -q && apt-get install -q -y rsync; } >/dev/null 2>&1"


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds `work` takes."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def on(login: Login, line: str, stdin: bytes = b"") -> str:
    """Return what a line of shell prints on a host. Raises SystemExit with its errors."""
    done = subprocess.run([*openssh_argv(login), line], input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{login.host}: {line[:200]}: {done.stderr.decode(errors='replace')[-1000:]}")
    return done.stdout.decode()


def everywhere(logins: Sequence[Login], line: str, stdin: bytes = b"") -> list[str]:
    """Run the line on all hosts at once."""
    with ThreadPoolExecutor(len(logins)) as pool:
        return list(pool.map(lambda login: on(login, line, stdin), logins))


def arrived(logins: Sequence[Login], files: int, size: int) -> None:
    """Raise SystemExit if a host's copy does not have this many files and bytes."""
    counted = f"find {COPY} -type f -printf '%s\\n' | awk '{{ n += $1 }} END {{ print NR, n }}'"
    for login, text in zip(logins, everywhere(logins, counted), strict=True):
        if text.split() != [str(files), str(size)]:
            raise SystemExit(f"{login.host}: {text.strip()} came of {files} files and {size} bytes")


def forget(logins: Sequence[Login]) -> None:
    """Remove the copies."""
    everywhere(logins, f"rm -rf {COPY}")


@dataclass(frozen=True, kw_only=True)
class Remote:
    """An object store for rclone: the text of its configuration, and of its CA's certificate. `path` is REMOTE:PATH."""

    config: str
    ca: str
    path: str


def rclone(logins: Sequence[Login], image: str, remote: Remote) -> float:
    """Return the seconds of `rclone copy` on all hosts at once, each straight from the store, with its defaults."""
    # Keys are on no command line.
    script = (
        f"printf %s {shlex.quote(remote.config)} >/tmp/rclone.conf; printf %s {shlex.quote(remote.ca)} >/tmp/ca.pem; "
        f"exec {RCLONE} --config /tmp/rclone.conf --ca-cert /tmp/ca.pem copy {shlex.quote(remote.path)} /copy"
    )
    line = f"docker run --rm --interactive --network host --volume {COPY}:/copy --entrypoint sh {image} -s"
    return timed(lambda: everywhere(logins, line, script.encode()))


@dataclass(frozen=True, kw_only=True)
class FromHere:
    """Copies of a folder of this machine to one host after the other.

    `name` is that of the program: rsync, or tar where rsync is missing.
    """

    name: str
    logins: Sequence[Login]

    @classmethod
    def best(cls, logins: Sequence[Login]) -> FromHere:
        """Install rsync on the hosts, with a link that is fast enough for apt."""
        with ThreadPoolExecutor(len(logins)) as pool:
            codes = list(pool.map(_installed, logins))
        return cls(name="tar over ssh" if any(codes) or shutil.which("rsync") is None else "rsync -a", logins=logins)

    def copy(self, folder: Path) -> float:
        """Return the seconds of all copies together."""

        def all_of_them() -> None:
            for login in self.logins:
                self._copy(folder, login)

        return timed(all_of_them)

    def _copy(self, folder: Path, login: Login) -> None:
        if self.name.startswith("tar"):
            pack = ["tar", "-C", str(folder), "-cf", "-", "."]
            line = f"mkdir -p {COPY} && tar -C {COPY} -xf -"
            with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
                subprocess.run([*openssh_argv(login), line], stdin=packing.stdout, check=True, capture_output=True)
            return
        # The host is in ssh's own words, and rsync adds it once more: `--` ends what ssh reads.
        words = openssh_argv(login)
        shell = shlex.join(words[: words.index("--")] if "--" in words else words[:-1])
        argv = ["rsync", "-a", "-e", shell, f"{folder}/", f"{login.address}:{COPY}/"]
        subprocess.run(argv, check=True, capture_output=True)


def _installed(login: Login) -> int:
    return subprocess.run([*openssh_argv(login), INSTALL], capture_output=True, check=False).returncode
