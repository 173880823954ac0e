"""A host of the lab that runs: its key and its state, its links, and the programs that it has for faults and GPUs."""

from __future__ import annotations

import io
import tarfile
import time
from typing import Any

import docker.errors
import requests
from msgspec import Struct

from kit.errors import StepError
from kit.model.answer import answer_of, decode, number
from kit.model.lab import LabGpu, LabGpus
from kit.remote.engine.hiccups import insist, no_exec, persistently
from kit.remote.lab.answers import errors
from kit.remote.lab.fault import END
from kit.remote.ssh.transport import Completed

_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
# How long to wait for the exit code of a command whose output has ended.
_PATIENCE_S = 60.0
_POLL_S = 0.02


class _Gpus(Struct, frozen=True, kw_only=True):
    """What `pretended-gpus` prints."""

    name: str
    driver: str
    uuids: list[str]
    lost: int
    faults: dict[str, list[str]]


class RunningHost:
    """A host on this machine's engine. Safe to use from several threads.

    Methods raise UnreachableError if the engine does not answer, and StepError if it or the host refuses.
    """

    def __init__(self, client: Any, container: str, host: str) -> None:
        self._client, self._container, self._host = client, container, host

    def public_host_key(self) -> str | None:
        """Return the host key that sshd shows, or None while it does not exist.

        It comes from the container's files, as from a cloud's console, so no ssh has to trust a first connection.
        """
        with errors("cannot read the host key", self._host):
            try:
                chunks, _ = self._client.api.get_archive(self._container, _HOST_KEY)
                with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                    member = archive.extractfile(archive.getmembers()[0])
                    text = member.read().decode().strip() if member else ""
            except (docker.errors.NotFound, tarfile.TarError, requests.exceptions.ChunkedEncodingError):
                # It does not exist, or is being written: then the engine breaks off in the middle of the tar.
                return None
        return text or None

    def alive(self) -> None:
        """Raise StepError with the container's last lines if the host is not running."""
        with errors("cannot inspect the container", self._host):
            state = self._client.api.inspect_container(self._container)["State"]
            code = state["ExitCode"]
            # A host that cannot boot is started again and again.
            if state["Running"] and not state.get("Restarting"):
                return
            log = self._client.api.logs(self._container, tail=5).decode(errors="replace").strip()
        raise StepError(
            f"the container ended with exit code {code}" + (f": {log}" if log else ""),
            host=self._host,
            hint="This machine's engine may not allow what an engine inside a container needs; see docs/lab.md.",
        )

    def image(self) -> str:
        """Return the ID of the image that the host was made from."""
        with errors("cannot inspect the container"):
            return str(self._client.api.inspect_container(self._container)["Image"])

    def link(self, nic: int = 0) -> int:
        """Return the index, among this machine's devices, of the far end of one of the host's NICs."""
        with errors("cannot read the link", self._host):
            read = ["cat", f"/sys/class/net/eth{nic}/iflink"]
            # A busy engine waits only a short time for the end of a command's output.
            done = persistently(lambda: self._run(read), lambda done: not (done.code or done.text.strip()))
            if done.code or not done.text.strip():
                raise StepError(f"its link cannot be read: {done.text.strip()}", host=self._host)
            return number(done.text.strip())

    def shape_own_links(self, rate: str, nics: int) -> None:
        """Limit what the host itself sends."""
        with errors(f"cannot limit the link to {rate}", self._host):
            done = self._run(["/usr/local/sbin/link-rate", rate, *(f"eth{nic}" for nic in range(nics))])
        if done.code:
            raise StepError(f"its link cannot be limited to {rate}: {done.text.strip()}", host=self._host)

    def fault(self, argv: list[str]) -> str:
        """Run the program of a fault in the host, and return what it prints, without its last line."""
        with errors("cannot change its faults", self._host):
            done = persistently(lambda: self._run(argv), lambda done: not done.code and not _whole(done.text))
        lines = done.text.strip().splitlines() or ["no reason"]
        if done.code:
            raise StepError(f"it cannot have this fault: {lines[-1]}", host=self._host)
        if not _whole(done.text):
            hint = "This machine's engine is busy. Run the command again."
            raise StepError("the engine lost the answer of its program for faults", host=self._host, hint=hint)
        return "".join(f"{line}\n" for line in lines[:-1])

    def pretended_gpus(self, argv: list[str]) -> LabGpus:
        """Run the host's own program for its GPUs, and return what it has then."""
        with errors("cannot change its GPUs", self._host):
            # Twice is once. A busy engine can lose what a command prints.
            done = persistently(
                lambda: self._run(["/usr/local/sbin/pretended-gpus", *argv]),
                lambda done: not (done.code or done.text.strip()),
            )
        if done.code:
            raise StepError(f"its GPUs refuse that: {done.text.strip()}", host=self._host)
        with answer_of(self._host, "pretended-gpus"):
            state: _Gpus = decode(done.stdout, _Gpus)
        return LabGpus(
            host=self._host,
            name=state.name,
            driver=state.driver,
            lost=state.lost,
            gpus=tuple(
                LabGpu(number=number, uuid=uuid, faults=tuple(state.faults.get(str(number), ())))
                for number, uuid in enumerate(state.uuids)
            ),
        )

    def _run(self, argv: list[str]) -> Completed:
        """Run a command in the host. Return all of its output as standard output."""
        api = self._client.api

        def act() -> Completed:
            identity = api.exec_create(self._container, argv)["Id"]
            output = api.exec_start(identity)
            return Completed(code=_exit_code(api, identity), stdout=output, stderr=b"")

        # An engine reports a command that never began as an error, or in place of the command's output.
        return persistently(lambda: insist(act), no_exec)


def _whole(answer: str) -> bool:
    return answer.endswith(f"{END}\n")


def _exit_code(api: Any, identity: str) -> int:
    """Return the exit code of a command in a container. The engine knows it a moment after the output has ended."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        code = api.exec_inspect(identity)["ExitCode"]
        if code is not None:
            return int(code)
        if time.monotonic() > deadline:
            hint = "Restart this machine's engine if it is not busy."
            raise StepError("the engine does not report the end of a command", hint=hint)
        time.sleep(_POLL_S)
