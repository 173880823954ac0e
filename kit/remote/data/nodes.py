"""Whether the node of a host sees what rclone has mounted on its VM, and the restart of one that does not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kit.errors import StepError
from kit.remote.cluster.observe import listener_word
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

_RESTART_S, _SSHD_S = 120.0, 60.0


class NodeMount(Struct, frozen=True, kw_only=True):
    """A node, by its container, and where it has a data set: `folder` is that of the data set on the VM.

    A node that started while an earlier mount was there still has that one. `address` and `port` are those of its sshd.
    """

    container: str
    folder: str
    to: str
    address: str
    port: int

    def is_seen(self, transport: Transport) -> bool:
        """Return whether the node sees at `to` what is mounted now."""
        return not self._is_stale(transport, "look")

    def restart(self, transport: Transport) -> None:
        """Restart the node if it does not see the mount, and wait for its sshd."""
        if not self._is_stale(transport, "restart"):
            return
        name = transport.host.name
        argv = script("wait_sshd", listener_word(self.address, self.port), f"{_SSHD_S:.0f}", self.container)
        if transport.run(argv, timeout_s=_SSHD_S + 30).code != 0:
            what = f"its node was restarted, and its sshd does not answer on {self.address}:{self.port}"
            raise StepError(what, hint=f"kit logs --nodes {name}", host=name)
        if self._is_stale(transport, "look"):
            raise StepError("its node was restarted, and does not see the mount", hint="run: kit deploy", host=name)

    def _is_stale(self, transport: Transport, how: str) -> bool:
        done = transport.run(script("data_node", self.container, self.folder, self.to, how), timeout_s=_RESTART_S)
        if done.code != 0:
            last: Sequence[str] = done.error_text.splitlines()[-1:] or [f"exit {done.code}"]
            what = f"its node cannot be looked at or restarted: {last[0]}"
            raise StepError(what, hint="run: kit deploy", host=transport.host.name)
        return "stale" in done.text.splitlines()
