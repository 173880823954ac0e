"""Facts of a host after steps were done on it: what a second observation would see."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import yaml

from kit.model.observed import Container, HostFacts
from kit.model.plan import ComposeUp, DeleteFile, MakeDataFolder, Pull, Ship, Step, WaitSshd, WriteFile
from kit.model.secret import Secret
from kit.model.values import replace


def content_of(step: WriteFile) -> bytes:
    return step.content.reveal() if isinstance(step.content, Secret) else step.content


def after_steps(facts: HostFacts, steps: Iterable[Step], compose: bytes = b"") -> HostFacts:
    """`compose` is the Compose file that is there already, for a plan that does not write it."""
    files, modes = dict(facts.files), dict(facts.modes)
    known = {"ssh/host_ed25519.pub": facts.host_key, "ssh/id_ed25519.pub": facts.client_key}
    for step in steps:
        match step:
            case Ship():
                facts = replace(facts, image_id=step.image_id)
            case Pull():
                facts = replace(facts, image_id="sha256:1f")
            case WriteFile():
                content = content_of(step)
                files[step.path], modes[step.path] = hashlib.sha256(content).hexdigest(), step.mode
                if step.path in known:
                    known[step.path] = content.decode().strip()
                compose = content if step.path == "compose.yaml" else compose
            case DeleteFile():
                files.pop(step.path)
                modes.pop(step.path)
            case ComposeUp():
                facts = replace(facts, containers=containers_of(compose))
            case MakeDataFolder():
                facts = replace(facts, absent=facts.absent - {step.path})
            case WaitSshd():
                facts = replace(facts, listening=frozenset({*facts.listening, f"{step.address}:{step.port}"}))
    return replace(
        facts,
        files=files,
        modes=modes,
        host_key=known["ssh/host_ed25519.pub"] if "ssh/host_ed25519" in files else None,
        client_key=known["ssh/id_ed25519.pub"] if "ssh/id_ed25519" in files else None,
    )


def containers_of(compose: bytes) -> tuple[Container, ...]:
    """What `docker compose up --remove-orphans` leaves of a project: its services, and nothing else."""
    return tuple(
        Container(
            name=body["container_name"],
            service=body["labels"]["kit.service"],
            cluster=body["labels"]["kit.cluster"],
            image=body["image"],
            spec=body["labels"]["kit.spec"],
            running=True,
            status="Up 1 second",
        )
        for body in yaml.safe_load(compose)["services"].values()
    )
