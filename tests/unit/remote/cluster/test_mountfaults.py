"""What an engine's words about a mount become. `no such device` is as an engine 20.10 without these clients says it."""

from __future__ import annotations

import pytest

from kit.remote.cluster.mountfaults import described, mount_fault

AT = "/var/lib/docker/volumes/kit-lab-data-web-text-4956d767/_data"
ERROR = f"Error response from daemon: error while mounting volume '{AT}': "
NFS = f"{ERROR}failed to mount local volume: mount :/x:{AT}, flags: 0x1, data: addr=10.0.0.9,nfsvers=4.1: "
DEVICE = "10.0.0.5@tcp:/fs"
LUSTRE = NFS.replace("mount :/x", f"mount {DEVICE}").replace("addr=10.0.0.9,nfsvers=4.1", f"flock,device={DEVICE}")


@pytest.mark.parametrize(
    ("answer", "text", "hint"),
    [
        (f"{NFS}no such device", "mount NFS from 10.0.0.9: no such device", "kit ssh gpu2 -- sudo modprobe nfs"),
        (
            f"{LUSTRE}no such device",
            "mount Lustre from 10.0.0.5@tcp: no such device",
            "install Lustre's client on gpu2",
        ),
        (f"{NFS}connection refused\n\nmore", "from 10.0.0.9: connection refused", "start the server at 10.0.0.9"),
        (
            f"{NFS}connection timed out",
            "from 10.0.0.9: connection timed out",
            "open port 2049/tcp from the VMs to 10.0.0.9",
        ),
        (f"{LUSTRE}input/output error", "from 10.0.0.5@tcp: input/output error", "open port 988/tcp"),
        (f"{NFS}permission denied", "permission denied", "export it to the address of gpu2"),
        (f"{NFS}no such file or directory", "no such file or directory", "correct the path in from:"),
        (f"{NFS}protocol not supported", "protocol not supported", "NFS 4.1"),
        (f"{NFS}stale file handle", "stale file handle", "kit ssh gpu2 -- sudo dmesg"),
        (NFS.replace("9,nfs", "9,port=2050,nfs") + "no route to host", "from 10.0.0.9:2050", "open port 2050/tcp"),
        (
            f"{ERROR}error resolving passed in network volume address: lookup nas.example on 10.0.0.2:53: no such host",
            "the engine cannot look up the server nas.example: no such host",
            "kit ssh gpu2 -- getent hosts nas.example",
        ),
    ],
)
def test_a_mount_that_failed_names_its_server_and_what_to_do(answer: str, text: str, hint: str) -> None:
    fault = mount_fault(answer, "lab", "gpu2")
    assert fault is not None
    assert described(fault).startswith("the data set web-text: the engine cannot ")
    assert text in described(fault)
    assert hint in fault.hint


def test_the_volume_of_a_stager_names_no_data_set() -> None:
    fault = mount_fault(f"{NFS}connection refused".replace("kit-lab-data-web-text-4956d767", "06a2981c"), "lab", "gpu2")
    assert fault is not None
    assert described(fault) == "the engine cannot mount NFS from 10.0.0.9: connection refused"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Error response from daemon: No such image: kit:cpu",
        "Error response from daemon: error while mounting volume '/x/_data': disk on fire",
    ],
)
def test_other_faults_are_not_of_a_mount(answer: str) -> None:
    assert mount_fault(answer, "lab", "gpu2") is None
