"""Finds a data set of kit.yaml in a node, lists its shards, and deals their records to ranks.

kit sets $KIT_DATA_<NAME> in the nodes to the folder of a data set, and $KIT_DATA_<NAME>_SPLIT=hosts if each host has
only its own part of it. This module needs no framework. Sizes and offsets are bytes.
"""

import bisect
import glob
import itertools
import os
import re
from typing import Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

import kit_records

VARIABLE, SPLIT = "KIT_DATA_", "_SPLIT"
# How far, in shares of a rank's part, the border of two ranks may move to the border of two files.
SNAP = 0.05
# Some readers split files at multiples of this (dmlc's InputSplit, in MXNet).
ALIGN = 4


class DataProblem(Exception):
    """The data cannot be used. The text says why, and what to do."""


class Kind(NamedTuple):
    """A kind of shards. `pattern` matches the names of its files. `reader` is the benchmark for it."""

    name: str
    files: str
    pattern: str
    names: str
    reader: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("tfrecord", "TFRecord files", r"\.(tfrecords?|tfrec)$|-\d{5}-of-\d{5}$",
             "NAME.tfrecord, NAME.tfrec or NAME-00000-of-00001", "tf_benchmark"),
        Kind("recordio", "RecordIO files", r"\.rec$", "NAME.rec", "mxnet_benchmark"),
        Kind("webdataset", "WebDataset shards", r"\.tar$", "NAME.tar", "torch_benchmark"),
    )
}  # fmt: skip


class Shards(NamedTuple):
    """The shards of a data set on this host. `split`: other hosts have other shards."""

    kind: str
    paths: Tuple[str, ...]
    sizes: Tuple[int, ...]
    split: bool


class Piece(NamedTuple):
    """A rank's records in a file: `size` of them, after the first `skip`. WebDataset shards have them as `samples`.

    `skip` is 0 for RecordIO, whose reader finds them by itself.
    """

    path: str
    skip: int
    size: int
    samples: Tuple[kit_records.Sample, ...]


def variable(name: str) -> str:
    """Return the variable with the folder of a data set."""
    return VARIABLE + name.upper().replace("-", "_")


def data_sets(environ: Mapping[str, str]) -> List[str]:
    """Return the names of the data sets of this node, in order. Their spelling in kit.yaml may have - for _."""
    return sorted(
        key[len(VARIABLE) :].lower().replace("_", "-")
        for key, value in environ.items()
        if key.startswith(VARIABLE) and value.startswith("/")
    )


def find(words: Sequence[str], kind: str, environ: Mapping[str, str]) -> Shards:
    """Return the shards that `words` name: data sets (NAME or NAME/PATTERN), folders, files or patterns of files.

    Raises DataProblem if a word names no shard.
    """
    paths: Set[str] = set()
    splits: Set[bool] = set()
    for word in words:
        path, name = _place(word, environ)
        paths.update(_shards(word, path, kind, name, environ.get(variable(name), "")))
        splits.add(bool(name) and environ.get(variable(name) + SPLIT) == "hosts")
    if len(splits) > 1:
        raise DataProblem("--data %s: some are split over the hosts, and some are not" % " ".join(words))
    ordered = sorted(paths)
    try:
        sizes = tuple(os.path.getsize(path) for path in ordered)
    except OSError as error:
        raise DataProblem("--data: %s: %s" % (error.filename, error.strerror)) from None
    return Shards(kind, tuple(ordered), sizes, True in splits)


def _place(word: str, environ: Mapping[str, str]) -> Tuple[str, str]:
    """Return (path, name of the data set). The name is '' if `word` is a path outside of all data sets."""
    if os.path.isabs(word):
        folders = {environ[variable(name)]: name for name in data_sets(environ)}
        parents = [word[:end] for end, letter in enumerate(word + "/") if letter == "/"]
        return word, next((folders[parent] for parent in reversed(parents) if parent in folders), "")
    name, _, below = word.partition("/")
    folder = environ.get(variable(name), "")
    if folder.startswith("/"):
        return os.path.join(folder, below) if below else folder, name
    if not below and not glob.has_magic(word) and not os.path.exists(word):
        known = ", ".join(data_sets(environ))
        raise DataProblem(
            "--data %s: this node has no data set and no file of that name; %s. data: in kit.yaml adds one "
            "with the next kit deploy" % (word, "its data sets: " + known if known else "it has no data sets")
        )
    return word, ""


def _shards(word: str, path: str, kind: str, name: str, whole: str) -> List[str]:
    """Return the files that a word names. `whole`: the folder of its data set, '' without one."""
    if os.path.isdir(path):
        return _of_folder(word, path, name, kind)
    if os.path.exists(path):
        return [path]
    matches = sorted(glob.glob(path))
    folders = [item for item in matches if os.path.isdir(item)]
    if folders:
        raise DataProblem("--data %s: %s is a folder; say which files, '%s/*'" % (word, folders[0], folders[0]))
    if not matches:
        if name and not (os.path.isdir(whole) and _files(whole)):
            raise DataProblem(_not_staged(word, name))
        raise DataProblem(
            "--data %s: no file matches. Paths are the container's; data: or volumes: in kit.yaml adds folders" % word
        )
    return matches


def _of_folder(word: str, folder: str, name: str, kind: str) -> List[str]:
    files = _files(folder)
    if not files:
        raise DataProblem(_not_staged(word, name) if name else "--data %s: the folder has no file" % word)
    shards = of_kind(files, kind)
    if not shards:
        others = [other for other in KINDS.values() if of_kind(files, other.name)]
        hint = "".join("; it has %s, which %s reads" % (other.files, other.reader) for other in others)
        wanted = KINDS[kind]
        raise DataProblem("--data %s: %s has no %s (%s)%s" % (word, folder, wanted.files, wanted.names, hint))
    return training(folder, shards)


def _files(folder: str) -> List[str]:
    """Return all files below a folder. Raises DataProblem if it cannot be read, such as that of a lost mount."""

    def fail(error: OSError) -> None:
        raise DataProblem("--data: %s: %s" % (error.filename, error.strerror))

    tree = os.walk(folder, onerror=fail)
    return [os.path.join(place, name) for place, _, names in tree for name in names if not name.startswith(".")]


def _not_staged(word: str, name: str) -> str:
    return "--data %s: nothing of it is on this host; to bring it: kit data stage %s" % (word, name)


def of_kind(paths: Iterable[str], kind: str) -> List[str]:
    """Return the paths whose names are those of a kind's files."""
    return [path for path in paths if re.search(KINDS[kind].pattern, os.path.basename(path))]


def training(folder: str, paths: Sequence[str]) -> List[str]:
    """Return the files for training: those below a folder train, or named train…. All, if none is named so."""
    named = [
        path
        for path in paths
        if any(part == "train" for part in os.path.relpath(path, folder).split(os.sep)[:-1])
        or os.path.basename(path).startswith("train")
    ]
    return named or list(paths)


def borders(sizes: Sequence[int], parts: int, snap: float = SNAP) -> List[int]:
    """Return parts + 1 offsets in the joined files: a part has the records that begin between its two.

    Parts have about the same bytes. A border close to that of two files moves there, so that fewer files have to be
    read by two ranks.
    """
    edges = [0, *itertools.accumulate(sizes)]
    cuts = []
    for part in range(parts + 1):
        cut = edges[-1] * part // parts
        place = bisect.bisect_left(edges, cut)
        nearest = min(edges[max(0, place - 1) : place + 1], key=lambda edge: abs(edge - cut))
        cuts.append(nearest if abs(nearest - cut) * parts <= snap * edges[-1] else cut)
    return cuts


def native_borders(sizes: Sequence[int], parts: int) -> List[int]:
    """Return the offsets at which MXNet's own reader splits files (dmlc's InputSplitBase::ResetPartition)."""
    total = sum(sizes)
    step = -(-total // parts)
    step += -step % ALIGN
    return [min(step * part, total) for part in range(parts + 1)]


def deal(shards: Shards, part: int, parts: int) -> List[Piece]:
    """Return the records of one of `parts` ranks. Together, they have each record once.

    Raises DataProblem if the part has no record, or if a file is broken.
    """
    cut = native_borders if shards.kind == "recordio" else borders
    begin, end = cut(shards.sizes, parts)[part : part + 2]
    pieces, before = [], 0
    for path, size in zip(shards.paths, shards.sizes):
        if before < end and before + size > begin:
            piece = _piece(shards.kind, path, begin - before, end - before)
            if piece.size:
                pieces.append(piece)
        before += size
    if not before:
        raise DataProblem("--data: the files are empty, such as %s" % shards.paths[0])
    if not pieces:
        what = "this host's part of the data" if shards.split else "the data"
        hint = "use fewer ranks on each host, or split: none" if shards.split else "use fewer ranks, or more images"
        raise DataProblem(
            "--data: %s has too few records for %d rank%s; %s" % (what, parts, "s" if parts > 1 else "", hint)
        )
    return pieces


def _piece(kind: str, path: str, begin: int, end: int) -> Piece:
    """Return the records that begin at an offset from `begin` to before `end`."""
    skip, size, samples = 0, 0, []
    try:
        for record in kit_records.records(kind, path, begin):
            start = record.offset if isinstance(record, kit_records.Sample) else record
            if start >= end:
                break
            if start < begin:
                skip += 1
                continue
            size += 1
            if isinstance(record, kit_records.Sample):
                samples.append(record)
    except kit_records.Broken as error:
        raise DataProblem("--data: %s" % error) from None
    except OSError as error:
        raise DataProblem("--data: %s: %s" % (path, error.strerror)) from None
    return Piece(path, skip, size, tuple(samples))


def steps(counts: Sequence[int], batch_size: int) -> int:
    """Return the steps of an epoch, the same on all ranks. `counts` are the ranks' records.

    Every rank sees each of its records. One with fewer sees some again: if it stopped, the others would wait for it.
    """
    return -(-max(counts) // batch_size)


def disagreement(seen: Sequence[Tuple[int, int]]) -> str:
    """Return what is wrong if ranks that should see the same files do not, else ''. `seen`: (files, bytes) by rank."""
    for rank, totals in enumerate(seen):
        if totals != seen[0]:
            words = ", ".join("rank %d: %d files, %d bytes" % (number, *seen[number]) for number in (0, rank))
            return "--data: the ranks do not see the same files (%s)" % words
    return ""
