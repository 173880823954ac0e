"""Horovod's settings as options: the variable that each sets, and which of them have no effect in a run.

Horovod reads its environment once, in hvd.init(), so options set variables before that. The rules come from the source
of Horovod 0.28.1 (horovod/common/operations.cc, parameter_manager.cc): see docs/tensorflow.md. This module imports no
framework.
"""

import argparse
import os
from typing import Any, Callable, Dict, List, Mapping, MutableMapping, Optional, Tuple

from _benchmark import natural, real

# Horovod's defaults. An option with its default value has no effect.
FUSION_MB, CYCLE_MS, CACHE_CAPACITY = 128, 1, 1024
# The autotuner takes the median of five samples as a score.
SCORE_SAMPLES = 5


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options to a program's parser."""
    group = parser.add_argument_group("Horovod's settings (an option wins over the environment)")
    group.add_argument(
        "--fusion-mb", type=real, metavar="N", help="send small tensors together, up to N MiB; 0: each separately (128)"
    )
    group.add_argument(
        "--cycle-ms", type=real, metavar="F", help="time for which Horovod collects tensors before it sends them (1)"
    )
    group.add_argument(
        "--cache-capacity",
        type=natural,
        metavar="N",
        help="tensors whose negotiation Horovod remembers; 0: no cache (1024)",
    )
    group.add_argument(
        "--hierarchical-allreduce",
        action="store_true",
        help="reduce within each host first, then between hosts; needs NCCL",
    )
    group.add_argument(
        "--autotune", action="store_true", help="let Horovod try fusion, cycle and cache while it trains"
    )
    group.add_argument(
        "--autotune-log", metavar="FILE", help="file for what the autotuner tried (CSV, written by rank 0)"
    )
    group.add_argument("--timeline", metavar="FILE", help="file for a chrome://tracing trace, written by rank 0")


def _mib(text: str) -> float:
    return round(int(text) / 2**20, 6)


def _on(_value: object) -> str:
    return "1"


def _is_on(text: str) -> bool:
    return int(text) > 0


# option, variable, the variable's value for an option, and the option's value for a variable
KNOBS: Tuple[Tuple[str, str, Callable[[Any], str], Callable[[str], Any]], ...] = (
    ("fusion_mb", "HOROVOD_FUSION_THRESHOLD", lambda value: str(int(value * 2**20)), _mib),
    ("cycle_ms", "HOROVOD_CYCLE_TIME", lambda value: "%g" % value, float),
    ("cache_capacity", "HOROVOD_CACHE_CAPACITY", str, int),
    ("hierarchical_allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", _on, _is_on),
    ("autotune", "HOROVOD_AUTOTUNE", _on, _is_on),
    ("autotune_log", "HOROVOD_AUTOTUNE_LOG", str, str),
    ("timeline", "HOROVOD_TIMELINE", str, str),
)
DEFAULTS = {"fusion_mb": FUSION_MB, "cycle_ms": CYCLE_MS, "cache_capacity": CACHE_CAPACITY}


def flag(option: str) -> str:
    return "--" + option.replace("_", "-")


def settle(args: argparse.Namespace, environ: MutableMapping[str, str]) -> List[str]:
    """Set the options' variables in `environ`. Return a line for each option that won over another value."""
    words = []
    for option, variable, text, _ in KNOBS:
        value = getattr(args, option)
        if value is None or value is False:
            continue
        before, wanted = environ.get(variable), text(value)
        if before is not None and before != wanted:
            words.append("%s wins: %s is %s, and was %s" % (flag(option), variable, wanted, before))
        environ[variable] = wanted
    return words


def in_force(environ: Mapping[str, str]) -> Dict[str, Any]:
    """Return the settings that differ from Horovod's defaults, by option: {"cycle_ms": 5.0, "autotune": True}."""
    settings = {}
    for option, variable, _, back in KNOBS:
        text = environ.get(variable)
        if text is None:
            continue
        try:
            value = back(text)
        except ValueError:
            # Horovod parses what it can. Report the text unchanged.
            value = text
        if value is not False and value != DEFAULTS.get(option):
            settings[option] = value
    return settings


def autotune_steps(environ: Mapping[str, str], nccl: bool) -> int:
    """Estimate how many steps the autotuner needs to decide, by Horovod's defaults or the environment.

    A score takes five samples. Horovod discards some as warm-up and then searches fusion and cycle. It repeats the
    search for every combination of the on-off settings that nobody has set: hierarchical all-gather (even if it has no
    effect), cache, and with NCCL hierarchical and torus all-reduce.
    """
    warm, steps, points = (
        int(environ.get("HOROVOD_AUTOTUNE_" + name, default))
        for name, default in (("WARMUP_SAMPLES", 3), ("STEPS_PER_SAMPLE", 10), ("BAYES_OPT_MAX_SAMPLES", 20))
    )
    switches = ["HIERARCHICAL_ALLGATHER", "CACHE_CAPACITY"]
    if nccl:
        switches += ["HIERARCHICAL_ALLREDUCE", "TORUS_ALLREDUCE"]
    searches = 2 ** sum("HOROVOD_" + name not in environ for name in switches)
    if "HOROVOD_FUSION_THRESHOLD" in environ and "HOROVOD_CYCLE_TIME" in environ:
        points = 0
    return int((warm + (points + 1) * searches) * steps * SCORE_SAMPLES)


def idle(
    options: Mapping[str, Any],
    *,
    ranks: int,
    hosts: int,
    nccl: bool,
    gpus: bool,
    steps: int,
    environ: Mapping[str, str],
) -> List[str]:
    """Return a line for each option that can have no effect here. `options` are those in force."""
    lines = []
    exchange = [flag(name) for name in ("fusion_mb", "cycle_ms", "cache_capacity", "autotune") if name in options]
    if ranks == 1 and exchange:
        lines.append("%s: 1 rank exchanges nothing, so that does nothing" % ", ".join(exchange))
    if options.get("hierarchical_allreduce"):
        if not nccl:
            why = "this Horovod was built without NCCL, and over MPI it has one way of all-reducing"
        elif not gpus:
            why = "Horovod does it with NCCL, and there is no GPU"
        else:
            why = "all ranks are on one host, where Horovod ignores it" if hosts == 1 else ""
        if why:
            lines.append("--hierarchical-allreduce does nothing here: " + why)
    if "autotune_log" in options and "autotune" not in options:
        lines.append("--autotune-log does nothing without --autotune")
    if "autotune" in options and ranks > 1:
        needed = autotune_steps(environ, nccl)
        if steps < needed:
            lines.append(
                "--autotune takes about %d steps to decide, and this run has %d: all of its figures are of settings "
                "that are being tried" % (needed, steps)
            )
    return lines


def unwritable(args: argparse.Namespace) -> Optional[str]:
    """Return why rank 0 cannot write a file, or None. Horovod itself would only log it."""
    for option in ("autotune_log", "timeline"):
        path = getattr(args, option)
        if not path:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            return "%s %s: that is a folder" % (flag(option), path)
        if not os.path.isdir(folder):
            return "%s %s: there is no folder %s where rank 0 runs (a path of the container; volumes: in kit.yaml)" % (
                flag(option), path, folder,
            )  # fmt: skip
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            return "%s %s: it may not be written" % (flag(option), path)
    return None
