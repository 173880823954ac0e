"""kit predict: compute how training scales, from gradients, links and the time of a step."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Option, Verb
from kit.cli.verbs.options import MEASURE
from kit.cli.verbs.values import (
    count,
    microseconds,
    milliseconds,
    milliseconds_or_0,
    not_negative,
    positive,
    share,
    words,
)
from kit.errors import InputError
from kit.model.allreduce import ALGORITHMS, LIBRARIES

if TYPE_CHECKING:
    from kit.cli.session import Session


def predict(session: Session) -> int:
    from pathlib import Path

    from kit.cli.text import predict as text
    from kit.flows.predict import PredictRequest, predict
    from kit.model.values import fields

    args = session.args
    given = {name: getattr(args, name) for name in fields(PredictRequest) if getattr(args, name) is not None}
    if "step_ms" in given and "img_sec" in given:
        raise InputError("--step-ms and --img-sec exclude each other", hint="give one of them")
    session.show("prediction", predict(PredictRequest(**given), folder=Path()), session.fitted(text.text))
    return 0


VERBS = (
    Verb(
        words=("predict",),
        purpose="Predict how training scales, and list every assumption",
        handler=predict,
        group=MEASURE,
        options=(
            Option(
                flags=("--model",),
                value="NAME",
                kind=words,
                complete=candidates.model,
                help="Use this model's gradients; an unknown name lists all",
            ),
            Option(
                flags=("--gradients",),
                value="FILE",
                kind=words,
                complete=candidates.files,
                help='Read gradients from FILE: {"layers": [[multiplications, elements …], …]}, last layer first',
            ),
            Option(
                flags=("--parameters",),
                value="N",
                kind=words,
                help="Assume N parameters instead of a model, such as 25.6m",
            ),
            Option(flags=("--gpus",), value="N", kind=count, help="Predict N ranks in total (default: 8)"),
            Option(flags=("--per-host",), value="N", kind=count, help="Put N ranks on each host (default: 1)"),
            Option(
                flags=("--step-ms",),
                value="TIME",
                kind=milliseconds,
                help="Set the measured time of forward and backward of one rank alone: 290, 290ms, 1.5s",
            ),
            Option(
                flags=("--img-sec",),
                value="N",
                kind=positive,
                help="Set images per second of one rank instead of --step-ms; needs --batch-size",
            ),
            Option(
                flags=("--batch-size",), value="N", kind=count, help="Set images per rank and step, to report a rate"
            ),
            Option(
                flags=("--link",),
                value="RATE",
                kind=words,
                help="Set the rate of each host's link: 8gbit, 8Gbps",
            ),
            Option(
                flags=("--intra",),
                value="WHAT",
                kind=words,
                complete=lambda _: ("pcie", "nvlink", "shm"),
                help="Connect ranks of a host by pcie (default), nvlink, shm, or at a rate such as 100gbit",
            ),
            Option(
                flags=("--library",),
                value="NAME",
                choices=LIBRARIES,
                help="Sum gradients with nccl (default) or mpi",
            ),
            Option(
                flags=("--algorithm",),
                value="NAME",
                choices=ALGORITHMS,
                help="Use auto (default: the library's own choice), ring, hierarchical, tree, …",
            ),
            Option(
                flags=("--duplex",),
                help="With --library mpi: let ranks send in both directions at once instead of in turns",
            ),
            Option(
                flags=("--compression",),
                value="WHAT",
                choices=("none", "fp16"),
                help="Compress gradients on the wire (default: none)",
            ),
            Option(
                flags=("--fusion-mb",),
                value="MB",
                kind=not_negative,
                help="Set the size of Horovod's fusion buffer (default: 128)",
            ),
            Option(
                flags=("--cycle-ms",),
                value="TIME",
                kind=milliseconds_or_0,
                help="Set Horovod's cycle time in ms (default: 1)",
            ),
            Option(
                flags=("--latency-us",),
                value="TIME",
                kind=microseconds,
                help="Set the latency of a message between hosts: 50, 50us, 0.1ms (default: 50)",
            ),
            Option(
                flags=("--payload-share",),
                value="PART",
                kind=share,
                help="Set the payload's part of the link's rate (default: 0.941, TCP in frames of 1500 bytes)",
            ),
            Option(
                flags=("--memory-rate",),
                value="RATE",
                kind=words,
                help="Set the rate at which a rank copies and adds numbers (default: nccl 1600gbit, mpi 40gbit)",
            ),
            Option(
                flags=("--forward-share",),
                value="PART",
                kind=share,
                help="Set the forward pass's part of a step (default: 1/3)",
            ),
        ),
        notes="Backward produces gradients at the pace of the layers' multiplications; Horovod fuses and sums them "
        "meanwhile. Nothing is fitted to measurements: docs/predict.md compares predictions with measurements.",
        examples=(
            "kit predict --model resnet50 --gpus 8 --per-host 2 --step-ms 290 --link 8gbit",
            "kit predict --model vgg16 --gpus 512 --per-host 4 --img-sec 154 --batch-size 64 --link 25gbit",
            "kit predict --parameters 257m --gpus 16 --per-host 8 --step-ms 300 --link 50gbit --intra nvlink",
        ),
        exits=(("2", "a flag is wrong, or the model is unknown"),),
    ),
)
