"""What a host prints to kit top and kit blame. `read` may raise only KitError."""

from __future__ import annotations

from kit.model.answer import answer_of
from kit.model.watch import Reading, SuspectReading
from kit.plan.blame.intervals import watched
from kit.plan.blame.judge import judge
from kit.remote.watch.answers import reading_of

SAMPLES: tuple[bytes, ...] = (
    b'{"at":1.5,"seconds":1.0,"cores":2,"cpu":62.1,"steal":0.0,"iowait":0.0,"per_core":[26,100],"runq":1,'
    b'"cpu_s":{"user":1.0},"mem":{"total":9,"used":3},"psi":{"cpu":{"some":19.36,"full":0.0}},"gpus":null,'
    b'"gpu_fault":"no driver","nics":{"eth0":{"rx":0.0,"tx":0.0,"speed":null,"rx_bytes":5}},'
    b'"others":[{"pid":9,"comm":"python","cpu":92.9,"core":1}]}',
    b'{"at":1,"gpus":[{"index":0,"uuid":"GPU-1","name":"H200","use":97.0,"throttle":["sw_power_cap"]}],'
    b'"ranks":[{"run":"r","rank":0,"pid":7,"state":"S","wchan":"0","allowed":"0-1","disk_s":null,"throttled":3}]}',
    b'{"at":1,"seconds":1.0,"suspects":{"ranks":[{"rank":0,"looked":1.0,"cpu":0.5,"delay":0.1,"asleep":0.4,"readiness":'
    b'{"tensors":8,"wait_us":500,"op_us":70,"bytes":4096,"tail_us":300,"steps":2,"opened_us":1}}],'
    b'"peers":[{"address":"10.0.0.2","sent":5000,"busy":0.5}]},"ranks":[{"run":"r","rank":0,"pid":7,"allowed":"0-3"}]}',
)


def read(answer: bytes) -> None:
    """Read one line of a host."""
    with answer_of("gpu1", "what kit reads there"):
        reading = reading_of(answer)
    if not isinstance(reading, Reading):
        raise AssertionError(f"this is no reading: {reading!r}")
    # kit blame reads the same lines, and judges two of them.
    with answer_of("gpu1", "what kit reads there"):
        suspect = reading_of(answer, SuspectReading)
    if isinstance(suspect, SuspectReading):
        judge(watched("r", (), {"gpu1": (suspect, suspect), "gpu2": (suspect, suspect)}, {}))
