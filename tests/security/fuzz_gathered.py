"""What a head answers that fetches a commit: reports, and the list of its files. `read` may raise only KitError."""

from __future__ import annotations

import base64
import json

from kit.errors import StepError
from kit.model.answer import OddAnswer
from kit.model.repository import Repository
from kit.remote.code import gathered, gatherer
from kit.remote.ship.porter import delta, manifest
from tests.security import fuzz_code

SOURCE = Repository(url="https://example.com/team/net.git", ref="main")


def _listed(lines: bytes, ignore: bytes | None = None) -> bytes:
    packed = [None if part is None else base64.b64encode(part).decode() for part in (lines, ignore)]
    return json.dumps({"listed": {"lines": packed[0], "ignore": packed[1], "without": ["lib"]}}).encode()


SAMPLES: tuple[bytes, ...] = (
    _listed(fuzz_code.MANIFEST, b"*.log\n!kept.log\n/only\n"),
    _listed(manifest.EMPTY),
    b'{"beat": true}',
    b'{"failed": "no route to host", "kind": "git"}',
    # The list itself, so that its bytes change, too.
    fuzz_code.MANIFEST,
    manifest.EMPTY + b"d\t755\t-\t0\tempty\\nfolder\n",
)


def read(answer: bytes) -> None:
    """Read the answer as a report, and as the list in one. A snapshot that kit makes of it has to be valid."""
    try:
        reports = [gatherer.read(_listed(answer))]
        if not answer.startswith(manifest.HEADER[:3]):
            reports.append(gatherer.read(answer))
        for listed in [report.listed for report in reports if report.listed]:
            text, change = gathered._snapshot(SOURCE, listed)
            manifest.parse(text)
            everything = base64.b64decode(listed.lines)
            if delta.merge(everything, change.removed, change.added) != text:
                raise AssertionError("the head would make another snapshot")
    except (OddAnswer, manifest.BadManifest) as error:
        raise StepError(str(error), host="bad") from error
