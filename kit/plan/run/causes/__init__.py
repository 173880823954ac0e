"""Lists the known causes of a failed run. The first rule of a tuple that matches wins."""

from kit.plan.run.causes.ending import AFTERMATH, ENDINGS, NOTICED, SURVIVED, WARNINGS
from kit.plan.run.causes.gpu import GPU
from kit.plan.run.causes.image import IMAGE
from kit.plan.run.causes.machine import HOST, READ_ONLY
from kit.plan.run.causes.network import HUNG_UP, NETWORK, SSH
from kit.plan.run.causes.program import PROGRAM
from kit.plan.run.causes.rule import Rule

__all__ = [
    "AFTERMATH",
    "ENDINGS",
    "HUNG_UP",
    "NOTICED",
    "OF_RANKS",
    "READ_ONLY",
    "RULES",
    "SURE",
    "SURVIVED",
    "TELLING",
    "WARNINGS",
    "Rule",
]

# The kernel and the engine are more reliable than anything that a program prints.
SURE = (
    Rule(
        name="oom",
        text="the host ran out of memory, or the node reached its limit (memory: in kit.yaml), and the kernel killed "
        "the rank",
        hint="start fewer ranks per host (--npernode), or use a smaller batch or fewer data workers; if memory: in "
        "kit.yaml is the limit, raise it and deploy again; see the free memory: kit ssh {host} -- free -m",
        oom=True,
    ),
)

TELLING = (*IMAGE, *GPU, *HOST, *NETWORK, *PROGRAM)
# Those that are searched in the output of a rank.
OF_RANKS = tuple(rule for rule in TELLING if rule not in (*SSH, HUNG_UP))

RULES = (*SURE, *TELLING, *WARNINGS, *AFTERMATH, *ENDINGS, READ_ONLY)
