"""What the shell can offer as a value: hosts, runs, sessions, presets, files. Nothing here contacts a host.

Each function takes a Place and returns words. Whatever cannot be read gives no words: Tab must never print an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FILES = (":files",)
FOLDERS = (":folders",)


class Place(NamedTuple):
    """Where the words are wanted: the text so far, the folder of the two files, the files, the environment for them.

    `config_file` is None if no flag names one.
    """

    text: str
    folder: Path
    hosts_file: Path
    environ: Mapping[str, str]
    config_file: str | None = None


def files(_place: Place) -> Iterable[str]:
    """Let the shell complete a file's name."""
    return FILES


def folders(_place: Place) -> Iterable[str]:
    """Let the shell complete a folder's name."""
    return FOLDERS


def host(place: Place) -> Iterable[str]:
    from kit.config.hosts import parse_hosts  # noqa: PLC0415
    from kit.config.text import text_of  # noqa: PLC0415

    text = text_of(place.hosts_file, patience_s=0)
    return [one.name for one in parse_hosts(text or "", source="hosts").hosts]


def hosts(place: Place) -> Iterable[str]:
    """Return hosts for a list with commas, without those that the list has."""
    before, comma, _ = place.text.rpartition(",")
    return [f"{before}{comma}{name}" for name in host(place) if name not in before.split(",")]


def run(place: Place) -> Iterable[str]:
    """Return the runs that kit last showed for this folder; asking the head would take a connection."""
    from kit.cli import recent  # noqa: PLC0415

    return recent.runs(place.folder, place.environ)


def data(place: Place) -> Iterable[str]:
    """Return the data sets of kit.yaml."""
    from kit.config import settings  # noqa: PLC0415

    spec = settings.load_spec(place.folder, config_flag=place.config_file, flags={}, environ=place.environ)
    return [one.name for one in spec.data]


def run_or_host(place: Place) -> Iterable[str]:
    return [*_or_nothing(host, place), *run(place)]


def session(place: Place) -> Iterable[str]:
    from kit.remote.bench import session_folder  # noqa: PLC0415

    return [path.name for path in reversed(session_folder.sessions(place.folder))]


def preset(_place: Place) -> Iterable[str]:
    from kit.plan.bench.cases import PRESETS  # noqa: PLC0415

    return PRESETS


def workload(_place: Place) -> Iterable[str]:
    from kit.plan.bench.cases import WORKLOADS  # noqa: PLC0415

    return WORKLOADS


def check(_place: Place) -> Iterable[str]:
    from kit.plan.doctor.checks import CHECKS  # noqa: PLC0415

    return [one.id for one in CHECKS]


def model(_place: Place) -> Iterable[str]:
    import json  # noqa: PLC0415

    from kit.remote.machine.assets import images_dir  # noqa: PLC0415

    return list(json.loads((images_dir() / "lib" / "models.json").read_text()))


def _or_nothing(source: object, place: Place) -> Iterable[str]:
    try:
        return source(place)  # type: ignore[operator,no-any-return]
    except Exception:
        return ()
