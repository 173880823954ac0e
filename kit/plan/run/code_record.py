"""What the record of a run says about its code: the snapshot, the commit, and how it differs from that."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kit.model.code import Snapshot


def code_record(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the record of a run says about its code."""
    git = snapshot.git
    place = snapshot.source or str(snapshot.folder)
    record = {"digest": snapshot.digest, "folder": place, "files": snapshot.files, "size": snapshot.size}
    if git is None:
        return record
    diff = {**diff_fields(git.diff), "diff_cut": git.cut} if git.dirty else {}
    return {**record, "commit": git.commit, "branch": git.branch, "origin": git.url, "dirty": git.dirty, **diff}


def diff_fields(diff: bytes) -> dict[str, str]:
    """Return the field of a record with the difference of the code: its text, or base64 of bytes that are no text."""
    try:
        return {"diff": diff.decode()}
    except UnicodeDecodeError:
        return {"diff64": base64.b64encode(diff).decode()}


def without_diff(code: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what a record says about its code (`code_record`) without the difference, and the fields of that."""
    diff = {name: code[name] for name in ("diff", "diff64") if name in code}
    return {name: value for name, value in code.items() if name not in diff}, diff


def diff_of(code: Mapping[str, Any]) -> bytes:
    """Return the difference that `diff_fields` put into what a record says about its code. Ranks may write to it."""
    text, packed = code.get("diff"), code.get("diff64")
    if text or not isinstance(packed, str):
        return str(text or "").encode("utf-8", "backslashreplace")
    try:
        return base64.b64decode(packed, validate=True)
    except ValueError:
        return b""
