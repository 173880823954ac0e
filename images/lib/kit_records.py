"""Finds the records in shards of training data: TFRecord, RecordIO and WebDataset (tar) files. Also writes them.

Readers look at the heads of records only, so that finding the records of a shard reads little of it. This module needs
no framework. Sizes and offsets are bytes.
"""

import os
import re
import struct
import tarfile
from typing import IO, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

RECORDIO_MAGIC = 0xCED7230A
_MAGIC = struct.pack("<I", RECORDIO_MAGIC)
# Bytes that are read at a time to find a record of RecordIO.
SEARCHED = 1 << 16
BLOCK = 512
# As WebDataset splits names: the key is all up to the first dot of the file's name.
_MEMBER = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)$")
IMAGES = ("jpg", "jpeg", "png")
LABEL = "cls"
# How JPEG, PNG, BMP, WebP and TIFF begin.
_IMAGE_MAGIC = (b"\xff\xd8", b"\x89PNG", b"BM", b"RIFF", b"II*", b"MM\0*")


class Broken(Exception):
    """A shard has bytes that are no record. The text names the file and the offset."""

    def __init__(self, path: str, offset: int, why: str) -> None:
        super().__init__("%s is broken at byte %d: %s" % (path, offset, why))


class Sample(NamedTuple):
    """A sample of a WebDataset shard: where its image and its label are in the file."""

    offset: int
    key: str
    image: Tuple[int, int]
    label: Tuple[int, int]


def records(kind: str, path: str, begin: int = 0) -> Iterator[Union[int, Sample]]:
    """Yield the offset of each record of a shard in order, or the Sample of a WebDataset shard.

    Records before `begin` are left out where that saves reading: a RecordIO file may be as large as the whole data set.
    Raises Broken, and OSError if the file cannot be read.
    """
    if kind == "webdataset":
        return samples(path)
    return _tfrecords(path) if kind == "tfrecord" else _recordio(path, begin)


def _open(path: str) -> int:
    """Return a descriptor for reads here and there: the kernel must not read ahead, as that would be the whole file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    return descriptor


def _tfrecords(path: str) -> Iterator[int]:
    descriptor = _open(path)
    try:
        size, offset = os.fstat(descriptor).st_size, 0
        while offset < size:
            head = os.pread(descriptor, 12, offset)
            if len(head) < 12:
                raise Broken(path, offset, "the file ends within a record")
            if masked_crc(head[:8]) != struct.unpack("<I", head[8:])[0]:
                raise Broken(path, offset, "no TFRecord begins there (compressed ones cannot be read)")
            after = offset + 16 + int(struct.unpack("<Q", head[:8])[0])
            if after > size:
                raise Broken(path, offset, "the file ends within a record")
            yield offset
            offset = after
    finally:
        os.close(descriptor)


def _recordio(path: str, begin: int) -> Iterator[int]:
    descriptor = _open(path)
    try:
        size = os.fstat(descriptor).st_size
        offset = _next_record(descriptor, begin) if begin > 0 else 0
        while offset < size:
            head = os.pread(descriptor, 64, offset)
            if len(head) < 8:
                raise Broken(path, offset, "the file ends within a record")
            magic, length = struct.unpack("<II", head[:8])
            if magic != RECORDIO_MAGIC:
                raise Broken(path, offset, "no record of RecordIO begins there")
            after = offset + 8 + ((length & (1 << 29) - 1) + 3) // 4 * 4
            if after > size:
                raise Broken(path, offset, "the file ends within a record")
            # The upper bits are for records in parts: 0 is a whole record, 1 is the first part of several.
            if length >> 29 in (0, 1):
                _check_image(path, offset, head)
                yield offset
            offset = after
    finally:
        os.close(descriptor)


def _next_record(descriptor: int, offset: int) -> int:
    """Return where the first record of RecordIO at or after `offset` begins, or the end of the file.

    Records begin at multiples of 4, and no data has the magic number there: its writers divide such a record.
    """
    offset += -offset % 4
    while True:
        chunk = os.pread(descriptor, SEARCHED, offset)
        if len(chunk) < 8:
            return offset + len(chunk)
        place = -1
        while True:
            place = chunk.find(_MAGIC, place + 1)
            if place < 0 or place + 8 > len(chunk):
                break
            if place % 4 == 0 and chunk[place + 7] >> 5 in (0, 1):
                return offset + place
        # A head may lie across the end of the chunk.
        offset += (len(chunk) - 4) // 4 * 4


def _check_image(path: str, offset: int, head: bytes) -> None:
    """Raise Broken if a record of RecordIO has no image. MXNet's reader would end with a signal."""
    # After 8 bytes of head, and 24 bytes with the number of labels, if there are several, at their beginning.
    labels = struct.unpack("<I", head[8:12])[0] if len(head) >= 32 else 0
    magic = head[32 + 4 * labels :]
    if (magic or labels == 0) and not magic.startswith(_IMAGE_MAGIC):
        raise Broken(path, offset, "the record has no JPEG, PNG or other image that MXNet decodes")


def samples(path: str) -> Iterator[Sample]:
    """Yield the samples of a WebDataset shard that have an image (jpg, jpeg or png) and a label (cls).

    The members of a sample follow each other. Others, such as json, do not matter. Raises Broken.
    """
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        key, first = "", 0
        parts: Dict[str, Tuple[int, int]] = {}
        for member in _members(path, file):
            match = _MEMBER.match(member.name)
            if not member.isreg() or not match:
                continue
            if match.group(1) != key:
                yield from _whole(first, key, parts)
                key, first, parts = match.group(1), member.offset, {}
            parts[match.group(2).lower()] = (member.offset_data, member.size)
        yield from _whole(first, key, parts)


def _members(path: str, file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    size, end = os.fstat(file.fileno()).st_size, 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            while True:
                member = tar.next()
                if member is None:
                    break
                if member.isreg() and member.offset_data + member.size > size:
                    raise Broken(path, member.offset, "the file ends within %s" % member.name)
                yield member
                # Otherwise, tarfile would keep all members in memory.
                tar.members = []  # type: ignore[attr-defined]
                end = tar.offset
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise Broken(path, end, "no tar archive (%s)" % error) from None
    # tarfile takes a damaged head for the end of the archive.
    if os.pread(file.fileno(), BLOCK, end).strip(b"\0"):
        raise Broken(path, end, "no member of a tar archive begins there")


def _whole(offset: int, key: str, parts: Dict[str, Tuple[int, int]]) -> Iterator[Sample]:
    image = next((parts[kind] for kind in IMAGES if kind in parts), None)
    if image and LABEL in parts:
        yield Sample(offset, key, image, parts[LABEL])


def broken_at(paths: Sequence[str], place: int) -> List[str]:
    """Return the TFRecord files with a wrong checksum at a place that TensorFlow names: of a record, or of its body."""
    return [path for path in paths if any(_wrong_sum(path, offset) for offset in (place, place - 12) if offset >= 0)]


def _wrong_sum(path: str, offset: int) -> bool:
    """Return whether the record at `offset` has other bytes than its checksum says; False if no record is there."""
    with open(path, "rb") as file:
        file.seek(offset)
        head = file.read(12)
        if len(head) < 12 or masked_crc(head[:8]) != struct.unpack("<I", head[8:])[0]:
            return False
        body = file.read(struct.unpack("<Q", head[:8])[0])
        return struct.pack("<I", masked_crc(body)) != file.read(4)


def _table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return table


_CRC32C = _table()


def masked_crc(data: bytes) -> int:
    """Return the checksum of TFRecords: CRC-32C, rotated and moved. About 100 ns a byte."""
    crc, table = 0xFFFFFFFF, _CRC32C
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def tfrecord(image: bytes, label: int) -> bytes:
    """Return a record as TensorFlow's ImageNet tools write it: a tf.train.Example with image/encoded and the label."""
    features = _feature("image/encoded", _field(1, _field(1, image)))
    features += _feature("image/class/label", _field(3, _field(1, _varint(label))))
    body = _field(1, features)
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", masked_crc(head)) + body + struct.pack("<I", masked_crc(body))


def _feature(name: str, value: bytes) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, value))


def _field(number: int, data: bytes) -> bytes:
    """Return a field of bytes in the encoding of protocol buffers."""
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def recordio(image: bytes, label: int, number: int) -> bytes:
    """Return a record as MXNet's im2rec writes it."""
    body = struct.pack("<IfQQ", 0, label, number, 0) + image
    return struct.pack("<II", RECORDIO_MAGIC, len(body)) + body + b"\0" * (-len(body) % 4)


def webdataset(image: bytes, label: int, number: int, extension: str) -> bytes:
    """Return the members of a sample of WebDataset, as part of a tar archive, which needs TAR_END at its end."""
    text = b""
    for kind, data in ((LABEL, b"%d" % label), (extension, image)):
        member = tarfile.TarInfo("%08d.%s" % (number, kind))
        member.size = len(data)
        text += member.tobuf(tarfile.USTAR_FORMAT) + data + b"\0" * (-len(data) % BLOCK)
    return text


TAR_END = b"\0" * (2 * BLOCK)
