"""Brings the code of a run to its hosts, before the run starts: a snapshot of a folder, the same on each host."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kit.errors import InputError, KitError, NotReadyError, UnreachableError
from kit.events import Reporter, Warned
from kit.flows.context import Context
from kit.flows.run.commits import bring_taken, snapshot_of
from kit.flows.run.shipping import from_host, lacking_of, raise_first, shipped, with_head
from kit.model.code import Snapshot
from kit.model.launch import ClusterRecord
from kit.model.repository import PREFIX, is_repository, repository, without_login
from kit.plan.run.code_record import code_record
from kit.remote.run.door import Door

# A file that changes between its hash and its pack makes kit take another snapshot, this often at most.
TRIES = 3


class Code(Protocol):
    """The code of a run. `digest` names its snapshot, and `record` is what the run's record keeps about it."""

    @property
    def digest(self) -> str: ...

    @property
    def record(self) -> Mapping[str, Any]: ...

    def has_folder(self, path: str) -> bool:
        """Return whether the snapshot has this folder."""

    def bring(self, context: Context, door: Door, cluster: ClusterRecord, hosts: Sequence[str]) -> None:
        """Bring the code to the head and to `hosts`. Raises the error of the first host that cannot get it."""

    def retake(self, error: KitError) -> bool:
        """Return whether there is a newer snapshot, after `bring` failed with this error."""


class Taken:
    """The code in a folder or repository. A thread takes the snapshot while kit connects; what needs it waits.

    `context` is that of the cluster whose head may fetch a commit, or None.
    """

    def __init__(self, source: str, reporter: Reporter, context: Context | None = None) -> None:
        self._source = source
        self._reporter = reporter
        self._context = context
        self._tries = TRIES
        self._noted = False
        self._begin()

    def _begin(self) -> None:
        self._tries -= 1
        self._snapshot: Snapshot | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._take, name="kit-code", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        try:
            self._snapshot = snapshot_of(self._source, self._reporter, self._context)
        except BaseException as error:
            self._error = error

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot, or raise what went wrong."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._snapshot is None:
            raise RuntimeError("the snapshot has no result")
        if not self._noted:
            self._noted = True
            for note in self._snapshot.notes:
                self._reporter.report(Warned(text=note, hint="clone the repository, and write code: FOLDER"))
        return self._snapshot

    @property
    def digest(self) -> str:
        return self.snapshot.digest

    @property
    def record(self) -> Mapping[str, Any]:
        return code_record(self.snapshot)

    def has_folder(self, path: str) -> bool:
        from kit.remote.code.manifests import has_folder  # noqa: PLC0415

        return has_folder(self.snapshot.manifest, path)

    def bring(self, context: Context, door: Door, cluster: ClusterRecord, hosts: Sequence[str]) -> None:
        bring_taken(context, door, self._source, self.snapshot, cluster=cluster, hosts=hosts)

    def retake(self, error: KitError) -> bool:
        from kit.remote.code.pack import Changed  # noqa: PLC0415

        if not isinstance(error, Changed) or not self._tries:
            return False
        self._begin()
        return True


class Stored:
    """The code of an earlier run, which the hosts may still have. `record` is what that run's record says about it."""

    def __init__(self, run: str, record: Mapping[str, Any]) -> None:
        self._run = run
        self.record = record
        self.digest = str(record["digest"])

    def has_folder(self, path: str) -> bool:
        from kit.remote.code.manifests import has_folder, recall  # noqa: PLC0415

        text = recall(self.digest)
        # If another machine took the snapshot, only the hosts know its folders.
        return text is None or has_folder(text, path)

    def bring(
        self, context: Context, door: Door, cluster: ClusterRecord, hosts: Sequence[str], *, ask: bool = False
    ) -> None:
        """Ask the hosts for the snapshot. If some lack it, take it again from the folder, if that is the same still.

        `ask`: also ask those that have it by what the head says. A host that was taken down and deployed again lost it.
        Raises NotReadyError if kit can take it from nowhere.
        """
        lacking = lacking_of(context, door, self.digest, hosts)
        if ask:
            lacking = list(dict.fromkeys([*lacking, *hosts]))
        if not lacking:
            return
        from kit.remote.ship.porter.manifest import EMPTY  # noqa: PLC0415

        # A pack with nothing but the snapshot's name: a host that lacks the snapshot refuses it.
        name = Snapshot(folder=Path("/"), manifest=EMPTY, digest=self.digest, files=0, size=0, git=None)
        failures, without = shipped(context, name, EMPTY, cluster, lacking, door=door)
        raise_first(context, failures, lacking)
        holder = next((host for host in with_head(context, lacking) if host not in without), None)
        if without and not (holder and from_host(context, self.digest, holder, cluster, without, door=door)):
            source, snapshot = self._rebuilt(context, without)
            bring_taken(context, door, source, snapshot, cluster=cluster, hosts=without, sure=True)

    def _rebuilt(self, context: Context, without: Sequence[str]) -> tuple[str, Snapshot]:
        """Return from where kit could take the snapshot again, and the snapshot."""
        for source in sources_of(self.record, context.spec.code_source):
            try:
                snapshot = snapshot_of(source, context.reporter, context)
            except (InputError, UnreachableError):
                continue
            if snapshot.digest == self.digest:
                return source, snapshot
        raise lost(self._run, self.record, without)

    def retake(self, error: KitError) -> bool:  # noqa: ARG002
        return False


def sources_of(record: Mapping[str, Any], current: str | None) -> list[str]:
    """Return where the code of an earlier run may still be: where it was, and where kit.yaml has it now.

    Of a repository, that is the run's commit. The record has no login, so one in kit.yaml for the same URL counts.
    """
    old = str(record.get("folder", ""))
    if not is_repository(old):
        return list(dict.fromkeys(filter(None, [old, current])))
    try:
        url = repository(old).url
    except ValueError:
        # The head's record names no repository that kit could fetch.
        return [current] if current else []
    if current and is_repository(current) and without_login(repository(current).url) == url:
        url = repository(current).url
    return [f"{PREFIX}{url}@{record.get('commit', '')}"]


def lost(run: str, record: Mapping[str, Any], hosts: Sequence[str]) -> NotReadyError:
    """Return the error for code that hosts lack, and that this machine cannot take again."""
    folder, commit = record.get("folder", ""), record.get("commit", "")
    hint = f"run today's code: kit run --again {run} --code ."
    changed = f"{folder} no longer gives it" if is_repository(folder) else f"{folder} has changed since"
    if commit and not is_repository(folder):
        steps = f"git checkout {commit}"
        if record.get("diff") or record.get("diff64"):
            steps += f"; kit runs show {run} --diff | git apply"
        hint += f"; or go back to that code in {folder} ({steps}), then repeat this command"
    return NotReadyError(f"the code of run {run} is no longer there, and {changed}", hint=hint, host=hosts[0])


def check_workdir(workdir: str, code: Code | None) -> None:
    """Raise InputError if the code has no such folder. '' is its top."""
    if workdir and code is None:
        raise InputError(
            f"--workdir {workdir} is a folder of the code, and this run has none",
            hint="add --code DIR, or write code: . in kit.yaml",
        )
    if workdir and code and not code.has_folder(workdir):
        raise _no_folder(workdir)


def check_folder(source: str | None, workdir: str) -> None:
    """Check the code of a dry run, which takes no snapshot: raise the InputError that a run would raise at once.

    A repository is not checked, because that takes a connection.
    """
    if source is None:
        check_workdir(workdir, None)
    elif not is_repository(source):
        from kit.remote.code.snapshot import checked  # noqa: PLC0415  (only where a run has code)

        top = checked(Path(source))
        if workdir and not (top / workdir).is_dir():
            raise _no_folder(workdir)


def _no_folder(workdir: str) -> InputError:
    return InputError(
        f"the code has no folder {workdir}",
        hint="write a folder of the code, relative to its top; is it in .gitignore or .kitignore, or empty?",
    )
