"""Horovod's own settings as options: what each becomes in the environment, and which of them do nothing where they are.

Horovod reads its environment once, in hvd.init(), so they are set before. What was read in the source of Horovod 0.28.1
(horovod/common/operations.cc, parameter_manager.cc): see docs/tensorflow.md. No framework is imported here.
"""

import os

from _benchmark import natural, real

# Horovod's defaults. An option that says the same differs in nothing.
FUSION_MB, CYCLE_MS, CACHE_CAPACITY = 128, 1, 1024
# A score of the autotuner is the median of five samples.
SCORE_SAMPLES = 5


def add(parser):
    group = parser.add_argument_group("Horovod's settings (an option wins over the environment)")
    group.add_argument(
        "--fusion-mb", type=real, metavar="N", help="small tensors travel together, up to N MiB; 0: each alone (128)"
    )
    group.add_argument(
        "--cycle-ms", type=real, metavar="F", help="how long Horovod gathers tensors before it sends them (1)"
    )
    group.add_argument(
        "--cache-capacity", type=natural, metavar="N", help="tensors whose negotiation is remembered; 0: none (1024)"
    )
    group.add_argument(
        "--hierarchical-allreduce", action="store_true", help="within a host first, then between hosts; needs NCCL"
    )
    group.add_argument("--autotune", action="store_true", help="Horovod tries fusion, cycle and cache while it trains")
    group.add_argument("--autotune-log", metavar="FILE", help="what the autotuner tried, as CSV, written by rank 0")
    group.add_argument("--timeline", metavar="FILE", help="a trace for chrome://tracing, written by rank 0")


def _mib(text):
    return round(int(text) / 2**20, 6)


# option, variable, its value in the environment, and back
KNOBS = (
    ("fusion_mb", "HOROVOD_FUSION_THRESHOLD", lambda value: str(int(value * 2**20)), _mib),
    ("cycle_ms", "HOROVOD_CYCLE_TIME", lambda value: "%g" % value, float),
    ("cache_capacity", "HOROVOD_CACHE_CAPACITY", str, int),
    ("hierarchical_allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", lambda value: "1", lambda text: int(text) > 0),
    ("autotune", "HOROVOD_AUTOTUNE", lambda value: "1", lambda text: int(text) > 0),
    ("autotune_log", "HOROVOD_AUTOTUNE_LOG", str, str),
    ("timeline", "HOROVOD_TIMELINE", str, str),
)
DEFAULTS = {"fusion_mb": FUSION_MB, "cycle_ms": CYCLE_MS, "cache_capacity": CACHE_CAPACITY}


def flag(option):
    return "--" + option.replace("_", "-")


def settle(args, environ):
    """Puts the options into `environ`, and gives the lines that say where an option won over what stood there."""
    words = []
    for option, variable, text, _ in KNOBS:
        value = getattr(args, option)
        if value is None or value is False:
            continue
        there, wanted = environ.get(variable), text(value)
        if there is not None and there != wanted:
            words.append("%s wins: %s is %s, and was %s" % (flag(option), variable, wanted, there))
        environ[variable] = wanted
    return words


def in_force(environ):
    """What differs from Horovod's defaults, by option, wherever it came from: {"cycle_ms": 5.0, "autotune": True}."""
    found = {}
    for option, variable, _, back in KNOBS:
        text = environ.get(variable)
        if text is None:
            continue
        try:
            value = back(text)
        except ValueError:
            # Horovod takes what it can of it; here it is passed on as it stands.
            value = text
        if value is not False and value != DEFAULTS.get(option):
            found[option] = value
    return found


def autotune_steps(environ, nccl):
    """About how many steps the autotuner needs before it has decided, by Horovod's defaults or what the environment says.

    A score takes five samples. Some are thrown away as warm-up; then fusion and cycle are searched, and searched anew
    for every combination of the settings that are on or off and that nobody has said: hierarchical all-gather (searched
    where it does nothing, too), cache, and with NCCL hierarchical and torus all-reduce.
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
    return (warm + (points + 1) * searches) * steps * SCORE_SAMPLES


def idle(options, ranks, hosts, nccl, gpus, steps, environ):
    """Lines about what was asked for and can do nothing here. `options` are those in force, `steps` those of the run."""
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


def unwritable(args):
    """Why a file that rank 0 is to write cannot be, or None. Horovod itself would only say so in its log."""
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
