"""Which options of `kit run` make sense only with --retries."""

from __future__ import annotations

from kit.errors import InputError
from kit.model.launch import RunRequest

# By field of the policy. An elastic run has its own --min-np.
_FLAGS = {"retry_on": "--retry-on", "min_np": "--min-np"}


def check(request: RunRequest) -> None:
    """Raise InputError for an option of the command line that says when or how to retry, in a run without retries.

    An explicit --retries 0 turns retries off, so that you need not remove the other options.
    """
    policy = request.policy
    if request.launcher == "elastic" or policy.retries or "retries" in request.given:
        return
    for name, flag in _FLAGS.items():
        if name in request.given:
            option = f"{flag} {getattr(policy, name)}"
            raise InputError(f"{option} has no effect without --retries", hint=f"add --retries: --retries 3 {option}")
