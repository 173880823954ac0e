"""The known causes of a failed run, as data. The first of a tuple that fits is told: the more specific goes first."""

from kit.plan.run.causes.ending import AFTERMATH, ENDINGS, WARNINGS
from kit.plan.run.causes.image import IMAGE
from kit.plan.run.causes.machine import GPU, HOST
from kit.plan.run.causes.network import NETWORK
from kit.plan.run.causes.program import PROGRAM
from kit.plan.run.causes.rule import Rule

__all__ = ["AFTERMATH", "ENDINGS", "RULES", "SURE", "TELLING", "WARNINGS", "Rule"]

# What the kernel or the engine knows goes before anything that a program printed.
SURE = (
    Rule(
        name="oom",
        text="the host's memory was full, and the kernel killed the rank",
        hint="fewer ranks on a host (--npernode), a smaller batch or fewer data workers; "
        "what is free now: kit ssh {host} -- free -m",
        oom=True,
    ),
)

TELLING = (*IMAGE, *GPU, *HOST, *NETWORK, *PROGRAM)

RULES = (*SURE, *TELLING, *WARNINGS, *AFTERMATH, *ENDINGS)
