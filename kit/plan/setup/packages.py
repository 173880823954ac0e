"""Which package has what, in which distribution; and the repositories of Docker and NVIDIA."""

from __future__ import annotations

from msgspec import Struct

from kit.errors import StepError
from kit.model.plan import Step
from kit.model.setup.facts import SetupFacts
from kit.model.setup.steps import FetchKey, InstallPackages, WriteSystemFile


class Repository(Struct, frozen=True, kw_only=True):
    """A repository of a vendor: its key, and the file that names it."""

    area: str
    whose: str
    key_url: str
    key: str
    fingerprint: str
    sources: str
    uri: str
    suite: str
    text: str

    def steps(self, facts: SetupFacts) -> list[Step]:
        """Return the steps that make the host know the repository; none if it does."""
        place = (self.uri, self.suite)
        # With another key of the same place, apt would read no source at all.
        if any(source.place == place and source.file != self.sources for source in facts.sources):
            return []
        if facts.has(self.sources, self.text.encode()) and self.key in facts.files:
            return []
        why = f"{self.whose} repository is not among its sources"
        return [
            InstallPackages(area=self.area, packages=("ca-certificates", "gpg"), why="they check the repository's key"),
            FetchKey(area=self.area, url=self.key_url, path=self.key, fingerprint=self.fingerprint, why=why),
            WriteSystemFile(area=self.area, path=self.sources, content=self.text.encode(), why=why),
        ]


def major(version: str) -> tuple[int, ...]:
    """Return 22.04 as (22, 4), to compare versions. Return () for other text."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def has_compose(facts: SetupFacts) -> bool:
    """Return whether the distribution has Compose v2. Debian 12 has only Compose 1."""
    least = {"debian": (13,), "ubuntu": (22, 4)}.get(facts.os)
    # Debian's testing has no version.
    return least is not None and (major(facts.version) >= least if facts.version else True)


def engine_packages(facts: SetupFacts) -> tuple[str, ...]:
    """Return the distribution's packages of the engine."""
    split = facts.os == "debian" and (not facts.version or major(facts.version) >= (13,))
    return ("docker.io", *(["docker-cli"] if split else []))


def compose_package(facts: SetupFacts) -> str:
    """Return the distribution's package of Compose v2."""
    return "docker-compose" if facts.os == "debian" else "docker-compose-v2"


def unknown_distribution(facts: SetupFacts, what: str) -> StepError | None:
    """Return the error for a host whose packages kit does not know."""
    if facts.apt and facts.os in ("debian", "ubuntu"):
        return None
    return StepError(
        f"kit setup installs packages on Debian and Ubuntu, and this is {facts.name or facts.os or 'another system'}",
        hint=f"install {what} by hand (docs/real-vms.md), then: kit setup --only sysctl,clocks,hugepages,mtu",
        host=facts.host.name,
    )
