"""kit predict: its verb, and what it does."""

# Flows are imported by the verb that needs them; --help needs none.
# ruff: noqa: PLC0415
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Option, Verb, count, positive, words
from kit.cli.verbs.options import MEASURE
from kit.errors import InputError
from kit.model.allreduce import ALGORITHMS, LIBRARIES

if TYPE_CHECKING:
    from kit.cli.session import Session


def not_negative(text: str) -> float:
    """A number from 0 on."""
    if re.fullmatch(r"0+(\.0+)?", text, re.ASCII):
        return 0.0
    try:
        return positive(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number from 0 on") from None


def share(text: str) -> float:
    """A part of 1, such as 0.9."""
    wrong = f"'{text}' is not a part of 1, such as 0.9"
    try:
        found = positive(text)
    except ValueError:
        raise ValueError(wrong) from None
    if found > 1:
        raise ValueError(wrong)
    return found


VERBS = (
    Verb(
        words=("predict",),
        purpose="Predict how training scales from gradients, links and the time of a step, with every assumption.",
        handler="predict.predict",
        group=MEASURE,
        options=(
            Option(flags=("--model",), value="NAME", kind=words, help="Whose gradients; a wrong name lists all."),
            Option(
                flags=("--gradients",),
                value="FILE",
                kind=words,
                help='Instead of --model: {"layers": [[multiplications, elements …], …]}, backward.',
            ),
            Option(flags=("--parameters",), value="N", kind=words, help="Instead of --model: so many, such as 25.6m."),
            Option(flags=("--gpus",), value="N", kind=count, help="Ranks in all (default: 8)."),
            Option(flags=("--per-host",), value="N", kind=count, help="Ranks on each host (default: 1)."),
            Option(
                flags=("--step-ms",),
                value="MS",
                kind=positive,
                help="Forward and backward of one rank alone, measured.",
            ),
            Option(
                flags=("--img-sec",),
                value="N",
                kind=positive,
                help="Instead of --step-ms: images a second of one rank; needs --batch-size.",
            ),
            Option(flags=("--batch-size",), value="N", kind=count, help="Images of a rank and step, to tell a rate."),
            Option(flags=("--link",), value="RATE", kind=words, help="Each host's link: 8gbit, 200mbit."),
            Option(
                flags=("--intra",),
                value="WHAT",
                kind=words,
                help="Between ranks of a host: pcie (default), nvlink, shm, or a rate such as 100gbit.",
            ),
            Option(flags=("--library",), value="NAME", choices=LIBRARIES, help="Who sums: nccl (default) or mpi."),
            Option(
                flags=("--algorithm",),
                value="NAME",
                choices=ALGORITHMS,
                help="auto (default: the library's own choice), ring, hierarchical, tree, …",
            ),
            Option(
                flags=("--duplex",),
                help="With --library mpi: ranks send each other both ways at once (else they take turns).",
            ),
            Option(flags=("--compression",), value="WHAT", choices=("none", "fp16"), help="Of gradients on the wire."),
            Option(flags=("--fusion-mb",), value="MB", kind=not_negative, help="Horovod's fusion buffer (128)."),
            Option(flags=("--cycle-ms",), value="MS", kind=not_negative, help="Horovod's cycle (1)."),
            Option(flags=("--latency-us",), value="US", kind=not_negative, help="Of a message between hosts (50)."),
            Option(
                flags=("--payload-share",),
                value="PART",
                kind=share,
                help="Of the link's rate that is payload (default: TCP in frames of 1500 bytes, 0.941).",
            ),
            Option(
                flags=("--memory-rate",),
                value="RATE",
                kind=words,
                help="At which a rank copies and adds numbers (nccl: 1600gbit, mpi: 40gbit).",
            ),
            Option(flags=("--forward-share",), value="PART", kind=share, help="Of a step before backward (1/3)."),
        ),
        notes="Backward makes gradients ready at the pace of the layers' multiplications; Horovod joins and sums them "
        "while it goes on. Nothing is fitted to measurements: docs/predict.md holds it against some.",
        examples=(
            "kit predict --model resnet50 --gpus 8 --per-host 2 --step-ms 290 --link 8gbit",
            "kit predict --model vgg16 --gpus 512 --per-host 4 --img-sec 154 --batch-size 64 --link 25gbit",
            "kit predict --parameters 257m --gpus 16 --per-host 8 --step-ms 300 --link 50gbit --intra nvlink",
        ),
        exits=(("2", "a flag is wrong, or there is no such model"),),
    ),
)


def predict(session: Session) -> int:
    from dataclasses import fields

    from kit.cli.text.predict import text
    from kit.flows.predict import PredictRequest, predict

    args = session.args
    names = [field.name for field in fields(PredictRequest)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if "step_ms" in given and "img_sec" in given:
        raise InputError("--step-ms and --img-sec exclude each other", hint="give one of them")
    answer = predict(PredictRequest(**given), folder=session.folder)
    session.show("prediction", answer, "" if session.json else text(answer))
    return 0
