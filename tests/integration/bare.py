"""Bare hosts of the lab: systemd, sshd, sudo, and no engine."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

from kit.config import settings
from kit.config.selection import select_hosts
from kit.events import Silent
from kit.flows.context import Context, open_context
from kit.model.plan import Step
from kit.model.setup.steps import Reboot
from kit.remote.cluster.execution import Execution
from kit.remote.setup import steps
from tests.integration.rig import CONNECTIONS, kit, ssh


class BareLab:
    """The folder of the lab, and commands on its hosts as root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        loaded = settings.load(folder, hosts_flag=None, config_flag=None, flags={}, environ={})
        self.addresses = {host.name: host.address for host in loaded.inventory.hosts}

    def on(self, host: str, script: str, stdin: str = "") -> str:
        done = ssh(self.folder, self.addresses[host], script, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def setup(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = kit(self.folder, "setup", *words)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def context(self, host: str, flags: dict[str, object]) -> Context:
        """Return a context on one host."""
        flags = {"ssh.keep": False, **flags}
        loaded = settings.load(self.folder, hosts_flag=None, config_flag=None, flags=flags, environ={})
        return open_context(select_hosts(loaded.inventory, host), loaded.spec, loaded.folder, Silent())

    def boot_id(self, host: str) -> str:
        return self.on(host, "cat /proc/sys/kernel/random/boot_id").strip()

    def do(self, context: Context, host: str, step: Step) -> None:
        """Do one step of a plan, as the executor does it."""
        execution = Execution(
            cluster=context.spec.name,
            hosts={one.name: one for one in context.inventory.hosts},
            logins=context.logins,
            connect=context.connect,
            engine_of=context.engine_of,
            reporter=Silent(),
        )
        with closing(context.connect(context.host(host))) as transport:
            steps.ON_HOST[type(step)](execution, transport, step)

    def reboot(self, host: str) -> None:
        """Do the step of a plan that reboots a host."""
        boot_id = self.boot_id(host)
        self.do(self.context(host, {}), host, Reboot(boot_id=boot_id, why="a test needs it"))
        CONNECTIONS.forget()
        assert self.boot_id(host) != boot_id
