"""Does the steps of a plan, in their order, and makes no decision of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from kit.errors import KitError, StepError
from kit.events import HostDone, HostFailed, HostStep, Phase, Reporter
from kit.model import names
from kit.model.host import Host, Login
from kit.model.plan import (
    ComposeUp,
    DeleteFile,
    HostPlan,
    Plan,
    Pull,
    RemoveCluster,
    Ship,
    Step,
    VerifyPeers,
    WaitSshd,
    WriteFile,
)
from kit.model.secret import Secret
from kit.remote.cluster.observe import listener_word
from kit.remote.engine.hiccups import no_container, persistently, run_in_node
from kit.remote.scripts import script
from kit.remote.ship.broadcast import Target, ship
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Completed, Connect, Transport
from kit.remote.swarm.steps import SwarmHands

# An earlier Compose that is still at work may be waited for, up to 120 s.
COMPOSE_TIMEOUT_S = 300.0
PEER_TIMEOUT_S = 60.0


class Executor:
    """Carries a plan out on its hosts. `folder` is the cluster's folder on every VM.

    `pull` lets a host's engine pull, where the plan has that. `check` is called before each step, and raises a
    KitError when no more may be begun.
    """

    def __init__(
        self,
        *,
        hosts: Mapping[str, Host],
        logins: Mapping[str, Login],
        folder: str,
        container: Mapping[str, str],
        connect: Connect,
        reporter: Reporter,
        pull: Callable[[Host, Pull], None] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._hosts = hosts
        self._logins = logins
        self._folder = folder
        self._container = container
        self._connect = connect
        self._reporter = reporter
        self._pull_image = pull
        self._check = check
        head = next(iter(hosts.values()))
        self._swarm = SwarmHands(head=head, connect=connect, say=self._say, check=check)

    def execute(self, plan: Plan) -> dict[str, KitError]:
        """All steps. A host stops at its first failure and the others go on. Returns the failures by host.

        What waits for all hosts is not begun when one has failed.
        """
        failures = self._round("take off", plan.before)
        if failures:
            return failures
        failures = self._ship(plan) | self._pull(plan)
        failures |= self._round("set up", [p for p in plan.hosts if p.host not in failures])
        for each in plan.rounds:
            if not failures:
                failures = self._round(each.name, each.hosts)
        return failures or self._round("verify", plan.after)

    def _round(self, name: str, plans: Sequence[HostPlan]) -> dict[str, KitError]:
        busy = [plan for plan in plans if plan.steps]
        if not busy:
            return {}
        self._reporter.report(Phase(name=name, hosts=tuple(plan.host for plan in busy)))
        return self._side_by_side(busy)

    def _ship(self, plan: Plan) -> dict[str, KitError]:
        wanted = [(p.host, step) for p in plan.hosts for step in p.steps if isinstance(step, Ship)]
        if not wanted:
            return {}
        self._reporter.report(Phase(name="ship", hosts=tuple(host for host, _ in wanted)))
        step = wanted[0][1]
        self._check()
        targets = [Target(login=self._logins[host], address=each.address) for host, each in wanted]
        source = Target(login=self._logins[step.source[0]], address=step.source[1]) if step.source else None
        shipped = ship(step.image, owner=plan.cluster, targets=targets, reporter=self._reporter, source=source)
        for host, _ in wanted:
            error = shipped.failures.get(host)
            if error is None:
                self._reporter.report(HostDone(host=host, text="has the image"))
            else:
                self._reporter.report(HostFailed(host=host, text=error.message, hint=error.hint))
        return dict(shipped.failures)

    def _pull(self, plan: Plan) -> dict[str, KitError]:
        wanted = {p.host: step for p in plan.hosts for step in p.steps if isinstance(step, Pull)}
        pull = self._pull_image
        if not wanted or pull is None:
            return {}
        self._reporter.report(Phase(name="pull", hosts=tuple(wanted)))

        def work(host: Host) -> None:
            try:
                self._check()
                pull(host, wanted[host.name])
            except KitError as error:
                self._reporter.report(HostFailed(host=host.name, text=error.message, hint=error.hint))
                raise
            self._reporter.report(HostDone(host=host.name, text="has the image"))

        return dict(fanout.each([self._hosts[name] for name in wanted], work).failures)

    def _side_by_side(self, plans: Sequence[HostPlan]) -> dict[str, KitError]:
        steps = {plan.host: plan.steps for plan in plans}

        def work(host: Host) -> None:
            with closing(self._connect(host)) as transport:
                try:
                    for step in steps[host.name]:
                        self._check()
                        self._step(transport, step)
                except KitError as error:
                    self._reporter.report(HostFailed(host=host.name, text=error.message, hint=error.hint))
                    raise
            self._reporter.report(HostDone(host=host.name))

        return dict(fanout.each([self._hosts[name] for name in steps], work).failures)

    def _step(self, transport: Transport, step: Step) -> None:
        name = transport.host.name
        match step:
            case Ship() | Pull():
                return  # Done for all hosts at once, above.
            case WriteFile():
                self._say(name, f"writing {step.path}")
                content = step.content.reveal() if isinstance(step.content, Secret) else step.content
                argv = [*script("write_file", self._folder, step.path, step.mode, str(len(content)))]
                done = transport.run(argv, stdin=content)
                _ok(done, name, f"{self._folder}/{step.path} could not be written", "is its disk full? df -h")
            case DeleteFile():
                done = transport.run(["rm", "-f", "--", f"{self._folder}/{step.path}"])
                _ok(done, name, f"{self._folder}/{step.path} could not be removed", None)
            case ComposeUp():
                self._say(name, "docker compose up")
                force = ["--force-recreate"] if step.recreate else []
                argv = [*script("compose_up", step.folder, *force)]
                done = persistently(lambda: transport.run(argv, timeout_s=COMPOSE_TIMEOUT_S), no_container)
                by_hand = f"kit ssh {name} -- docker compose -f {step.folder}/{names.COMPOSE_FILE} up"
                _ok(done, name, "docker compose up failed", f"look at it by hand: {by_hand}")
            case WaitSshd():
                self._say(name, f"waiting for sshd on {step.address}:{step.port}")
                word = listener_word(step.address, step.port)
                limit = f"{step.timeout_s:.0f}"
                argv = [*script("wait_sshd", word, limit, self._container[name])]
                done = transport.run(argv, timeout_s=step.timeout_s + 30)
                _ok(done, name, f"sshd does not answer on {step.address}:{step.port}", f"kit logs {name}")
            case VerifyPeers():
                self._verify(transport, step)
            case RemoveCluster():
                remove(transport, step)
            case _:
                self._swarm.do(transport, step)

    def _verify(self, transport: Transport, step: VerifyPeers) -> None:
        self._say(transport.host.name, f"ssh to {len(step.peers)} nodes")
        addresses = [address for _, address in step.peers]
        argv = script("peers", *addresses)
        done = run_in_node(transport, step.container, argv, timeout_s=PEER_TIMEOUT_S)
        failed = dict(line.split(" ", 1) for line in done.text.splitlines() if " " in line)
        problems = [(name, failed[address]) for name, address in step.peers if address in failed]
        if problems:
            first, why = problems[0]
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise StepError(
                f"the head cannot reach {first}{more} by ssh: {why}",
                hint="is the port open between the VMs (firewall, security group)? ssh_port: in kit.yaml says which",
                host=transport.host.name,
            )
        _ok(done, transport.host.name, "the head could not check its nodes", f"kit logs {transport.host.name}")

    def _say(self, host: str, text: str) -> None:
        self._reporter.report(HostStep(host=host, text=text))


def remove(transport: Transport, step: RemoveCluster) -> tuple[str, ...]:
    """Take a cluster off one host. Returns a line for each thing that was removed."""
    argv = script("remove", step.cluster, step.folder, *step.images)
    done = transport.run(argv, timeout_s=COMPOSE_TIMEOUT_S)
    _ok(done, transport.host.name, "the cluster could not be taken off", "look at it by hand: docker ps -a")
    return tuple(done.text.splitlines())


def _ok(done: Completed, host: str, what: str, hint: str | None) -> None:
    if done.code == 0:
        return
    lines = (done.error_text or done.text.strip()).splitlines()
    said = "\n".join(lines[-15:]) if lines else f"exit {done.code}"
    raise StepError(f"{what}: {said}", hint=hint, host=host)
