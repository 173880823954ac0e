"""What tf_benchmark and mxnet_benchmark share: the flags, the timing and the report."""

import argparse
import json
import math
import os
import sys
import time

START = time.monotonic()


def arguments(prog, description, model):
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--model", default=model, help="default: %(default)s; a wrong name lists what there is")
    parser.add_argument(
        "--batch-size", type=_positive, default=32, help="images a rank and step (default: %(default)s)"
    )
    parser.add_argument("--image-size", type=_positive, help="pixels a side (default: what the model was made for)")
    parser.add_argument("--fp16", action="store_true", help="half precision, with single-precision weights")
    parser.add_argument("--num-warmup", type=_positive, default=10, help="steps before the clock runs (%(default)s)")
    parser.add_argument("--num-iters", type=_positive, default=10, help="measurements (default: %(default)s)")
    parser.add_argument(
        "--num-batches-per-iter", type=_positive, default=10, help="steps in each (default: %(default)s)"
    )
    parser.add_argument("--intra-op", type=_natural, help="threads in an operation; 0 lets the framework choose")
    parser.add_argument("--inter-op", type=_natural, help="operations at a time; 0 lets the framework choose")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout at the end, from rank 0")
    return parser.parse_args()


def _positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def _natural(text):
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("at least 0")
    return value


def threads(intra_op, inter_op):
    """(intra, inter) threads of this rank. Ranks share a node's cores, and more threads than cores slow all of them.

    What a flag or OMP_NUM_THREADS says goes first; 0 lets the framework choose.
    """
    local_size = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"))
    share = len(os.sched_getaffinity(0)) // local_size
    told = os.environ.get("OMP_NUM_THREADS", "")
    if intra_op is None:
        intra_op = int(told) if told.isdigit() else max(1, share)
    if inter_op is None:
        inter_op = 0 if share > 1 else 1
    return intra_op, inter_op


def wrong(prog, message):
    """Ends every rank with exit code 2; the first says why."""
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        print("%s: %s" % (prog, message), file=sys.stderr)
    sys.exit(2)


class Report:
    """Speaks for rank 0, and is silent on the others. With --json the words go to stderr."""

    def __init__(self, args, rank, size):
        self._args, self._rank, self._size = args, rank, size
        self._facts = {}

    def say(self, text):
        if self._rank == 0:
            print(text, file=sys.stderr if self._args.json else sys.stdout, flush=True)

    def header(self, framework, version, model, image_size, device, intra_op, inter_op):
        self._facts = {
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

    def measure(self, step, total):
        """Warms up, measures, and reports. `step()` ends when its batch is done; `total(values)` sums over the ranks."""
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
        rates = []
        for number in range(args.num_iters):
            began = time.monotonic()
            for _ in range(args.num_batches_per_iter):
                step()
            rates.append(args.batch_size * args.num_batches_per_iter / (time.monotonic() - began))
            self.say("Iter #%d: %.1f img/sec per rank" % (number, rates[-1]))
        totals = [float(value) for value in total(rates)]
        mean, deviation = _statistics(totals)
        self.say("Img/sec per rank: %.1f +-%.1f" % (mean / self._size, 1.96 * deviation / self._size))
        self.say("total images/sec on %d ranks: %.1f +-%.1f" % (self._size, mean, 1.96 * deviation))
        if args.json and self._rank == 0:
            result = dict(
                self._facts,
                img_sec_per_rank=mean / self._size,
                img_sec_per_rank_ci=1.96 * deviation / self._size,
                img_sec_total=mean,
                img_sec_total_ci=1.96 * deviation,
                iters=totals,
                startup_s=ready,
                first_step_s=first,
            )
            print(json.dumps(result), flush=True)


def _statistics(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
