"""The limit of open files of a run's supervisor, which has two for each node. Ranks get the limit of the container."""

import contextlib
import resource
from typing import Iterator

# More than a supervisor of 10,000 nodes has. Some programs look at each file that they may have open when they start.
MOST_FILES = 1 << 16

_SOFT, _ = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_files() -> None:
    """Let this process have as many open files as its hard limit permits, at most MOST_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Within this context, new processes get the limit that this one had at its start."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_SOFT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
