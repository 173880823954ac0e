"""The flags, the timing and the report that tf_benchmark, mxnet_benchmark and torch_benchmark share.

This module imports nothing heavy, so that a wrong flag is reported at once.
"""

import argparse
import json
import math
import os
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, MutableMapping, NoReturn, Optional, Sequence, Tuple, TypeVar

START = time.monotonic()
# The default of --compression: a variable in kit.yaml's env, where `kit tune --fp16` writes it.
COMPRESSION = "KIT_COMPRESSION"
# How much later than others the first rank may start and still be the one that reports what is wrong.
FIRST_S = 5.0

Number = TypeVar("Number", int, float)


class Parser(argparse.ArgumentParser):
    """Prints only on the first rank; the others end with the same exit code."""

    def print_help(self, file: Any = None) -> None:
        if is_first():
            super().print_help(file)

    def error(self, message: str) -> NoReturn:
        wrong(self.prog, "%s\n%s: --help lists all options" % (message, self.prog))


def arguments(
    prog: str,
    description: str,
    model: str,
    extend: Optional[Callable[[argparse.ArgumentParser], None]] = None,
    examples: str = "",
) -> argparse.Namespace:
    """Return the parsed flags. `extend(parser)` adds the program's own flags; `examples` end the help."""
    parser = Parser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    group = parser.add_argument_group("what is trained")
    group.add_argument(
        "--model", default=model, metavar="NAME", help="default: %(default)s; a wrong name lists all names"
    )
    group.add_argument(
        "--batch-size",
        type=positive,
        default=32,
        metavar="N",
        help="images for each rank and step (default: %(default)s)",
    )
    group.add_argument(
        "--image-size", type=positive, metavar="N", help="width and height in pixels (default: the model's own)"
    )
    group.add_argument("--fp16", action="store_true", help="half precision, with single-precision weights")
    group.add_argument(
        "--intra-op", type=natural, metavar="N", help="threads in an operation; 0: the framework chooses"
    )
    group.add_argument("--inter-op", type=natural, metavar="N", help="operations at a time; 0: the framework chooses")
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


def positive(text: str) -> int:
    return _number(text, int, 1)


def natural(text: str) -> int:
    return _number(text, int, 0)


def real(text: str) -> float:
    """Return a number that is 0 or more, with or without a fraction."""
    return _number(text, float, 0)


def above_zero(text: str) -> float:
    value = _number(text, float, 0)
    if value == 0:
        raise argparse.ArgumentTypeError("'%s' is not above 0" % text)
    return value


def _number(text: str, kind: Callable[[str], Number], least: int) -> Number:
    try:
        value = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError("'%s' is not a %snumber" % (text, "whole " if kind is int else "")) from None
    if not value >= least or value == math.inf:
        raise argparse.ArgumentTypeError("'%s' is less than %d, or no bounded number" % (text, least))
    return value


def settle_compression(
    prog: str, args: argparse.Namespace, choices: Sequence[str], environ: MutableMapping[str, str]
) -> str:
    """Set args.compression to the value in force, and return the words that chose it; '' if nothing did.

    A flag wins over the variable. An empty variable counts as not set. A wrong one ends every rank.
    """
    if args.compression is not None:
        return "--compression %s" % args.compression
    value = environ.get(COMPRESSION, "")
    if value and value not in choices:
        wrong(prog, "%s: '%s' is not one of: %s; --compression wins over it" % (COMPRESSION, value, ", ".join(choices)))
    args.compression = value or choices[0]
    return "%s=%s" % (COMPRESSION, value) if value else ""


def threads(intra_op: Optional[int], inter_op: Optional[int]) -> Tuple[int, int]:
    """Return (intra, inter) threads of this rank.

    Ranks share a node's cores, and more threads than cores slow all of them down. A flag wins over OMP_NUM_THREADS,
    and that over the number of cores. 0 lets the framework choose.
    """
    share = cores_a_rank()
    variable = os.environ.get("OMP_NUM_THREADS", "")
    if intra_op is None:
        intra_op = int(variable) if variable.isdigit() else max(1, share)
    if inter_op is None:
        inter_op = 0 if share > 1 else 1
    return intra_op, inter_op


def cores_a_rank() -> int:
    """Return the cores for each rank of this node; 0 if there are more ranks than cores."""
    ranks = os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE", "1")
    return len(os.sched_getaffinity(0)) // int(ranks)


def is_first() -> bool:
    # torchrun's ranks have no variables of Open MPI.
    return (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK", "0")) == "0"


def wrong(prog: str, message: object) -> NoReturn:
    """End every rank with exit code 2, for a problem that every rank sees. The first rank prints the message."""
    if is_first():
        print("%s: %s" % (prog, message), file=sys.stderr, flush=True)
    else:
        # mpirun ends all ranks when one has ended, so the first rank must print before that.
        time.sleep(FIRST_S)
    sys.exit(2)


class Report:
    """Prints on rank 0, and nothing on the others. With --json, text goes to stderr."""

    def __init__(self, args: argparse.Namespace, rank: int, size: int) -> None:
        self._args, self._rank, self._size = args, rank, size
        self._facts: Dict[str, Any] = {}
        self._more: Dict[str, Any] = {}
        self._notes: List[str] = []

    def say(self, text: str) -> None:
        if self._rank == 0:
            print(text, file=sys.stderr if self._args.json else sys.stdout, flush=True)

    def note(self, text: str) -> None:
        """Print a line that matters to readers of the figures. With --json it is among the results, too."""
        self._notes.append(text)
        self.say("Note: " + text)

    def add(self, **facts: Any) -> None:
        """Add facts to the JSON object."""
        self._more.update(facts)

    def header(
        self,
        framework: str,
        version: str,
        *,
        model: str,
        image_size: int,
        device: str,
        intra_op: int,
        inter_op: int,
    ) -> None:
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

    def measure(
        self,
        step: Callable[[], object],
        total: Callable[[List[float]], Iterable[Any]],
        watch: Optional[Callable[[], Dict[str, float]]] = None,
    ) -> None:
        """Warm up, measure, and report. `step()` returns when its batch is done; `total(values)` sums over the ranks.

        On synthetic images, the result is the mean of the measurements, as in Horovod's own benchmark. On real images,
        which `watch` watches, it is all images divided by all of the time: waiting for images counts in full.

        `watch()` is called while the clock is stopped, after the warm-up and after each measurement. It returns numbers
        by name for the time since the last call. They are printed beside the rate, and are lists in the JSON object.
        """
        times = self._warm_up(step)
        rates, seen = self._rates("Iter #%d", self._args.num_iters, self._args.num_batches_per_iter, step, watch)
        totals = [float(value) for value in total(rates)]
        self._result(totals, totals, seen, times, (rate_of_all if watch else mean_of)(totals))

    def measure_epochs(
        self,
        made_up: Callable[[], object],
        step: Callable[[], object],
        total: Callable[[List[float]], Iterable[Any]],
        watch: Callable[[], Dict[str, float]],
        *,
        steps: int,
    ) -> None:
        """Measure steps on synthetic images, as measure() does, then args.epochs of `steps` steps on real ones.

        The rate that counts is that of all epochs after the first together, or of the first if it is the only one: the
        first one reads from the storage, the others may read from memory. That of synthetic images is a mean.
        """
        args = self._args
        times = self._warm_up(made_up)
        rates, _ = self._rates("Synthetic #%d", args.num_iters, args.num_batches_per_iter, made_up, None)
        self.say("Running %d epochs of %d steps..." % (args.epochs, steps))
        rates_of_epochs, seen = self._rates("Epoch %d", args.epochs, steps, step, watch, first=1)
        totals = [float(value) for value in total([*rates, *rates_of_epochs])]
        synthetic, epochs = totals[: len(rates)], totals[len(rates) :]
        later = epochs[1:] or epochs
        figures = [("synthetic", mean_of(synthetic)), ("first epoch", epochs[0])]
        figures += [("later epochs", rate_of_all(later))] if len(epochs) > 1 else []
        words = ", ".join("%s %.1f" % figure for figure in figures)
        self.say("images/sec on %d ranks: %s" % (self._size, words))
        self.add(
            epoch_images=args.batch_size * steps * self._size,
            epoch_steps=steps,
            synthetic_img_sec_total=mean_of(synthetic),
            first_epoch_img_sec_total=epochs[0],
        )
        self._result(later, epochs, seen, times, rate_of_all(later))

    def _warm_up(self, step: Callable[[], object]) -> Tuple[float, float]:
        """Return the seconds until now, and those of the first step."""
        ready = time.monotonic() - START
        self.say("Running warmup...")
        began = time.monotonic()
        step()
        first = time.monotonic() - began
        self.say("First step: %.1f s, after %.1f s of start-up" % (first, ready))
        for _ in range(self._args.num_warmup - 1):
            step()
        self.say("Running benchmark...")
        return ready, first

    def _rates(
        self,
        name: str,
        count: int,
        steps: int,
        step: Callable[[], object],
        watch: Optional[Callable[[], Dict[str, float]]],
        *,
        first: int = 0,
    ) -> Tuple[List[float], List[Dict[str, float]]]:
        """Return this rank's images a second in each of `count` measurements, and what `watch` returns after each.

        `name` has a place for the number, which counts from `first`.
        """
        rates: List[float] = []
        seen: List[Dict[str, float]] = []
        if watch:
            watch()
        for number in range(first, first + count):
            began = time.monotonic()
            for _ in range(steps):
                step()
            rates.append(self._args.batch_size * steps / (time.monotonic() - began))
            words = "%s: %.1f img/sec per rank" % (name % number, rates[-1])
            if watch:
                seen.append(watch())
                words += "".join(", %s %.4g" % pair for pair in seen[-1].items())
            self.say(words)
        return rates, seen

    def _result(
        self,
        counted: Sequence[float],
        totals: Sequence[float],
        seen: Sequence[Dict[str, float]],
        times: Tuple[float, float],
        rate: float,
    ) -> None:
        """Print the result: `rate`, and the spread of `counted`, the measurements of all ranks, of all `totals`."""
        deviation = statistics(counted)[1]
        self.say("Img/sec per rank: %.1f +-%.1f" % (rate / self._size, 1.96 * deviation / self._size))
        self.say("total images/sec on %d ranks: %.1f +-%.1f" % (self._size, rate, 1.96 * deviation))
        if self._args.json and self._rank == 0:
            result = dict(
                self._facts,
                options={},
                notes=self._notes,
                img_sec_per_rank=rate / self._size,
                img_sec_per_rank_ci=1.96 * deviation / self._size,
                img_sec_total=rate,
                img_sec_total_ci=1.96 * deviation,
                iters=totals,
                startup_s=times[0],
                first_step_s=times[1],
            )
            if seen:
                result.update({name: [values[name] for values in seen] for name in seen[0]})
            result.update(self._more)
            print(json.dumps(result), flush=True)


def statistics(values: Sequence[float]) -> Tuple[float, float]:
    """Return (mean, standard deviation)."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def mean_of(rates: Sequence[float]) -> float:
    return statistics(rates)[0]


def rate_of_all(rates: Sequence[float]) -> float:
    """Return the images of all measurements divided by their time, if all have the same number of images."""
    return len(rates) / sum(1 / rate for rate in rates) if len(rates) > 1 else rates[0]
