"""What tf_benchmark and mxnet_benchmark share: the flags, the timing and the report.

Nothing heavy is imported here: a wrong flag is told at once.
"""

import argparse
import json
import math
import os
import sys
import time

START = time.monotonic()
# What --compression is where nobody says it on the command line: kit.yaml's env, where kit tune --fp16 writes it.
COMPRESSION = "KIT_COMPRESSION"
# How much later than others the first rank may start, and still be the one that says what is wrong.
FIRST_S = 5.0


class Parser(argparse.ArgumentParser):
    """Speaks on the first rank alone; the others end with the same exit code."""

    def print_help(self, file=None):
        if is_first():
            super().print_help(file)

    def error(self, message):
        wrong(self.prog, "%s\n%s: --help lists all options" % (message, self.prog))


def arguments(prog, description, model, extend=None, examples=""):
    """The flags, read. `extend(parser)` adds those of the program's own; `examples` end the help."""
    parser = Parser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    group = parser.add_argument_group("what is trained")
    group.add_argument(
        "--model", default=model, metavar="NAME", help="default: %(default)s; a wrong name lists what there is"
    )
    group.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="images a rank and step (default: %(default)s)"
    )
    group.add_argument(
        "--image-size", type=positive, metavar="N", help="pixels a side (default: what the model was made for)"
    )
    group.add_argument("--fp16", action="store_true", help="half precision, with single-precision weights")
    group.add_argument("--intra-op", type=natural, metavar="N", help="threads in an operation; 0: framework's choice")
    group.add_argument("--inter-op", type=natural, metavar="N", help="operations at a time; 0: framework's choice")
    group = parser.add_argument_group("how it is measured")
    group.add_argument(
        "--num-warmup", type=positive, default=10, metavar="N", help="steps before the clock runs (%(default)s)"
    )
    group.add_argument(
        "--num-iters", type=positive, default=10, metavar="N", help="measurements (default: %(default)s)"
    )
    group.add_argument(
        "--num-batches-per-iter", type=positive, default=10, metavar="N", help="steps in each (default: %(default)s)"
    )
    group.add_argument("--json", action="store_true", help="one JSON object on stdout at the end, from rank 0")
    if extend:
        extend(parser)
    return parser.parse_args()


def positive(text):
    return _number(text, int, 1)


def natural(text):
    return _number(text, int, 0)


def real(text):
    """A number that is 0 or more, with a fraction or without."""
    return _number(text, float, 0)


def above_zero(text):
    value = _number(text, float, 0)
    if value == 0:
        raise argparse.ArgumentTypeError("'%s' is not above 0" % text)
    return value


def _number(text, kind, least):
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError("'%s' is not a %snumber" % (text, "whole " if kind is int else "")) from None
    if not value >= least or value == math.inf:
        raise argparse.ArgumentTypeError("'%s' is less than %d, or no bounded number" % (text, least))
    return value


def settle_compression(prog, args, choices, environ):
    """Puts what is in force into args.compression, and gives the words that said it; '' where nobody did.

    A flag wins over the variable; an empty variable counts as not set. A wrong one ends every rank.
    """
    if args.compression is not None:
        return "--compression " + args.compression
    told = environ.get(COMPRESSION, "")
    if told and told not in choices:
        wrong(prog, "%s: '%s' is not one of: %s; --compression wins over it" % (COMPRESSION, told, ", ".join(choices)))
    args.compression = told or choices[0]
    return "%s=%s" % (COMPRESSION, told) if told else ""


def threads(intra_op, inter_op):
    """(intra, inter) threads of this rank. Ranks share a node's cores, and more threads than cores slow all of them.

    What a flag or OMP_NUM_THREADS says goes first; 0 lets the framework choose.
    """
    share = cores_a_rank()
    told = os.environ.get("OMP_NUM_THREADS", "")
    if intra_op is None:
        intra_op = int(told) if told.isdigit() else max(1, share)
    if inter_op is None:
        inter_op = 0 if share > 1 else 1
    return intra_op, inter_op


# As other programs here know them.
_positive, _natural = positive, natural


def cores_a_rank():
    """The cores of this rank, divided by the ranks that share them; 0 where there are more ranks than cores."""
    return len(os.sched_getaffinity(0)) // int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))


def is_first():
    return os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0"


def wrong(prog, message):
    """Ends every rank with exit code 2; the first says why. For what every rank finds alike."""
    if is_first():
        print("%s: %s" % (prog, message), file=sys.stderr, flush=True)
    else:
        # mpirun ends all when one has ended: the first must have spoken by then.
        time.sleep(FIRST_S)
    sys.exit(2)


class Report:
    """Speaks for rank 0, and is silent on the others. With --json the words go to stderr."""

    def __init__(self, args, rank, size):
        self._args, self._rank, self._size = args, rank, size
        self._facts = {}
        self._more = {}
        self._notes = []

    def say(self, text):
        if self._rank == 0:
            print(text, file=sys.stderr if self._args.json else sys.stdout, flush=True)

    def note(self, text):
        """A line that whoever reads the figures should know. With --json it is among the results, too."""
        self._notes.append(text)
        self.say("Note: " + text)

    def add(self, **facts):
        """More for the JSON object."""
        self._more.update(facts)

    def header(self, framework, version, model, image_size, device, intra_op, inter_op):
        self._facts = {
            "workload": "training",
            "simulated": False,
            "framework": framework,
            "version": version,
            "model": model,
            "batch_size": self._args.batch_size,
            "image_size": image_size,
            "precision": "fp16" if self._args.fp16 else "fp32",
            "ranks": self._size,
            "device": device,
            "intra_op": intra_op,
            "inter_op": inter_op,
        }
        self.say("%s %s" % (framework, version))
        self.say("Model: %s" % model)
        self.say("Batch size: %d, image size: %d, %s" % (self._args.batch_size, image_size, self._facts["precision"]))
        self.say("Number of %ss: %d" % (device, self._size))

    def measure(self, step, total, watch=None):
        """Warms up, measures, and reports. `step()` ends when its batch is done; `total(values)` sums over the ranks.

        `watch()` is called when the clock rests, after the warm-up and after each measurement, and gives what has been
        seen since the last call, a number by name: it is told beside the rate, and is a list in the JSON object.
        """
        args = self._args
        ready = time.monotonic() - START
        self.say("Running warmup...")
        began = time.monotonic()
        step()
        first = time.monotonic() - began
        self.say("First step: %.1f s, after %.1f s of start-up" % (first, ready))
        for _ in range(args.num_warmup - 1):
            step()
        self.say("Running benchmark...")
        rates, seen = [], []
        if watch:
            watch()
        for number in range(args.num_iters):
            began = time.monotonic()
            for _ in range(args.num_batches_per_iter):
                step()
            rates.append(args.batch_size * args.num_batches_per_iter / (time.monotonic() - began))
            words = "Iter #%d: %.1f img/sec per rank" % (number, rates[-1])
            if watch:
                seen.append(watch())
                words += "".join(", %s %.4g" % pair for pair in seen[-1].items())
            self.say(words)
        totals = [float(value) for value in total(rates)]
        mean, deviation = _statistics(totals)
        self.say("Img/sec per rank: %.1f +-%.1f" % (mean / self._size, 1.96 * deviation / self._size))
        self.say("total images/sec on %d ranks: %.1f +-%.1f" % (self._size, mean, 1.96 * deviation))
        if args.json and self._rank == 0:
            result = dict(
                self._facts,
                options={},
                notes=self._notes,
                img_sec_per_rank=mean / self._size,
                img_sec_per_rank_ci=1.96 * deviation / self._size,
                img_sec_total=mean,
                img_sec_total_ci=1.96 * deviation,
                iters=totals,
                startup_s=ready,
                first_step_s=first,
            )
            if seen:
                result.update({name: [each[name] for each in seen] for name in seen[0]})
            result.update(self._more)
            print(json.dumps(result), flush=True)


def _statistics(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
