"""Data sets of every kind, as kit.yaml names them."""

from __future__ import annotations

from kit.config.yaml import load_spec

TEXT = """\
data:
  imagenet: {from: s3://corpus/imagenet, to: /data/imagenet}
  web-text: {from: ./text, to: /data/text, stage: ram, size: 60gb, split: hosts}
  labels: {from: gpu1:/nvme/labels, to: /data/labels, dir: /nvme, write: true}
  shared: {from: nfs://10.0.0.9/exports/shared, to: /data/shared, stage: none}
  notes: {from: nfs://10.0.0.9:2050/notes$1, to: /data/notes, stage: none, write: true}
  scratch: {from: lustre://10.0.0.5@tcp:10.0.0.6@tcp/fs/scratch, to: /data/scratch, stage: none}
  nas: {from: nfs://0cd8b4a576-a.cn-hangzhou.nas.aliyuncs.com/share, to: /data/nas, stage: none}
  crawl: {from: s3://corpus/crawl, to: /data/crawl, stage: none}
  old: {from: nfs://10.0.0.7/old, to: /data/old, stage: none, options: "nfsvers=3,nolock,hard"}
"""
DATA = load_spec(TEXT, source="kit.yaml").data
