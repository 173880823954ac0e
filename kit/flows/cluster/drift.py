"""Whether kit.yaml differs from what is deployed, and the digest of the file that `requirements:` names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit.config.text import text_of
from kit.errors import InputError
from kit.model.spec import ClusterSpec
from kit.plan.cluster import drift

# Shown in place of a digest. No digest looks like that, so it always differs from what is deployed.
MISSING, UNREADABLE = "the file is missing", "the file cannot be read"


def requirements_digest(spec: ClusterSpec) -> str | None:
    """Return a digest of the file that `requirements:` names. Return None if kit.yaml names none.

    Without a readable file, returns MISSING or UNREADABLE. A deploy explains why it cannot use the file.
    """
    if spec.requirements is None:
        return None
    try:
        text = text_of(Path(spec.requirements))
    except InputError:
        return UNREADABLE
    return MISSING if text is None else hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(deployed: Mapping[str, Any], spec: ClusterSpec) -> tuple[str, ...]:
    """Return `shm_size: 1gb → 2gb` for each setting that differs from the record of the deploy."""
    return drift.differences(deployed, spec, requirements=requirements_digest(spec))
