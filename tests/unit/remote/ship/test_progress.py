from kit.events import HostStep
from kit.model.host import Login
from kit.remote.ship.faults import IMAGE
from kit.remote.ship.lanes import Lane, Target
from kit.remote.ship.progress import Progress
from tests.fakes.reporter import Remembering


def test_a_host_never_has_more_than_all() -> None:
    """The engine's size of a layer lacks the tar around its files."""
    reporter = Remembering()
    progress = Progress(reporter, IMAGE)
    progress.begin([1_300_000_000])
    login = Login(host="gpu1", address="192.0.2.1", user=None, port=None, key=None, known_hosts=None)
    lane = Lane(Target(login=login, address=login.address))
    lane.need = {"layer": 0}
    for at in (650_000_000, 1_310_000_000):
        progress.arrived(lane, at)
    assert [(step.text, step.fraction) for step in reporter.of(HostStep)] == [
        ("image 0.65 of 1.30 GB", 0.5),
        ("image 1.30 of 1.30 GB", 1.0),
    ]
