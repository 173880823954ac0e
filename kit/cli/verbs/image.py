"""kit image: its verbs, and what they do."""

# Flows are imported by the verb that needs them; --help needs none.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Operand, Option, Verb, words
from kit.cli.verbs.options import BUILDER, CONSENT, START
from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.session import Session

VERBS = (
    Verb(
        words=("image", "build"),
        purpose="Build the image that every node runs, if it is not here yet.",
        handler="image.image_build",
        group=START,
        options=(Option(flags=("-f", "--force"), help="Build again, though the image is here."), BUILDER, CONSENT),
        notes="Where no registry gives the base image, kit offers to make it from Debian's packages, as root (Debian, "
        "Ubuntu). It asks first. Without a terminal it makes none, unless you give --yes.",
        examples=("kit image build", "kit image build --progress plain", "kit image build --builder head"),
        exits=(("3", "no engine answers"), ("6", "the image cannot be built")),
    ),
    Verb(
        words=("image", "push"),
        purpose="Put the image into a registry, for kit deploy to pull it from there.",
        handler="image.image_push",
        group=START,
        operands=(
            Operand(
                name="registry",
                help="Such as registry.example.com:5000/team (default: registry in kit.yaml).",
                optional=True,
            ),
        ),
        options=(
            Option(flags=("--username",), value="NAME", kind=words, help="Login (default: docker's for the registry)."),
            Option(flags=("--password-stdin",), help="Read that login's password from standard input."),
            BUILDER,
        ),
        notes="The image is built first if it is not there. The login is --username with --password-stdin, or "
        "KIT_REGISTRY_USER and KIT_REGISTRY_PASSWORD, or what docker login has left on this machine.",
        examples=(
            "kit image push registry.example.com:5000/team",
            "kit image push --username ann --password-stdin <password.txt",
        ),
        exits=(
            ("2", "a flag or kit.yaml is wrong"),
            ("3", "no engine answers"),
            ("6", "the image cannot be built or pushed"),
        ),
    ),
    Verb(
        words=("image", "tag"),
        purpose="Print the image's tag: a hash of all that goes into it.",
        handler="image.image_tag",
        group=START,
        examples=('docker image inspect "$(kit image tag)"',),
    ),
    Verb(
        words=("image", "render"),
        purpose="Print the Dockerfile that kit.yaml asks for, and build nothing.",
        handler="image.image_render",
        group=START,
        examples=("kit image render | less",),
    ),
)


def image_build(session: Session) -> int:
    from kit.cli.text import image as render
    from kit.flows.image.build import build_image, build_on_head

    spec, force = session.spec(), session.args.force
    if spec.builder == "head":
        result = build_on_head(session.context(), force=force)
    else:
        result = build_image(spec.image, reporter=session.reporter, force=force, consent=session.consent)
    session.close()
    session.show("image", result, render.image(result) if not session.json else "")
    return 0


def image_push(session: Session) -> int:
    from kit.cli.text import image as render
    from kit.cli.verbs.registry_login import registry_login
    from kit.flows.image.push import push_from_head, push_image

    login = registry_login(session.args, session.terminal, session.environ)
    spec = session.spec()
    if spec.registry is None:
        raise InputError(
            "which registry?", hint="kit image push registry.example.com:5000/team, or registry: in kit.yaml"
        )
    if spec.builder == "head":
        result = push_from_head(session.context(), spec.registry, login=login)
    else:
        result = push_image(spec, spec.registry, reporter=session.reporter, login=login)
    session.close()
    session.show("push", result, render.push(result) if not session.json else "")
    return 0


def image_tag(session: Session) -> int:
    from kit.flows.image.content import content

    tag = content(session.spec().image).tag
    session.show("image-tag", {"tag": tag}, tag)
    return 0


def image_render(session: Session) -> int:
    from kit.flows.image.content import content

    dockerfile = content(session.spec().image).files["Dockerfile"].decode()
    session.show("dockerfile", {"dockerfile": dockerfile}, dockerfile.rstrip("\n"))
    return 0
