"""A kit-data that answers what a test has written, so that a test can show kit each fault of a stager.

kit-data serve   runs until it is killed
kit-data order   reads an order, notes it in engine/heard, and writes the answers for it in engine/answers.json:
                 {"stage": [{"done": …}]}. An answer that is a text is written unchanged. {"wait": "FILE"} waits until
                 engine/FILE exists; {"end": CODE} ends with this exit code. With the argument hello, it says before
                 what it answers to a hello, as the real one does.
The tests of real stagers are tests/contract/test_stager.py.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ENGINE = Path(os.environ.get("KIT_STUB_ROOT", "/nonexistent")) / "engine"
USUAL = {
    "hello": [{"hello": {"version": 1, "staging": None, "lead": False}}],
    "join": [{"joined": {"port": 4000, "free": 10**12}}],
    "stop": [{"stopped": True}],
}


def answers_to(op: str) -> list[Any]:
    written = ENGINE / "answers.json"
    answers = {**USUAL, **(json.loads(written.read_text()) if written.exists() else {})}
    return list(answers.get(op, []))


def order(*, hello: bool) -> int:
    if hello:
        for answer in answers_to("hello"):
            sys.stdout.write(f"kit-data hello {json.dumps(answer)}\n")
        sys.stdout.write("kit-data go\n")
        sys.stderr.write("taken\n")
        sys.stderr.flush()
        sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        return 0
    asked = json.loads(line)
    with (ENGINE / "heard").open("a") as file:
        file.write(json.dumps(asked) + "\n")
    for answer in answers_to(asked["op"]):
        if isinstance(answer, dict) and "wait" in answer:
            while not (ENGINE / answer["wait"]).exists():
                time.sleep(0.005)
        elif isinstance(answer, dict) and "end" in answer:
            return int(answer["end"])
        else:
            sys.stdout.write(answer if isinstance(answer, str) else json.dumps(answer) + "\n")
            sys.stdout.flush()
    # An order's process stays until its last answer; kit hangs up before.
    if asked["op"] in ("stage", "watch", "feed"):
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        sys.stdin.read()
        time.sleep(3600)
    sys.exit(order(hello=sys.argv[2:] == ["hello"]))
