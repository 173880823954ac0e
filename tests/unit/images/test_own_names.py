"""own-names.sh makes a node's /etc/hosts from that of its VM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "images/bin/own-names.sh"
LOCALHOST = "127.0.0.1\tlocalhost\n"


def names(of_the_vm: str, *, name: str = "gpu1") -> str:
    words = [str(PROGRAM), "10.0.0.2", name]
    return subprocess.run(words, input=of_the_vm, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("of_the_vm", "of_the_node"),
    [
        (f"{LOCALHOST}127.0.1.1 gpu1\n", f"10.0.0.2\tgpu1\n{LOCALHOST}"),
        # hostname -f prints the first name of the line.
        ("127.0.1.1 gpu1.example.com gpu1 # cloud-init\n", "10.0.0.2\tgpu1.example.com gpu1\n"),
        ("127.0.0.1 localhost gpu1\n", f"10.0.0.2\tgpu1\n{LOCALHOST}"),
        ("::1 ip6-localhost ip6-loopback gpu1\n", "10.0.0.2\tgpu1\n::1\tip6-localhost ip6-loopback\n"),
        ("127.0.1.1 gpu1\n::1 gpu1\n", "10.0.0.2\tgpu1\n"),
        # Another network of the VM.
        ("192.168.7.2\tgpu1 storage-of-gpu1\n", "10.0.0.2\tgpu1 storage-of-gpu1\n"),
        # A name server knows it, or nobody does.
        (LOCALHOST, f"10.0.0.2\tgpu1\n{LOCALHOST}"),
        ("", "10.0.0.2\tgpu1\n"),
    ],
)
def test_the_own_name_stands_for_the_address_in_the_cluster(of_the_vm: str, of_the_node: str) -> None:
    assert names(of_the_vm) == of_the_node


def test_other_lines_stay_as_they_are() -> None:
    others = "# gpu1 is this host\n\n 10.0.0.9\tnfs  gpu10 # gpu1\n10.0.0.3 gpu2 my-gpu1 *\\n\nff02::1 ip6-allnodes\n"
    assert names(others) == f"10.0.0.2\tgpu1\n{others}".replace("\n 10.0.0.9", "\n10.0.0.9")


def test_a_last_line_may_lack_its_end() -> None:
    assert names("127.0.1.1 gpu1") == "10.0.0.2\tgpu1\n"


def test_a_name_with_a_domain() -> None:
    text = "127.0.1.1 gpu1.example.com gpu1\n"
    assert names(text, name="gpu1.example.com") == "10.0.0.2\tgpu1.example.com gpu1\n"
