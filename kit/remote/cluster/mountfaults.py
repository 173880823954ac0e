"""What an engine says when it cannot mount a data set for a node: the server, the cause, and what to do.

Without this, a user would read `no such device` for a missing client of the file system.
"""

from __future__ import annotations

import re

from msgspec import Struct

from kit.model import names

_MOUNT = re.compile(
    r"failed to mount local volume: mount (?P<device>[^\s,]*?):/[^\s,]*/_data"
    r"(?:, flags: 0x[0-9a-f]+)?(?:, data: (?P<options>[^\s]*))?: (?P<why>[a-z][a-z /-]*)"
)
_LOOKUP = re.compile(
    r"error resolving passed in network volume address: "
    r"lookup (?P<server>[^\s:]+)[^:\n]*(?::\d+)?: (?P<why>[a-z][a-z ]*)"
)
# Systemd shares the mount of /. Without that, no mount of a store would get into a container.
_PRIVATE = re.compile(r"path (?P<path>/\S+) is mounted on (?P<mount>/\S*) but it is not a shared or slave mount")
_VOLUME = re.compile(r"/volumes/(?P<volume>[^\s/']+)/_data")


class MountFault(Struct, frozen=True, kw_only=True):
    """Why an engine mounted nothing. `data` is the data set, or '' if its volume does not say that.

    `server` is '' for an object store.
    """

    data: str
    server: str
    text: str
    hint: str


def mount_fault(answer: str, cluster: str, host: str) -> MountFault | None:
    """Return what an engine's answer says about a mount, or None if it is about something else."""
    private = _PRIVATE.search(answer)
    if private:
        *_, data, _ = private["path"].split("/")
        text = f"containers would not see its mount, because that of {private['mount']} is private on this host"
        hint = f"share it: kit ssh {host} -- sudo mount --make-rshared {private['mount']}; then: kit deploy"
        return MountFault(data=data, server="", text=text, hint=hint)
    lookup = _LOOKUP.search(answer)
    volume = _VOLUME.search(answer)
    data = _data_of(volume["volume"], cluster) if volume else ""
    if lookup:
        server = lookup["server"]
        text = f"the engine cannot look up the server {server}: {lookup['why'].strip()}"
        hint = f"write its address, or correct the name: kit ssh {host} -- getent hosts {server}"
        return MountFault(data=data, server=server, text=text, hint=hint)
    match = _MOUNT.search(answer)
    if match is None:
        return None
    lustre = "@" in match["device"]
    server = _server_of(match["device"], match["options"] or "")
    why = match["why"].strip()
    what = "Lustre" if lustre else "NFS"
    return MountFault(
        data=data,
        server=server,
        text=f"the engine cannot mount {what} from {server}: {why}",
        hint=_hint(why, server, host, lustre=lustre),
    )


def described(fault: MountFault) -> str:
    """Return the fault as one sentence that names the data set, if it is known."""
    return f"the data set {fault.data}: {fault.text}" if fault.data else fault.text


def _server_of(device: str, options: str) -> str:
    """Return ADDRESS or ADDRESS:PORT of an NFS server, or the NIDs of Lustre's."""
    values = dict(word.partition("=")[::2] for word in options.split(","))
    if "addr" in values:
        return values["addr"] + (f":{values['port']}" if "port" in values else "")
    return device.partition(":/")[0] or device


def _data_of(volume: str, cluster: str) -> str:
    beginning = names.data_container(cluster, "")
    return volume.removeprefix(beginning).rpartition("-")[0] if volume.startswith(beginning) else ""


def _hint(why: str, server: str, host: str, *, lustre: bool) -> str:
    hint = (_FOR_LUSTRE if lustre else _FOR_NFS).get(why) or _HINTS.get(why, _OTHER)
    return hint.format(host=host, server=server, port=server.partition(":")[2] or "2049")


_REACH = "open port {port}/tcp from the VMs to {server} (firewall, security group), and check that the server runs"
_ALIKE = ("connection timed out", "no route to host", "network is unreachable", "host is down", "input/output error")
_REFUSED = "let the server export it to the address of {host}, then: kit deploy"
_HINTS = {
    **dict.fromkeys(_ALIKE, _REACH),
    "connection refused": "start the server at {server}, or correct from: in kit.yaml, then: kit deploy",
    "permission denied": _REFUSED,
    "operation not permitted": _REFUSED,
    "no such file or directory": "correct the path in from: of kit.yaml; a server also hides what it does not export",
}
_OLD = "does the server have NFS 4.1? If not, mount it on the VMs yourself, and name the folder in volumes:"
_FOR_NFS = {
    "no such device": "the kernel of {host} has no NFS client: kit ssh {host} -- sudo modprobe nfs",
    "protocol not supported": _OLD,
    "invalid argument": _OLD,
}
_FOR_LUSTRE = {
    "no such device": "install Lustre's client on {host}, in the version that the server's vendor names",
    **dict.fromkeys(_ALIKE, _REACH.replace("{port}", "988")),
}
_OTHER = "see what the kernel says: kit ssh {host} -- sudo dmesg; docs/data.md has the options of the mount"
