"""The rules of kit tune for Horovod: fusion, cycle, and half precision on the wire, from measured all-reduces."""

from __future__ import annotations

from collections.abc import Mapping

from kit.model.tune import Setting, Timing, Tuning
from kit.model.values import replace
from kit.plan.tune.candidates import MIB, better

# A fusion buffer is large enough if the wire reaches this share of the best rate of any size.
NEAR_BEST = 0.95
# A setting from an earlier tune stays if it reaches this share of the best rate.
STILL_NEAR = 0.85
# Horovod 0.28's defaults.
CYCLE_DEFAULT_MS, FUSION_DEFAULT = 1.0, 128 * MIB
# Share of Horovod's cycle that its ranks may spend on agreeing which tensors are ready.
TALK = 0.05
# The benchmarks of the image read the compression of gradients from it; your own script can with two lines.
COMPRESSION, HALF, WHOLE = "env.KIT_COMPRESSION", "fp16", "none"
FUSION, CYCLE = "env.HOROVOD_FUSION_THRESHOLD", "env.HOROVOD_CYCLE_TIME"
_BY_NCCL = (
    "GPUs: Horovod's gradients travel by NCCL, and kit tune measures MPI, so it chooses neither fusion nor half "
    "precision. Compare them with your training, as with the options --fusion-mb and --compression of tf_benchmark"
)
# For an image of PyTorch. torch_benchmark has the option, too.
WITHOUT = (
    "the image has no Horovod, and PyTorch exchanges gradients by Gloo or NCCL, not by MPI. So kit tune measured no "
    "all-reduce, and chose neither mpi.args nor Horovod's settings nor half precision. Compare half precision with "
    "your training, as with the option --compression of torch_benchmark"
)


def horovod(
    curve: Mapping[int, Timing],
    small_s: float | None,
    *,
    fusion_now: str | None = None,
    cycle_now: str | None = None,
    nccl: bool = False,
) -> Tuning:
    """Choose fusion and cycle by a rule from all-reduces measured through MPI: bytes → timing, and one of 8 bytes.

    A value from an earlier tune (`…_now`) stays if it is still good enough, so that noise does not change kit.yaml.
    With `nccl`, gradients do not travel by MPI. The ranks agree by MPI on what is ready, so the cycle remains.
    """
    settings: list[Setting] = []
    defaults: list[Setting] = []
    fusion = Setting(path=FUSION, value=str(FUSION_DEFAULT), reason="", acts="deploy")
    large = {size: timing for size, timing in curve.items() if size >= MIB}
    if nccl:
        defaults.append(replace(fusion, reason="Horovod's default: gradients travel by NCCL, and kit measures MPI"))
    elif len(large) > 1:
        top = max(timing.busbw for timing in large.values())
        # A buffer that is too small costs more than one that is too large, so noise must not make it smaller.
        sure = {size: timing.busbw * timing.median / (timing.median + timing.noise) for size, timing in large.items()}
        enough = min((size for size, rate in sure.items() if rate >= NEAR_BEST * top), default=max(large))
        kept = _number(fusion_now)
        if kept in large and large[int(kept)].busbw >= STILL_NEAR * top:
            enough = int(kept)
        # If the rate still rises at the largest size, Horovod's larger default is better.
        if enough < max(large):
            reason = (
                f"messages of {enough // MIB} MB reach {large[enough].busbw / top:.0%} of the best rate; larger ones "
                "wait longer for tensors to fill them, and the last one travels when nothing is left to compute"
            )
            settings.append(replace(fusion, value=str(enough), reason=reason))
        elif kept is None or kept <= max(large):
            reason = (
                f"Horovod's default: the rate still rises at messages of {max(large) // MIB} MB, or the noise hides "
                "whether it does"
            )
            defaults.append(replace(fusion, reason=reason))
    if small_s is not None:
        needed = small_s * 1e3 / TALK
        cycle = next((step for step in (1.0, 2.0, 5.0, 10.0) if step >= needed), 10.0)
        kept = _number(cycle_now)
        if kept is not None and 0.5 * needed <= kept <= max(4 * needed, CYCLE_DEFAULT_MS * 2):
            cycle = kept
        took = f"an all-reduce of 8 bytes takes {small_s * 1e3:.2f} ms"
        if cycle > CYCLE_DEFAULT_MS:
            share = min(1.0, small_s * 1e3 / CYCLE_DEFAULT_MS)
            reason = (
                f"ranks agree each cycle on what is ready, and {took}: {share:.0%} of the default cycle of "
                f"{CYCLE_DEFAULT_MS:g} ms"
            )
            settings.append(Setting(path=CYCLE, value=f"{cycle:g}", reason=reason, acts="deploy"))
        else:
            reason = f"Horovod's default: {took}"
            defaults.append(Setting(path=CYCLE, value=f"{CYCLE_DEFAULT_MS:g}", reason=reason, acts="deploy"))
    return Tuning(settings=tuple(settings), defaults=tuple(defaults), advice=(_BY_NCCL,) if nccl else ())


def half(whole: Timing, halved: Timing) -> Tuning:
    """Choose fp16 on the wire if an all-reduce of half the bytes is faster beyond the noise. For --fp16 only."""
    took = (
        f"an all-reduce of {whole.bytes / MIB:g} MB on {whole.ranks} ranks takes {whole.median:.3f} s "
        f"+-{whole.noise:.3f}, and of half the bytes {halved.median:.3f} s +-{halved.noise:.3f}"
    )
    if not better(whole, halved):
        nothing = f"half precision on the wire gains nothing beyond the noise: {took}"
        back = Setting(path=COMPRESSION, value=WHOLE, reason=nothing, acts="deploy")
        return Tuning(defaults=(back,), advice=(nothing,))
    reason = (
        f"{took}, and --fp16 allowed it. It changes the numbers: compare the accuracy. These times do not contain the "
        "cost of sums in half precision. tf_benchmark, torch_benchmark and paced_benchmark read this variable; your "
        "own script needs the two lines of docs/tensorflow.md"
    )
    return Tuning(settings=(Setting(path=COMPRESSION, value=HALF, reason=reason, acts="deploy"),))


def half_advice(busbw: float | None, ranks: int, now: str | None) -> str | None:
    """Return what half precision would save on ResNet-50 (25.6 M parameters), or None if it is in use.

    `busbw` is the bus bandwidth of the chosen all-reduce in bytes/s; `now` is KIT_COMPRESSION in kit.yaml.
    """
    if not busbw or now == HALF:
        return None
    whole = 2 * (ranks - 1) / ranks * 25.6e6 * 4 / busbw
    return (
        f"ResNet-50's gradients (102 MB) take {whole:.2f} s on this wire, and {whole / 2:.2f} s in half precision "
        "(compression fp16). It changes the numbers: compare the accuracy before you keep it. kit tune --fp16 measures "
        "it, and writes it if it gains"
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
