"""Copies the folder of a plugin out of an image of this VM's engine. Nothing of the image is run.

Arguments: CLUSTER IMAGE PATH FOLDER. The engine creates a container, which never starts, and gives its PATH as a tar.
An image is a stranger's, and so is the tar. This program is root, and nodes mount what it writes. So it writes only
folders, regular files and links that stay in the folder. They are root's, without set-uid bits and attributes, and
there are limits. FOLDER appears complete or not at all. Removes the container, and the name IMAGE, unless it is an id.

Standard library only, Python 3.6.
"""

import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from fnmatch import fnmatchcase

MYPY = False
if MYPY:
    from typing import IO, Dict, List

LIBRARY = "libnccl-net*.so*"
# Plugins have some megabytes. A vendor's folder with NCCL itself has some hundred.
MOST_BYTES = 4 << 30
MOST_ENTRIES = 20000
MOST_DEPTH = 32
# How much memory a tar may make this program use: a header can claim to be long.
MOST_MEMORY = 1 << 30
CHUNK = 1 << 20
COPY_S = 500
LABEL = "kit.plugin"
# What Docker's client says of a PATH that an image does not have, or that is a file.
NO_FOLDER = (b"Could not find the file", b"not a directory", b"no such file")
# What a tar that nobody should trust can cause, and a full disk.
FAULTS = (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError, MemoryError, OSError)


class Refused(Exception):
    """The folder cannot be copied: why, for people."""


class Limited:
    """A stream that ends with Refused beyond a number of bytes."""

    def __init__(self, stream: "IO[bytes]", most: int) -> None:
        self._stream = stream
        self._left = most

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise Refused("has more than %d MiB" % (MOST_BYTES >> 20))
        return data


def parts_of(name: str) -> "List[str]":
    """Return the parts of a path below the folder, [] for the folder itself. Raises Refused for any other path."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise Refused("has the name %s, which leads out of the folder" % ascii(name[:200]))
    if len(parts) > MOST_DEPTH or any(len(os.fsencode(part)) > 255 for part in parts):
        raise Refused("has a name that is too long or too deep: %s" % ascii(name[:200]))
    return parts


def unpack(stream: "IO[bytes]", folder: str) -> None:
    """Write the tar into an empty folder. Raises Refused, and the errors of tarfile and of the disk.

    Links come last: while files are written, no link could lead them elsewhere.
    """
    links = {}  # type: Dict[str, str]
    limited = Limited(stream, MOST_BYTES + MOST_ENTRIES * 4096)
    with tarfile.open(fileobj=limited, mode="r|") as tar:  # type: ignore[call-overload]
        for count, member in enumerate(tar, 1):
            if count > MOST_ENTRIES:
                raise Refused("has more than %d files" % MOST_ENTRIES)
            path = os.path.join(folder, *parts_of(member.name))
            if path == folder or path in links:
                if not member.isdir():
                    raise Refused("has %s twice, or is no folder" % ascii(member.name[:200]))
            elif member.issym():
                links[path] = member.linkname
            else:
                write(tar, member, folder, path)
    # Docker's client fails if nobody reads the end of its tar.
    while limited.read(CHUNK):
        pass
    make_links(folder, links)


def write(tar: "tarfile.TarFile", member: "tarfile.TarInfo", folder: str, path: str) -> None:
    """Write a member that is no symbolic link, as root's, and without special bits."""
    if member.isdir():
        os.mkdir(path, 0o755)
    elif member.islnk():
        # Of a file that came before, and never of a link.
        os.link(os.path.join(folder, *parts_of(member.linkname)), path, follow_symlinks=False)
    elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(path, flags, 0o755 if member.mode & 0o111 else 0o644)
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(tar.extractfile(member), file, CHUNK)  # type: ignore[arg-type]
    else:
        raise Refused("has %s, which is no file, folder or link" % ascii(member.name[:200]))


def make_links(folder: str, links: "Dict[str, str]") -> None:
    """Create symbolic links. Raises Refused for one that leads out of the folder, or through another one."""
    for path, target in links.items():
        # There is no link yet, so this is a folder.
        if not os.path.isdir(os.path.dirname(path)) or target.startswith("/") or "\0" in target:
            raise Refused(out_of(folder, path, target))
    for path, target in links.items():
        os.symlink(target, path)
    for path, target in links.items():
        if not (os.path.realpath(path) + "/").startswith(os.path.realpath(folder) + "/"):
            raise Refused(out_of(folder, path, target))


def out_of(folder: str, path: str, target: str) -> str:
    shown = ascii(os.path.relpath(path, folder)[:200])
    return "has the link %s to %s, which is not in the folder" % (shown, ascii(target[:200]))


def check(folder: str) -> None:
    """Refuse a folder that NCCL finds no plugin in."""
    names = [name for name in os.listdir(folder) if fnmatchcase(name, LIBRARY)]
    if not any(os.path.isfile(os.path.join(folder, name)) for name in names):
        raise Refused("has no libnccl-net*.so")


def run(*words: str) -> "subprocess.CompletedProcess[bytes]":
    argv, none, pipe = ("docker", *words), subprocess.DEVNULL, subprocess.PIPE
    return subprocess.run(argv, stdin=none, stdout=pipe, stderr=pipe, timeout=COPY_S, check=False)


def docker(*words: str) -> str:
    """Return what Docker's client prints. Raises Refused with its error."""
    done = run(*words)
    if done.returncode:
        raise Refused("cannot be copied: %s" % last_line(done.stderr))
    return done.stdout.decode("utf-8", "replace").strip()


def last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else "docker gives no reason"


def remove_containers(cluster: str) -> None:
    """Remove what this program, or a killed one before it, has created."""
    for name in docker("ps", "--all", "--quiet", "--filter", "label=%s=%s" % (LABEL, cluster)).split():
        docker("rm", "--force", "--volumes", name)


def copy_out(container: str, path: str, target: str) -> None:
    """Unpack a folder of the container into `target`, which is empty."""
    # With /. the engine follows links within the container, and gives what is in the folder.
    argv = ("docker", "cp", "%s:%s/." % (container, path), "-")
    fault = ""
    with tempfile.TemporaryFile() as errors:
        copying = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        try:
            # After the start of docker, which reserves more memory than that.
            with LimitedMemory():
                unpack(copying.stdout, target)  # type: ignore[arg-type]
        except FAULTS as error:
            fault = str(error) or type(error).__name__
        finally:
            # It may have more to give than this program takes.
            copying.stdout.close()  # type: ignore[union-attr]
            code = copying.wait()
        errors.seek(0)
        text = errors.read(65536)
    # An engine that refuses gives an empty tar.
    if code and any(word in text for word in NO_FOLDER):
        raise Refused("is no folder of the image")
    if code or fault:
        raise Refused("cannot be copied: %s" % (fault if fault and not text else last_line(text)))


class LimitedMemory:
    """Within it, this program may use no more than MOST_MEMORY."""

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_AS)
        hard = self.before[1]
        most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(hard, MOST_MEMORY)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.before)


def copy(cluster: str, image: str, path: str, folder: str) -> None:
    # By its id: an engine never pulls that.
    image_id = docker("image", "inspect", "--format", "{{.Id}}", image)
    top = os.path.dirname(folder)
    os.makedirs(top, 0o755, exist_ok=True)
    # Only root may reach what is in the folder of a cluster.
    os.chmod(os.path.dirname(os.path.dirname(top)), 0o700)
    for name in os.listdir(top):
        if name.startswith(".new-"):
            shutil.rmtree(os.path.join(top, name))
    remove_containers(cluster)
    new = tempfile.mkdtemp(prefix=".new-", dir=top)
    try:
        words = ("--network", "none", "--label", "%s=%s" % (LABEL, cluster))
        container = docker("create", *words, "--entrypoint", "/never", image_id, "started")
        copy_out(container, path, new)
        check(new)
        # Ranks may have another user.
        os.chmod(new, 0o755)  # noqa: S103
        os.rename(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        remove_containers(cluster)
        # Its layers stay if another name has them. If the engine refuses, kit down removes the name.
        if not image.startswith("sha256:"):
            run("image", "rm", image)


def main() -> None:
    cluster, image, path, folder = sys.argv[1:]
    os.umask(0o022)
    try:
        copy(cluster, image, path, folder)
    except Refused as error:
        sys.stderr.write("%s %s\n" % (path, error))
        sys.exit(1)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write("%s cannot be copied: %s\n" % (path, error))
        sys.exit(1)


if __name__ == "__main__":
    main()
