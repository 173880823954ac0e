"""`from` of a data set: text → DataSource. Each refusal says what to write, and none repeats a password."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import cast

from kit.config.kinds import FieldError
from kit.config.ports import check_port
from kit.config.words import listed, near, plain
from kit.model import names
from kit.model.data import DataSource, StoreScheme

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}", re.ASCII)
_REMOTE = re.compile(r"[A-Za-z0-9_.+@][A-Za-z0-9_.+@ -]{0,99}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", re.ASCII)
_SERVER = re.compile(rf"{_HOST.pattern}(?::[0-9]{{1,5}})?", re.ASCII)
# A Lustre server by its NID. The kernel resolves no names, and a comma would end the option that carries it.
_NID = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}@[a-z0-9]{1,15}", re.ASCII)
_HOST_FOLDER = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,252}):(/.*)", re.ASCII | re.DOTALL)
_LONGEST = 1024
_STORES = {"s3": "BUCKET", "oss": "BUCKET", "gs": "BUCKET", "azure": "CONTAINER"}
# What other programs call them.
_ALIASES = {
    **dict.fromkeys(("s3a", "s3n", "aws", "minio"), "s3"),
    **dict.fromkeys(("gcs", "google"), "gs"),
    **dict.fromkeys(("az", "azblob", "abfs", "abfss", "wasb", "wasbs"), "azure"),
    **dict.fromkeys(("nfs3", "nfs4", "efs"), "nfs"),
    "aliyun": "oss",
}
_ALL = "s3://BUCKET/FOLDER, oss://, gs://, azure://, rclone:REMOTE:FOLDER, https://, nfs://, lustre://, "
_WRITE = f"write {_ALL}./FOLDER of this machine, or HOST:/FOLDER"
_LUSTRE = "write lustre://10.0.0.5@tcp/FSNAME or lustre://10.0.0.5@tcp/FSNAME/FOLDER, with the address of the MGS"


def source(text: str) -> DataSource:
    """Return the source that a `from` names. Raises FieldError.

    A relative folder of this machine stays relative: the caller knows where it starts.
    """
    if not text.strip():
        raise FieldError("is empty", write=_WRITE)
    if len(text) > _LONGEST or not text.isprintable() or text != text.strip():
        raise FieldError(
            "this has a space at its ends, an unprintable character, or is longer than 1,024 characters", write=_WRITE
        )
    if text.startswith("rclone:"):
        return _rclone(text)
    url = _URL.fullmatch(text)
    if url:
        return _of_url(text, url[1].lower(), url[2])
    if is_here(text):
        if not text.strip("/"):
            raise FieldError("is this whole machine", write="write the folder with the data, such as ./data")
        return DataSource(kind="here", text=text, path=text)
    host = _HOST_FOLDER.fullmatch(text)
    if host:
        return DataSource(kind="host", text=text, place=host[1], path=_folder_of_host(host[2]))
    if "://" in text or "@" in text:
        raise FieldError("this is neither a URL that kit knows nor a folder", write=_WRITE)
    if ":" in text:
        name = plain(text.partition(":")[0])
        raise FieldError(
            "has a colon, but no whole path follows it",
            write=f"write {name}:/FOLDER for a folder of a host, or rclone:{name}:PATH for a remote of rclone",
        )
    raise FieldError(
        "is neither a URL nor a path",
        write=f"write ./{plain(text)} for a folder beside kit.yaml, or s3://{plain(text)} for a bucket",
    )


def _folder_of_host(path: str) -> str:
    _refuse_dots(path)
    folder = posixpath.normpath(f"/{path.lstrip('/')}")
    if f"{folder.rstrip('/')}/".startswith(f"{names.ROOT}/") or f"{names.ROOT}/".startswith(f"{folder.rstrip('/')}/"):
        raise FieldError(
            f"{folder} has kit's own folder {names.ROOT} in it or belongs to it, with the keys of the clusters on a VM",
            write="write the folder with the data, such as gpu1:/data",
        )
    return folder


def is_here(text: str) -> bool:
    """Return whether this is a path of the operator's machine."""
    return text.startswith(("/", "./", "../", "~")) or text in (".", "..")


def _of_url(text: str, scheme: str, rest: str) -> DataSource:
    reader = _READERS.get(scheme)
    if reader is None:
        raise _unknown(scheme)
    place, slash, path = rest.partition("/")
    if "?" in rest and scheme == "https":
        # A signed URL is a secret, and a listing has no query.
        raise FieldError(
            "this URL has a ? in it: kit reads files and listings by their path alone",
            write="write https://HOST/PATH; for a signed URL, use the scheme of its store, such as s3://",
        )
    if scheme != "lustre" and "@" in place:
        raise FieldError(
            "this URL has a login in it, and kit.yaml is no place for secrets",
            write=f"write {scheme}://{plain(place.rpartition('@')[2])}/…; docs/data.md says where kit finds the keys",
        )
    _refuse_dots(path)
    return reader(text, place, slash + path)


def _unknown(scheme: str) -> FieldError:
    shown = plain(scheme)
    if scheme == "file":
        return FieldError("this is a URL of a folder", write="write the path alone: /FOLDER or ./FOLDER")
    if scheme in ("rclone", "sftp", "ftp", "webdav", "swift", "b2", "hdfs", "smb"):
        return FieldError(
            f"kit has no scheme {shown}://, but rclone may know it",
            write="set up a remote with rclone config, and write rclone:REMOTE:PATH",
        )
    if scheme == "http":
        # Without TLS, anyone on the way could change what ranks read and load.
        return FieldError("http:// protects no byte on its way", write="write https://, or copy the folder to a host")
    similar = (_ALIASES[scheme],) if scheme in _ALIASES else near(scheme, _READERS, most=1) or _mistyped(scheme)
    # What follows may hold a password, so that it is not repeated.
    write = f"did you mean {listed(f'{name}://' for name in similar)}?" if similar else _WRITE
    return FieldError(f"there is no scheme {shown}://", write=write)


def _mistyped(scheme: str) -> tuple[str, ...]:
    """Return the schemes of this length that differ in one letter. Of two letters, one is no similarity to `near`."""
    alike = [known for known in _READERS if len(known) == len(scheme)]
    return tuple(known for known in alike if sum(a != b for a, b in zip(known, scheme, strict=True)) == 1)


def _refuse_dots(path: str) -> None:
    if ".." in path.split("/"):
        raise FieldError("this path has .. in it", write="write the path without ..")


def _store(scheme: str, text: str, place: str, path: str) -> DataSource:
    what = _STORES[scheme]
    if not _BUCKET.fullmatch(place):
        raise FieldError(
            f"has no name of a {what.lower()} after {scheme}://" if not place else f"has no possible {what.lower()}",
            write=f"write {scheme}://{what}/FOLDER",
        )
    if not path:
        raise FieldError(
            f"has no path after the {what.lower()}",
            write=f"write {scheme}://{place}/FOLDER, or {scheme}://{place}/ for all of it",
        )
    return DataSource(kind="store", text=text, scheme=cast("StoreScheme", scheme), place=place, path=path.strip("/"))


def _rclone(text: str) -> DataSource:
    remote, colon, path = text.removeprefix("rclone:").partition(":")
    if text.startswith("rclone://") or not colon or not _REMOTE.fullmatch(remote):
        # Behind a comma, a remote of rclone can have its settings, and so its keys.
        raise FieldError(
            "this does not name a remote of your rclone configuration",
            write="write rclone:REMOTE:PATH; rclone listremotes prints the names",
        )
    _refuse_dots(path)
    return DataSource(kind="store", text=text, scheme="rclone", place=remote, path=path.rstrip("/") or path[:1])


def _https(text: str, place: str, path: str) -> DataSource:
    if not _SERVER.fullmatch(place):
        raise FieldError("has no possible host after https://", write="write https://HOST/PATH")
    check_port(place)
    if not path:
        raise FieldError("has no path after the host", write=f"write https://{place}/PATH, or https://{place}/")
    return DataSource(kind="http", text=text, place=place, path=path)


def _nfs(text: str, place: str, path: str) -> DataSource:
    if not _SERVER.fullmatch(place):
        raise FieldError("has no possible server after nfs://", write="write nfs://SERVER/EXPORT")
    check_port(place)
    if not path:
        raise FieldError(
            "has no export after the server", write=f"write nfs://{place}/EXPORT, or nfs://{place}/ for its root"
        )
    return DataSource(kind="nfs", text=text, place=place, path=_option(f"/{path.strip('/')}"))


def _lustre(text: str, place: str, path: str) -> DataSource:
    servers = place.split(":")
    if not all(_NID.fullmatch(server) for server in servers):
        raise FieldError("this names no server of Lustre such as 10.0.0.5@tcp after lustre://", write=_LUSTRE)
    if not path.strip("/"):
        raise FieldError("has no name of a file system after the server", write=_LUSTRE)
    return DataSource(kind="lustre", text=text, place=place, path=_option(path.strip("/")))


def _option(path: str) -> str:
    """Return a path that can be an option of a mount."""
    # Swarm expands what is between braces.
    if any(character in path for character in " ,\\\"'{}"):
        raise FieldError(
            "has a space, a comma, a quote, a brace or a backslash in its path, which no option of a mount can have",
            write="name a folder without them",
        )
    return path


_READERS: Mapping[str, Callable[[str, str, str], DataSource]] = {
    **{scheme: functools.partial(_store, scheme) for scheme in _STORES},
    "https": _https,
    "nfs": _nfs,
    "lustre": _lustre,
}
