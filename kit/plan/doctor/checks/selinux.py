"""SELinux that confines containers."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model import names
from kit.model.doctor import Check, Command, Examined, File, Sight

_ENFORCE = File(path="/sys/fs/selinux/enforce")
_OPTIONS = Command(argv=("docker", "info", "--format", "{{json .SecurityOptions}}"), only_with=_ENFORCE.path)


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        options = host.ran(*_OPTIONS.argv)
        # Docker's own packages leave containers unconfined, unless the engine has selinux-enabled.
        confines = options is not None and options.code == 0 and "name=selinux" in options.out
        if (host.file(_ENFORCE.path) or "").strip() == "1" and confines:
            yield Sight(hosts=(host.name,), seen="SELinux is enforcing, and the engine has selinux-enabled")


CHECK = Check(
    id="selinux",
    title="SELinux confines containers",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_ENFORCE, _OPTIONS),
    leads_to="Nodes get `Permission denied` for the folders that kit mounts, and their sshd does not start.",
    fix='Remove `"selinux-enabled": true` from `/etc/docker/daemon.json` and run `sudo systemctl restart docker`. Or '
    f"label the folder of kit: `sudo chcon -R -t container_file_t {names.ROOT}`.",
    lab="kit lab fault HOST selinux",
)
