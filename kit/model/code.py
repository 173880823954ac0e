"""Code that a run takes along: a snapshot of a folder, and the pack that brings it to the hosts."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class GitFacts(Struct, frozen=True, kw_only=True):
    """What git says about a snapshot's folder.

    `commit` is "" before the first commit. `branch` is "" if no branch is checked out. `dirty`: the folder differs from
    the commit, or has files that git does not track. `diff` is the difference of the tracked files in the folder, up
    to a limit; `cut` says that it is longer. `url` is that of the remote `origin` without a login, or "".
    """

    commit: str
    branch: str
    dirty: bool
    diff: bytes
    cut: bool
    url: str


class Snapshot(Struct, frozen=True, kw_only=True):
    """A folder's content at one time. `digest` is the SHA-256 of `manifest`; `size` is in bytes, of all files.

    `git` is None outside of a git work tree. `source` is what you wrote instead of a folder, without a login, or ''.
    `notes` are sentences about what the snapshot lacks. `holder` is None if the files are in `folder`. Otherwise it is
    the name of the host whose store has them, or '' if kit does not know one.
    """

    folder: Path
    manifest: bytes
    digest: str
    files: int
    size: int
    git: GitFacts | None
    source: str = ""
    notes: tuple[str, ...] = ()
    holder: str | None = None


class Pack(Struct, frozen=True, kw_only=True):
    """A file with what turns the snapshot `base` into the snapshot `digest`. None as `base`: it has everything.

    `sha256` and `size` are those of the file at `path`.
    """

    path: Path
    sha256: str
    size: int
    digest: str
    base: str | None


class Needed(Struct, frozen=True, kw_only=True):
    """The digests of the snapshots that living and waiting runs need, by the head's list.

    `at` is when kit asked for the list, by this machine's clock, in seconds since 1970: the head made it later.
    """

    digests: tuple[str, ...] = ()
    at: float

    def age_s(self, now: float) -> float:
        """Return how old the list is at most, in seconds."""
        # That clock also counts while this machine sleeps. It may have been set back.
        return max(0.0, now - self.at)

    def joined(self, newer: Needed) -> Needed:
        """Return both lists as one, as old as this one.

        A run that got its code in between may have begun only after the newer list.
        """
        return Needed(digests=tuple(dict.fromkeys([*self.digests, *newer.digests])), at=self.at)
