"""Openings of borders between hosts, and from a VM, an engine or an image to your machine."""

from __future__ import annotations

from tests.security.openings import Opening

_PORTER = ("security/test_porter.py", "-k")
_COPY = (
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="a name with a digest in it is a digest",
        file="kit/remote/ship/porter/names.py",
        old="if not isinstance(word, str) or DIGEST.fullmatch(word) is None:",
        new="if not isinstance(word, str) or DIGEST.match(word) is None:",
        tests=(*_PORTER, "order_with_another_name"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="a porter joins any name to the path of its folder",
        file="kit/remote/ship/porter/names.py",
        old="if not isinstance(name, str) or _NAME.fullmatch(name) is None:",
        new="if not isinstance(name, str):",
        tests=(*_PORTER, "folder_of_an_owner"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="kit passes on layers of a source that are no digests",
        file="kit/remote/ship/reports.py",
        old="if len(image.layers) > MOST_LAYERS or not all(is_digest(layer) for layer in image.layers):",
        new="if len(image.layers) > MOST_LAYERS:",
        tests=(*_PORTER, "source_reports"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="kit believes each host which layers it needs",
        file="kit/remote/ship/reports.py",
        old="        _check_need(report.ready.need, line)\n",
        new="",
        tests=(*_PORTER, "odd_report"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="the sender of a layer says how large it is",
        file="kit/remote/ship/porter/fetch.py",
        old="if self._layers.total() - here + size > self._most:",
        new="if self._layers.total() - here + size > wire.MOST_SIZE:",
        tests=(*_PORTER, "how_much_is_written"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="a porter writes all bytes that come",
        file="kit/remote/ship/porter/layers.py",
        old="if self.at + len(data) > self.size:",
        new="if self.at > self.size:",
        tests=(*_PORTER, "one_byte_more"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="a packed frame of a porter unpacks to any length",
        file="kit/remote/ship/porter/wire.py",
        old="data = unpack.decompress(payload, MOST_FRAME)",
        new="data = unpack.decompress(payload)",
        tests=(*_PORTER, "unpacks_to_a_gigabyte"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="a layer may have other bytes than its digest",
        file="kit/remote/ship/porter/layers.py",
        old="if self.at != self.size or self._hash.hexdigest() != self.layer:",
        new="if self.at != self.size:",
        tests=(*_PORTER, "other_bytes"),
    ),
    Opening(
        border="From a host to another one, through the copy of images and code",
        what="strangers take all connections of a porter",
        file="kit/remote/ship/porter/serve.py",
        old="stranger = next((other for other, known in self._open.items() if not known), None)",
        new="stranger = None",
        tests=(*_PORTER, "take_no_place"),
    ),
)
_STAGER = ("security/test_data_security.py", "-k")
_PASSING = ()

OPENINGS: tuple[Opening, ...] = (
    *_COPY,
    *_PASSING,
)
