"""kit tensorboard and kit forward with the TensorBoard of the cpu image: it shows what a run wrote, until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from typing import Any

from tests.integration.rig import Cluster, until

LOSSES = [3.0, 2.0, 1.0]
WRITE = f"""
import os
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["KIT_OUTPUT_DIR"])
for step, loss in enumerate({LOSSES}):
    writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=loss)])))
writer.close()
"""
# What listens on a VM: address, port and program.
LISTENER = re.compile(r'\s(\S+):(\d+)\s+\S+\s+users:\(\("(tensorboard)"')


def test_a_real_tensorboard_shows_a_run_and_ends_with_kit(cluster: Cluster) -> None:
    done = cluster.kit("run", "--np", "1", "--", "python3", "-c", WRITE)
    assert done.returncode == 0, done.stderr
    with cluster.running("tensorboard", "latest", "--port", "0", "--json") as board:
        value = first(board)
        assert value["host"] == cluster.head.name
        # It reads the files in its own time.
        tags = until("TensorBoard has read the run", lambda: get(f"{value['url']}data/plugin/scalars/tags"))
        assert list(tags) == ["output"]
        rows = get(f"{value['url']}data/plugin/scalars/scalars?run=output&tag=loss")
        assert [(step, loss) for _, step, loss in rows] == list(enumerate(LOSSES))

        ((address, port, _),) = LISTENER.findall(cluster.head.text("ss", "-Hltnp"))
        assert address == "127.0.0.1"
        with cluster.running("forward", cluster.head.name, f"0:{port}", "--json") as forward:
            (one,) = first(forward)["ports"]
            page = text(f"http://127.0.0.1:{one['local']}/")
            assert "<title>TensorBoard</title>" in page

        board.send_signal(signal.SIGINT)
        assert board.wait(60) == 0
    until("no TensorBoard is left", lambda: not LISTENER.findall(cluster.head.text("ss", "-Hltnp")))


def first(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the object that a verb prints when its port is open."""
    assert process.stdout
    line = process.stdout.readline()
    assert line, process.communicate()
    value: dict[str, Any] = json.loads(line)
    return value


def text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  (a port of this machine)
        return str(answer.read().decode())


def get(url: str) -> Any:
    return json.loads(text(url))
