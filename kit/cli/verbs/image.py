"""kit image: build, push, describe and list the image that every node runs."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import BUILDER, CONSENT, START
from kit.cli.verbs.values import words
from kit.errors import InputError

if TYPE_CHECKING:
    from kit.cli.session import Session


def image_build(session: Session) -> int:
    from kit.cli.text import image as text
    from kit.flows.image.build import build_image, build_on_head

    spec, force = session.spec(), session.args.force
    if spec.builder == "head":
        result = build_on_head(session.context(), force=force)
    else:
        result = build_image(spec, reporter=session.reporter, force=force, consent=session.consent)
    session.show("image", result, text.image)
    return 0


def image_push(session: Session) -> int:
    from kit.cli.text import image as text
    from kit.cli.verbs.registry_login import registry_login
    from kit.flows.image.push import push_from_head, push_image

    spec = session.spec()
    if spec.registry is None:
        raise InputError(
            "no registry was given", hint="kit image push registry.example.com:5000/team, or registry: in kit.yaml"
        )
    login = registry_login(session.args, session.terminal, session.environ, spec.registry)
    if spec.builder == "head":
        result = push_from_head(session.context(), spec.registry, login=login)
    else:
        result = push_image(spec, spec.registry, reporter=session.reporter, login=login)
    session.show("push", result, text.push)
    return 0


def image_tag(session: Session) -> int:
    from kit.flows.image.content import content

    tag = content(session.spec()).tag
    session.show("image-tag", {"tag": tag}, tag)
    return 0


def image_render(session: Session) -> int:
    from kit.flows.image.content import content

    dockerfile = content(session.spec()).files["Dockerfile"].decode()
    session.show("dockerfile", {"dockerfile": dockerfile}, dockerfile.rstrip("\n"))
    return 0


def image_sbom(session: Session) -> int:
    import json

    from kit.cli.text import image as text
    from kit.config.paths import expanded
    from kit.flows.image.sbom import save, sbom, sbom_on_head

    spec = session.spec()
    if spec.builder == "head":
        result = sbom_on_head(session.context(), environ=session.environ)
    else:
        result = sbom(spec, reporter=session.reporter, environ=session.environ)
    name = session.args.file
    if name is not None:
        save(result, expanded(name))
    document = None if name is not None else json.loads(result.document)
    value = {
        "tag": result.tag,
        "image_id": result.image_id,
        "file": name,
        "components": {"debian": result.debian, "python": result.python, "files": result.files},
        "unreadable": list(result.unreadable),
        "document": document,
    }
    session.show("sbom", value, result.document.rstrip("\n") if name is None else text.sbom(result, name))
    return 0


VERBS = (
    Verb(
        words=("image", "build"),
        purpose="Build the image that every node runs, unless it exists here",
        handler=image_build,
        group=START,
        options=(Option(flags=("-f", "--force"), help="Build even if the image exists"), BUILDER, CONSENT),
        notes="If no registry has the base image, kit offers to make it from Debian's packages, which takes root on "
        "Debian or Ubuntu. kit asks first. Without a terminal it makes none, unless you give --yes.",
        examples=("kit image build", "kit image build --progress plain", "kit image build --builder head"),
        exits=(("3", "no engine answers"), ("6", "the image cannot be built")),
    ),
    Verb(
        words=("image", "push"),
        purpose="Push the image to a registry, from which kit deploy can pull it",
        handler=image_push,
        group=START,
        operands=(
            Operand(
                name="registry",
                help="A registry, such as registry.example.com:5000/team (default: registry in kit.yaml)",
                optional=True,
            ),
        ),
        options=(
            Option(flags=("--username",), value="NAME", kind=words, help="Log in as NAME (default: docker's login)"),
            Option(flags=("--password-stdin",), help="Read the password of that login from standard input"),
            BUILDER,
        ),
        notes="kit builds the image first if it does not exist. The login is --username with --password-stdin, or "
        "KIT_REGISTRY_USER and KIT_REGISTRY_PASSWORD if KIT_REGISTRY names this registry, or the one that docker login "
        "saved on this machine.",
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
        purpose="Print the image's tag: a hash of all that the image is built from",
        handler=image_tag,
        group=START,
        examples=('docker image inspect "$(kit image tag)"',),
    ),
    Verb(
        words=("image", "render"),
        purpose="Print the Dockerfile for this kit.yaml, and build nothing",
        handler=image_render,
        group=START,
        examples=("kit image render | less",),
    ),
    Verb(
        words=("image", "sbom"),
        purpose="List what the image consists of, as a CycloneDX bill of materials",
        handler=image_sbom,
        group=START,
        options=(
            Option(
                flags=("-o", "--file"),
                value="FILE",
                kind=words,
                complete=candidates.files,
                help="Write the document to FILE (default: standard output)",
            ),
            BUILDER,
        ),
        notes="The list has the Debian packages and Python packages that the image names, and kit's own programs, with "
        "versions, licenses, addresses (purl) and SHA-256 digests. kit reads it from the image itself, in a container "
        "without network. The same image always gives the same document; SOURCE_DATE_EPOCH sets its time.",
        examples=("kit image sbom -o image.cdx.json", "kit image sbom | jq -r '.components[].purl'"),
        exits=(("3", "no engine answers"), ("6", "the image is missing or cannot be read")),
    ),
)
