"""Seeds a run's working folder on one node with the snapshot of the code that the run names.

The store is in the cluster's folder on the VM, which containers see read-only. kit writes it
(kit/remote/ship/porter/code.py has its layout), and kit/remote/ship/porter/manifest.py defines what a manifest is.
"""

import contextlib
import errno
import os
import sys
from typing import Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

from kitrun import settle, spare, store, tree
from kitrun.marks import Marks, digest_in, mark_of
from kitrun.snapshot import NoCode, Snapshot

STORE = "/etc/kit/code"
# On the head: touched when a node lacked the code of a run. What was confirmed before that may be wrong.
MISSING = "code.missing"
# The supervisor finds this in what mpirun prints.
MARK = "kit-code: "
# kit's exit code for a host on which a step failed.
HOST_FAILED = 4


def snapshots(stores: Optional[str] = None, root: Optional[str] = None) -> "Dict[str, List[str]]":
    """Return the snapshots that this head has, the newest first, with the hosts that are known to have each."""
    stores = stores or STORE
    since = 0.0
    with contextlib.suppress(OSError):
        since = os.stat(_missing(root)).st_mtime
    folder = os.path.join(stores, "manifests")
    by_age = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if len(name) == 64:
                with contextlib.suppress(OSError):
                    by_age.append((os.stat(os.path.join(folder, name)).st_mtime, name))
    hosts: Dict[str, List[str]] = {}
    for _, name in sorted(by_age, reverse=True):
        hosts[name] = []
        with contextlib.suppress(OSError), open(os.path.join(stores, "confirmed", name)) as file:
            if os.fstat(file.fileno()).st_mtime > since:
                hosts[name] = file.read().split()
    return hosts


def doubt(root: Optional[str] = None) -> None:
    """Write down, on the head, that a node lacked code that was confirmed."""
    with contextlib.suppress(OSError), open(_missing(root), "w", opener=store.private):
        pass


def _missing(root: Optional[str]) -> str:
    return os.path.join(os.path.dirname(root or store.ROOT), MISSING)


def seed(
    run_id: str, digest: str, began: float = 0.0, *, stores: Optional[str] = None, root: Optional[str] = None
) -> str:
    """Make the run's working folder with the snapshot, and return its path. A folder that is here stays the same.

    `began`: the head's clock before this launch. Raises NoCode if the snapshot is not here, and OSError if the disk is
    full.
    """
    run = store.Run(run_id, root)
    folder = run.path(settle.WORK)
    if os.path.isdir(folder):
        return folder
    snapshot = Snapshot(digest, stores or STORE)
    os.makedirs(run.folder, mode=0o700, exist_ok=True)
    partial, marks_file = run.path(settle.WORK + ".part"), spare.marks_path(run_id)
    tree.remove_path(partial)
    try:
        settle.begin(run, digest, began)
        marks = spare.take(partial, snapshot, root, marks_file) or _copied(partial, snapshot)
        os.rename(partial, folder)
    except BaseException:
        tree.remove_path(partial)
        spare.forget_marks(run_id)
        settle.forget(run)
        raise
    marks.top = mark_of(folder)
    # Without them, the run is settled more slowly, and leaves no spare.
    with contextlib.suppress(OSError):
        if digest_in(marks_file) == digest:
            # They were the spare's, and only the top has moved since.
            Marks.write_top(marks_file, marks.top)
        else:
            marks.write(marks_file)
    return folder


def _copied(path: str, snapshot: Snapshot) -> Marks:
    tree.make_folder(path)
    with tree.opened_top(path) as top:
        return snapshot.marks(tree.make(top, snapshot), tree.folder_marks(top, snapshot))


def why(error: Exception) -> str:
    """Return the reason in a line."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return "no space left for the working folder" if full else "the working folder cannot be made: %s" % error
    return str(error)


class Order(NamedTuple):
    """What the supervisor adds to the launch agent. `last`: no attempt follows, so the daemon's end is the run's.

    `living` are the runs that lived on the head at `began`.
    """

    began: float = 0.0
    last: bool = False
    living: Tuple[str, ...] = ()

    def word(self) -> str:
        return "order=%f,%d,%s" % (self.began, self.last, ":".join(self.living))

    @staticmethod
    def read(word: str) -> "Order":
        """Read what `word` wrote. Raises ValueError."""
        began, last, living = word[len("order=") :].split(",")
        return Order(float(began), last == "1", tuple(living.split(":")))


def with_order(argv: Sequence[str], run_id: str, digest: str, order: Order) -> List[str]:
    """Return mpirun's arguments with the order in the launch agent, `... kit-code RUN DIGEST orted`."""
    agent = " %s %s " % (run_id, digest)
    return [word.replace(agent, agent + order.word() + " ") if "kit-code" in word else word for word in argv]


def main(argv: Sequence[str]) -> NoReturn:
    """Seed the folder of a run on this node, and become the command: kit-code RUN DIGEST [ORDER] COMMAND [ARGUMENT...].

    Another process settles the folder when the command has ended (kitrun.settle).
    """
    if len(argv) < 3:
        sys.stderr.write("usage: kit-code RUN DIGEST [ORDER] COMMAND [ARGUMENT...]\n")
        sys.exit(2)
    run_id, digest, *command = argv
    try:
        order = Order.read(command.pop(0)) if command[0].startswith("order=") else Order()
        seed(run_id, digest, order.began)
    except (NoCode, OSError, ValueError) as error:
        # One write, so that the lines of several nodes do not mix.
        text = "%s%s: %s\n" % (MARK, os.environ.get("KIT_NODE", "-"), why(error))
        os.write(2, text.encode("utf-8", "backslashreplace"))
        sys.exit(HOST_FAILED)
    run = store.Run(run_id)
    held = settle.hold(run)
    if held is not None:
        os.set_inheritable(held, True)
        # Without another process, the next run settles the folder.
        with contextlib.suppress(OSError):
            settle.in_background(lambda: _tidy(run, order))
    os.execvpe(command[0], command, dict(os.environ, KIT_RUN=run_id))  # noqa: S606  (mpirun's daemon)


def _tidy(run: store.Run, order: Order) -> None:
    settle.settle_others(None, STORE, me=run.id, living=order.living, began=order.began)
    if order.last:
        settle.settle(run, STORE)
