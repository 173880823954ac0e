"""Says why a run has no timeline: it has no Horovod that counts."""

from __future__ import annotations

from kit.errors import NotReadyError
from kit.model.run import RunRecord
from kit.plan.flavour import flavour_of

_PROFILER = (
    "write in the script: with torch.profiler.profile(on_trace_ready="
    "torch.profiler.tensorboard_trace_handler(os.environ['KIT_OUTPUT_DIR'])) as profile: …, with profile.step() after "
    "each step; then: kit pull {run} output"
)


def ended(run: RunRecord) -> NotReadyError:
    """Return the error for a run that no longer runs."""
    what = "has ended" if run.state == "ended" else "was lost with its head"
    return NotReadyError(f"run {run.id} {what}: a timeline needs a run that is running", hint="list the runs: kit runs")


def nobody_counts(run: RunRecord) -> NotReadyError:
    """Return the error for a run of which no rank counts."""
    flavour = flavour_of(run.image)
    if flavour.endswith("pytorch"):
        return NotReadyError(
            f"run {run.id} has PyTorch's own data parallelism (DDP) and no Horovod, so it has no timeline of Horovod",
            hint=_PROFILER.format(run=run.id),
        )
    if run.roles:
        return NotReadyError(
            f"run {run.id} has MXNet's parameter server and no Horovod, so it has no timeline of Horovod",
            hint="start it without --servers, with a script that calls hvd.init()",
        )
    if flavour == "ssh-layer":
        return NotReadyError(
            f"no rank of run {run.id} can write a timeline: the Horovod of your own base lacks kit's patches",
            hint="use image.flavour cpu, cuda-tensorflow or cuda-mxnet; or set HOROVOD_TIMELINE for rank 0 alone",
        )
    return NotReadyError(
        f"no rank of run {run.id} has called hvd.init(), so there is no timeline yet",
        hint=f"try again when it trains (kit logs {run.id}); a script without Horovod has no timeline",
    )
