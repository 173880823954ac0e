"""Real images for tf_benchmark, mxnet_benchmark and torch_benchmark: the flags, and a rank's part of the shards.

This module imports nothing heavy. Every rank calls the functions with `gather`, which returns the values of all ranks.
"""

import argparse
import os
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

import _benchmark
import kit_shards

CLASSES = 1000
# The share of their time that the ranks waited for images, in the output.
WAITED = "input_wait"
Gather = Callable[[Any], Sequence[Any]]


class Place(NamedTuple):
    """Where this rank is: in the job, and on its node."""

    rank: int
    size: int
    local_rank: int
    local_size: int


class Share(NamedTuple):
    """This rank's images. `steps`: those of an epoch, the same on all ranks. `text` describes the images of all."""

    pieces: List[kit_shards.Piece]
    shards: kit_shards.Shards
    part: int
    parts: int
    steps: int
    text: str


def add(parser: argparse.ArgumentParser, words: str, first_label: str) -> Any:
    """Add the flags, and return their group. `words` say what can be read, `first_label` where its labels begin."""
    group = parser.add_argument_group("real images (without --data they are synthetic)")
    group.add_argument("--data", nargs="+", metavar="NAME", help=words)
    group.add_argument(
        "--epochs", type=_benchmark.positive, metavar="N",
        help="measure N whole epochs, after --num-iters measurements of synthetic images",
    )  # fmt: skip
    group.add_argument(
        "--num-parallel-calls", type=_benchmark.natural, metavar="N",
        help="images to decode at a time (cores of the host / its ranks); 0: the framework chooses",
    )  # fmt: skip
    group.add_argument("--classes", type=_benchmark.positive, metavar="N", help="outputs of the model (1000)")
    group.add_argument(
        "--first-label", type=_benchmark.natural, metavar="N", help="the lowest label (%s)" % first_label
    )
    return group


def check(prog: str, args: argparse.Namespace) -> None:
    """Refuse flags that have no meaning, before anything heavy is imported."""
    if args.epochs and not args.data:
        _benchmark.wrong(prog, "--epochs: synthetic images have no epochs; name the images with --data")


def useless(args: argparse.Namespace) -> Iterator[str]:
    """Yield a line for flags that do nothing without --data."""
    flags = [name for name in ("num_parallel_calls", "first_label") if getattr(args, name) is not None]
    if flags and not args.data:
        words = ", ".join("--" + name.replace("_", "-") for name in flags)
        yield "%s: without --data no image is read, so that does nothing" % words


def options(args: argparse.Namespace, first_label: int) -> Dict[str, Any]:
    """Return the flags that differ from their defaults."""
    defaults = {
        "data": None,
        "epochs": None,
        "num_parallel_calls": None,
        "classes": CLASSES,
        "first_label": first_label,
    }
    values = {name: getattr(args, name) for name in defaults}
    return {name: value for name, value in values.items() if value is not None and value != defaults[name]}


def decoders(args: argparse.Namespace) -> int:
    """Return the images to decode at a time; 0 lets the framework choose."""
    return max(1, _benchmark.cores_a_rank()) if args.num_parallel_calls is None else int(args.num_parallel_calls)


def agree(prog: str, gather: Gather, problem: Optional[str]) -> None:
    """End all ranks if one of them has a problem. The first rank prints it, with the rank and the host."""
    problems = gather((os.uname().nodename, problem))
    for rank, (host, text) in enumerate(problems):
        if text:
            alike = all(other == text for _, other in problems)
            _benchmark.wrong(prog, text if alike else "rank %d on %s: %s" % (rank, host, text))


def share(
    prog: str,
    args: argparse.Namespace,
    kind: str,
    place: Place,
    gather: Gather,
    *,
    check_first: Callable[[kit_shards.Piece], Optional[str]] = lambda _: None,
) -> Share:
    """Return this rank's part of the images of --data. If a rank has none or cannot read them, end all ranks.

    `check_first(piece)` returns what is wrong with the first image of a file, or None.
    """
    shards, problem = None, None
    try:
        shards = kit_shards.find(args.data, kind, os.environ)
    except kit_shards.DataProblem as error:
        problem = str(error)
    agree(prog, gather, problem)
    assert shards
    seen = gather((len(shards.paths), sum(shards.sizes), shards.split))
    if len({split for _, _, split in seen}) > 1:
        _benchmark.wrong(prog, "--data: only some nodes know that it is split over the hosts; run kit deploy")
    different = "" if shards.split else kit_shards.disagreement([pair[:2] for pair in seen])
    if different:
        _benchmark.wrong(prog, different)
    part, parts = (place.local_rank, place.local_size) if shards.split else (place.rank, place.size)
    pieces: List[kit_shards.Piece] = []
    try:
        pieces = kit_shards.deal(shards, part, parts)
        problem = check_first(pieces[0])
    except kit_shards.DataProblem as error:
        problem = str(error)
    agree(prog, gather, problem)
    counts = [int(count) for count in gather(sum(piece.size for piece in pieces))]
    steps = kit_shards.steps(counts, args.batch_size)
    text = describe(kind, counts, steps, [len(shards.paths)] if not shards.split else _of_hosts(gather, place, shards))
    return Share(pieces, shards, part, parts, steps, text)


def _of_hosts(gather: Gather, place: Place, shards: kit_shards.Shards) -> List[int]:
    """Return the number of files on each host."""
    return [files for files, local_rank in gather((len(shards.paths), place.local_rank)) if local_rank == 0]


def describe(kind: str, counts: Sequence[int], steps: int, files: Sequence[int]) -> str:
    """Return a line on the images. `counts`: those of each rank. `files`: those of each host if they are split."""
    images_per_rank = "%d" % counts[0] if min(counts) == max(counts) else "%d to %d" % (min(counts), max(counts))
    where = ", split over %d hosts" % len(files) if len(files) > 1 else ""
    words = (sum(counts), kit_shards.KINDS[kind].files, sum(files), where, images_per_rank, steps)
    return "Images: %d in %s (%d%s), %s a rank, %d steps an epoch" % words


class Clock:
    """Measures which share of its time a rank waits for images."""

    def __init__(self) -> None:
        self._since, self._waited = time.monotonic(), 0.0

    def wait(self, take: Callable[[], Any]) -> Any:
        """Return what `take()` returns."""
        began = time.monotonic()
        taken = take()
        self._waited += time.monotonic() - began
        return taken

    def share(self) -> float:
        """Return the share since the last call."""
        now = time.monotonic()
        share = self._waited / max(1e-9, now - self._since)
        self._since, self._waited = now, 0.0
        return share


def measure(
    report: _benchmark.Report,
    args: argparse.Namespace,
    share: Optional[Share],
    *,
    made_up: Callable[[], object],
    fed: Callable[[], Tuple[Callable[[], object], "Clock"]],
    total: Callable[[List[float]], Any],
) -> None:
    """Measure synthetic images (`made_up`), real ones, or whole epochs. `fed()` returns a real step and its clock.

    `total(values)` sums over the ranks.
    """
    if not share:
        for note in useless(args):
            report.note(note)
        report.measure(made_up, total)
        return
    report.say("%s, decoded %s at a time" % (share.text, decoders(args) or "as the framework likes"))
    step, clock = fed()

    def watch() -> Dict[str, float]:
        sums = total([clock.share(), 1.0])
        return {WAITED: round(float(sums[0]) / float(sums[1]), 4)}

    if args.epochs:
        report.measure_epochs(made_up, step, total, watch, steps=share.steps)
    else:
        report.measure(step, total, watch)


def broken(prog: str, rank: int, why: object) -> NoReturn:
    """End this rank, and so the run, at once with exit code 2: an orderly end would wait for ranks that wait for it."""
    print("%s: rank %d on %s, --data: %s" % (prog, rank, os.uname().nodename, why), file=sys.stderr, flush=True)
    os._exit(2)


def outside(label: Any, first_label: int, classes: int) -> str:
    """Return the words for a label that is none of the model's."""
    return "label %s is not within %d to %d: --first-label says where labels begin, --classes how many there are" % (
        label,
        first_label,
        first_label + classes - 1,
    )
