"""Ships an image from this machine's engine to hosts: saved once, loaded by each over an OpenSSH stream of its own.

The seam: `ship(image, size, targets, reporter)` and the hosts that failed. Whatever is faster fits behind it.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Iterable, Sequence

from kit.errors import ImageError, KitError, StepError
from kit.events import HostStep, Reporter
from kit.model.host import Login
from kit.remote.openssh import openssh_argv
from kit.remote.transport import as_root

CHUNK = 4 << 20
# Chunks that a slow host may lag behind before the others wait for it: 32 of 4 MiB.
LAG = 32
STEP = 0.01


def ship(image: str, size: int, targets: Sequence[Login], reporter: Reporter) -> dict[str, KitError]:
    """Bring `image` (`size` bytes in this engine) to every target. Returns the failures by host."""
    lanes = [_Lane(target, size, reporter) for target in targets]
    try:
        for chunk in _save(image):
            for lane in lanes:
                lane.put(chunk)
            if all(lane.failed for lane in lanes):
                break
        for lane in lanes:
            lane.put(None)
        for lane in lanes:
            lane.join()
    except BaseException:
        # Ctrl-C or a broken engine: a load that stops in the middle leaves nothing on its host.
        for lane in lanes:
            lane.kill()
        raise
    return {lane.target.host: lane.failed for lane in lanes if lane.failed}


def _save(image: str) -> Iterable[bytes]:
    import docker  # noqa: PLC0415
    import requests  # noqa: PLC0415

    try:
        client = docker.from_env(timeout=600)
        response = client.api.get_image(image, chunk_size=CHUNK)
        yield from response
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageError(
            f"this machine's engine could not save {image}: {error}", hint="kit image build, then the same again"
        ) from error


class _Lane:
    """One host's `docker load`, fed by a thread so that no host waits for another more than LAG chunks."""

    def __init__(self, target: Login, size: int, reporter: Reporter) -> None:
        self.target = target
        self.failed: KitError | None = None
        self._size = size
        self._reporter = reporter
        self._chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=LAG)
        # AES-GCM is the cheapest cipher on any processor with AES instructions; the rest stay as fallback.
        argv = openssh_argv(target, options=["Ciphers=^aes128-gcm@openssh.com", "Compression=no"])
        self._process = subprocess.Popen(
            [*argv, as_root(["docker", "load", "--quiet"])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Ctrl-C is ours to handle: the whole lane ends in `kill`.
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def put(self, chunk: bytes | None) -> None:
        while self.failed is None:
            try:
                self._chunks.put(chunk, timeout=0.5)
            except queue.Full:
                continue
            return

    def join(self) -> None:
        self._thread.join()

    def kill(self) -> None:
        self._process.kill()

    def _feed(self) -> None:
        assert self._process.stdin is not None  # noqa: S101  (asked for above; this tells the type checker)
        sent, shown = 0, 0.0
        try:
            while (chunk := self._chunks.get()) is not None:
                self._process.stdin.write(chunk)
                sent += len(chunk)
                fraction = min(sent / self._size, 1.0) if self._size else None
                if fraction is None or fraction - shown >= STEP:
                    shown = fraction or 0.0
                    self._report(f"image {sent / 1e9:.2f} GB", fraction)
            self._report("engine unpacks the image", 1.0)
            self._process.stdin.close()
        except OSError:
            pass  # The other end closed: its reason is on standard error, and read below.
        message = self._process.stderr.read().decode(errors="replace").strip() if self._process.stderr else ""
        if self._process.wait() != 0:
            full = "no space left" in message
            self.failed = StepError(
                f"the image did not arrive: {message.splitlines()[-1] if message else 'the connection broke'}",
                hint="make room on its disk (docker system prune), then: kit deploy"
                if full
                else "run kit deploy again: hosts that have the image are left alone",
                host=self.target.host,
            )

    def _report(self, text: str, fraction: float | None) -> None:
        self._reporter.report(HostStep(host=self.target.host, text=text, fraction=fraction))
