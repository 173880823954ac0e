"""The names that kit bench accepts, as far as they are known before a run: presets, networks, stores, models."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from kit.errors import InputError
from kit.plan.bench.cases import LADDER, NETWORKS, PRESETS, WORKLOADS, BenchFacts, BenchOptions, workload_of
from kit.plan.bench.record import MOST_REPEATS

# MXNet 1.9's gluon model zoo, and Keras 2.15's applications: what the images that kit builds have.
GLUON = (
    "alexnet", "densenet121", "densenet161", "densenet169", "densenet201", "inceptionv3",
    "mobilenet0.25", "mobilenet0.5", "mobilenet0.75", "mobilenet1.0",
    "mobilenetv2_0.25", "mobilenetv2_0.5", "mobilenetv2_0.75", "mobilenetv2_1.0",
    "resnet101_v1", "resnet101_v2", "resnet152_v1", "resnet152_v2", "resnet18_v1", "resnet18_v2",
    "resnet34_v1", "resnet34_v2", "resnet50_v1", "resnet50_v2", "squeezenet1.0", "squeezenet1.1",
    "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
)  # fmt: skip
KERAS = (
    "convnextbase", "convnextlarge", "convnextsmall", "convnexttiny", "convnextxlarge",
    "densenet121", "densenet169", "densenet201",
    *(f"efficientnetb{n}" for n in range(8)), *(f"efficientnetv2{n}" for n in ("b0", "b1", "b2", "b3", "l", "m", "s")),
    "inceptionresnetv2", "inceptionv3", "mobilenet", "mobilenetv2", "mobilenetv3large", "mobilenetv3small",
    "nasnetlarge", "nasnetmobile",
    *(f"regnet{kind}{n:03}" for kind in "xy" for n in (2, 4, 6, 8, 16, 32, 40, 64, 80, 120, 160, 320)),
    "resnet101", "resnet101v2", "resnet152", "resnet152v2", "resnet50", "resnet50v2",
    *(f"resnetrs{n}" for n in (50, 101, 152, 200, 270, 350, 420)), "vgg16", "vgg19", "xception",
)  # fmt: skip
# What mxnet_train knows, by the names of MXNet's image-classification examples.
MXNET_TRAIN = (
    "alexnet", "densenet-121", "densenet-161", "densenet-169", "densenet-201", "googlenet", "inception-v3",
    "lenet", "mlp", "mobilenet", "mobilenet-0.25", "mobilenet-0.5", "mobilenet-0.75", "mobilenet-v2",
    "resnet-18", "resnet-34", "resnet-50", "resnet-101", "resnet-152",
    "resnet-v2-18", "resnet-v2-34", "resnet-v2-50", "resnet-v2-101", "resnet-v2-152",
    "squeezenet", "vgg-11", "vgg-13", "vgg-16", "vgg-16-bn", "vgg-19",
)  # fmt: skip
# Whose gradients paced_benchmark knows (images/lib/models.json).
PACED = (
    "alexnet", "bertbase", "bertlarge", "densenet121", "efficientnetb0", "googlenet", "gpt2", "gpt2xl", "inceptionv3",
    "mobilenet", "mobilenetv2", "resnet101", "resnet152", "resnet18", "resnet34", "resnet50", "squeezenet",
    "transformerxl", "vgg16", "vgg19", "xception",
)  # fmt: skip


def check_words(options: BenchOptions, *, stores: Sequence[str]) -> None:
    """Raise InputError with the valid names if a name is wrong on any cluster.

    The preset comes first because the others depend on it.
    """
    one_of("--preset", options.preset, (LADDER, *PRESETS))
    if options.workload is not None:
        one_of("--workload", options.workload, WORKLOADS)
    for network in options.networks:
        one_of("--networks", network, NETWORKS)
    for store in options.stores:
        one_of("--stores", store, stores)
    if options.repeats > MOST_REPEATS:
        raise InputError(f"--repeats {options.repeats} is too many", hint=f"write a number from 1 to {MOST_REPEATS}")
    _belongs(options)
    if options.paced is not None:
        one_of("--paced", _folded(options.paced), PACED)


def check_names(facts: BenchFacts, options: BenchOptions, *, stores: Sequence[str]) -> None:
    """Run `check_words`, then check the names against this cluster's image."""
    check_words(options, stores=stores)
    needs = {"kvstore": "mxnet", "compression": "tensorflow"}.get(options.preset)
    if needs is not None and options.paced is None and facts.frameworks and needs not in facts.frameworks:
        raise InputError(
            f"--preset {options.preset}: the cluster's image has no {needs}",
            hint="change image.frameworks in kit.yaml and deploy"
            + ("" if needs == "mxnet" or facts.unpaced else ", or add --paced MODEL"),
        )
    if options.paced is not None and facts.unpaced:
        lacks = "needs MXNet" if facts.horovod else "measures Horovod"
        raise InputError(
            f"--paced {options.paced} {lacks}, which the cluster's image does not have",
            hint="remove --paced, or change image.frameworks in kit.yaml and deploy",
        )
    if options.step_ms is not None and facts.unpaced:
        raise InputError(f"--step-ms is for paced_benchmark: {facts.unpaced}", hint="remove --step-ms")
    for flag, given in _paced_sizes(options).items():
        if given is not None and facts.unpaced and options.preset == "tuning":
            # What is left of the preset all-reduces messages of its own sizes.
            raise InputError(f"{flag} is for paced_benchmark: {facts.unpaced}", hint=f"remove {flag}")
    if options.data is not None and options.data not in facts.data:
        known = ", ".join(facts.data)
        raise InputError(
            f"--data {options.data}: kit.yaml has no data set of that name",
            hint=f"choose one of: {known}" if known else "add it to data: in kit.yaml, and run kit deploy",
        )
    # An image with the user's own base may have any model, as with torchvision: its first run shows it.
    if options.model is not None and options.paced is None and facts.frameworks:
        _model(facts, options, options.model)


def one_of(flag: str, word: str, known: Sequence[str]) -> None:
    if word in known:
        return
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    guess = f"did you mean {close[0]}? " if close else ""
    raise InputError(f"{flag}: unknown value '{word}'", hint=f"{guess}choose one of: {', '.join(known)}")


def _model(facts: BenchFacts, options: BenchOptions, model: str) -> None:
    if options.preset == "kvstore":
        one_of("--model", model, MXNET_TRAIN)
        return
    workload = "tf" if options.preset == "compression" else workload_of(facts, options)
    if workload == "tf":
        one_of("--model", _folded(model), KERAS)
    elif workload == "mxnet":
        one_of("--model", model.lower(), GLUON)


def _folded(model: str) -> str:
    """Normalize a model's name: ResNet-50 and resnet50 are the same, as they are for the programs."""
    return model.lower().replace("_", "").replace("-", "")


def _paced_sizes(options: BenchOptions) -> dict[str, int | None]:
    """Return the sizes of training that paced_benchmark has, too, by their flags."""
    return {
        "--batch-size": options.batch_size,
        "--num-warmup": options.num_warmup,
        "--num-iters": options.num_iters,
    }


def _belongs(options: BenchOptions) -> None:
    """Raise InputError for flags that the preset, or --paced, would ignore."""
    training = (LADDER, "egs", "kvstore", "compression")
    unpaced_sizes = {"--image-size": options.image_size, "--num-batches-per-iter": options.num_batches}
    of = {
        "--networks": (options.networks, ("networks",)),
        "--stores": (options.stores, ("kvstore",)),
        "--ranks": (options.ranks, (LADDER, "egs")),
        "--workload": (options.workload, (LADDER, "egs")),
        "--data": (options.data, (LADDER, "egs")),
        "--paced": (options.paced, (LADDER, "egs", "compression", "tuning")),
        "--model": (options.model, training),
        **{flag: (size, (*training, "tuning")) for flag, size in _paced_sizes(options).items()},
        **{flag: (size, training) for flag, size in unpaced_sizes.items()},
    }
    for flag, (given, presets) in of.items():
        if given and options.preset not in presets:
            where = " or ".join("the ladder" if p == LADDER else f"--preset {p}" for p in presets)
            raise InputError(f"{flag} does not apply to --preset {options.preset}", hint=f"it is for {where}")
    if options.paced is not None and options.data is not None:
        raise InputError("--paced reads no images", hint="remove --data, or --paced")
    for flag, size in unpaced_sizes.items():
        if options.paced is not None and size is not None:
            raise InputError(f"{flag} does not apply to --paced", hint=f"remove {flag}, or --paced")
    if options.step_ms is not None and options.paced is None and options.preset != "tuning":
        raise InputError("--step-ms requires --paced", hint="for example: add --paced resnet50")
    if options.paced is not None and (options.model is not None or options.workload is not None):
        raise InputError("--paced already names the model", hint="remove --model and --workload, or --paced")
