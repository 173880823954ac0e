"""kit init, schema, completion and version: what needs no cluster."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

import kit
from kit.cli.verbs.grammar import Operand, Verb
from kit.cli.verbs.options import FORCE, START

if TYPE_CHECKING:
    from kit.cli.session import Session


def init(session: Session) -> int:
    from kit.flows.cluster.init import init

    result = init(session.folder, force=session.args.force)
    written = " and ".join(str(path) for path in result.written)
    text = f"Wrote {written}. Put your VMs into hosts, then: kit deploy"
    if not result.takes_code:
        text += (
            "\nA run takes no home folder along: put your code into a folder below, and write code: FOLDER in kit.yaml"
        )
    session.show("init", result, text)
    return 0


def schema(session: Session) -> int:
    import json

    from kit.flows.cluster.schema import schema

    text = schema()
    session.show("schema", {"schema": json.loads(text)}, text.rstrip("\n"))
    return 0


def completion(session: Session) -> int:
    from kit.cli.complete import script

    text = script(session.args.shell)
    session.show("completion", {"shell": session.args.shell, "script": text}, text)
    return 0


def version(session: Session) -> int:
    session.show("version", {"version": kit.__version__}, f"kit {kit.__version__}")
    return 0


VERBS = (
    Verb(
        words=("init",),
        purpose="Write hosts and kit.yaml for you to edit",
        handler=init,
        group=START,
        options=(FORCE,),
        examples=("kit init", "kit -C ~/resnet init"),
    ),
    Verb(
        words=("schema",),
        purpose="Print the JSON schema of kit.yaml, for editors",
        handler=schema,
        group=START,
        examples=("kit schema > kit.schema.json",),
    ),
    Verb(
        words=("completion",),
        purpose="Print a script that lets your shell complete kit's words with Tab",
        handler=completion,
        group=START,
        operands=(Operand(name="shell", help="bash, zsh or fish", choices=("bash", "zsh", "fish")),),
        notes="It completes verbs, options, hosts of the hosts file, runs, sessions, presets and files. It contacts no "
        "host: runs are those that kit last showed for this folder. Load it from your shell's startup file, or write "
        "it where your shell looks for completions.",
        examples=(
            'eval "$(kit completion bash)"',
            'eval "$(kit completion zsh)"',
            "kit completion fish > ~/.config/fish/completions/kit.fish",
        ),
    ),
    Verb(
        words=("version",),
        purpose="Print kit's version",
        handler=version,
        group=START,
        examples=("kit version",),
    ),
)
