"""A kit.yaml of a stranger, as every verb reads it, and as kit tune changes it. `read` may raise only KitError."""

from __future__ import annotations

from kit.config import edit
from kit.config.sample import sample_config
from kit.config.text import decoded
from kit.config.yaml import load_spec
from kit.plan.lab import lab_of, whose

SAMPLES: tuple[bytes, ...] = (
    sample_config().encode(),
    b"""\
name: resnet-lab
image: {flavour: ssh-layer, base: "nvcr.io/nvidia/tensorflow:23.03-tf2-py3"}
ssh: {user: ubuntu, port: 2222, key: ~/.ssh/id, known_hosts: ./known_hosts}
network: 10.1.2.3/16
slots: 4
volumes:
- /data:/data:ro
- cache:/root/.cache
env: {OMP_NUM_THREADS: 4, VERSION: 1.10, OCTAL: 010, TIME: 1:30, DAY: 2024-01-02, EMPTY: ""}
data:
  web: {from: s3://corpus/web, to: /data/web, stage: ram, size: 60gb, split: hosts}
  images: {from: nfs://10.0.0.9/images, to: /data/images, stage: none}
  labels: {from: ../labels, to: /data/labels, dir: /nvme, write: yes}
runs: {ttl_days: 36h, keep: 10}
code: git+https://example.com/team/repository@main
mpi:
  bind_to: none
  # kit tune: the network has one way
  args: --mca btl '^openib'
command: [python3, /data/train.py, --epochs, 90]
""",
    b"<<: {name: x}\nname: !!timestamp 2024-01-02\nvolumes: &a [x]\nenv: *a\n? [a]\n: b\n",
)
_NEW = (edit.NewSetting(section="env", key="OMP_NUM_THREADS", value="4", reason="four cores for each rank"),)


def read(answer: bytes) -> None:
    """Read the file, and do what kit lab and kit tune do with its text."""
    text = decoded(answer, source="kit.yaml")
    whose(text)
    lab_of(text)
    edit.tuned(text)
    load_spec(text, source="kit.yaml")
    edit.edited(text, _NEW, source="kit.yaml")
