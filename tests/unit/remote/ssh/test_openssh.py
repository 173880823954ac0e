"""The words of ssh, as ssh itself understands them; and the keys that kit makes, as ssh-keygen reads them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.model.host import Login
from kit.model.values import replace
from kit.remote.cluster.keys import make_key
from kit.remote.ssh.openssh import by_hand, openssh_argv, terminal_argv
from kit.remote.ssh.stream import errors_of

GPU4 = Login(host="g", address="gpu4", user=None, port=None, key=None, known_hosts=None)


def options_of(argv: Sequence[str], *more: str) -> dict[str, str]:
    """What ssh itself understands."""
    output = subprocess.run([argv[0], "-G", *more, *argv[1:]], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in output.splitlines() if " " in line)


def test_what_the_login_says(tmp_path: Path) -> None:
    key = tmp_path / "id"
    key.touch()
    login = Login(host="g", address="10.0.0.4", user="ubuntu", port=2222, key=str(key), known_hosts="/k/kh")
    options = options_of(openssh_argv(login))
    assert (options["hostname"], options["user"], options["port"]) == ("10.0.0.4", "ubuntu", "2222")
    assert (options["identityfile"], options["identitiesonly"]) == (str(key), "yes")
    assert (options["userknownhostsfile"], options["globalknownhostsfile"]) == ("/k/kh", "/dev/null")


@pytest.mark.parametrize("user", ["ann@corp.example", "CORP\\ann"])
def test_a_login_of_a_domain(user: str) -> None:
    login = Login(host="g", address="10.0.0.4", user=user, port=None, key=None, known_hosts=None)
    options = options_of(openssh_argv(login))
    assert (options["hostname"], options["user"]) == ("10.0.0.4", user)
    typed = options_of(shlex.split(by_hand(login)))
    assert (typed["hostname"], typed["user"]) == ("10.0.0.4", user)


def test_it_never_asks_never_trusts_and_never_stays() -> None:
    options = options_of(openssh_argv(GPU4))
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert options["batchmode"] == "yes"
    assert options["controlmaster"] in ("no", "false")


def test_a_person_at_a_terminal_may_enter_a_passphrase() -> None:
    assert options_of(terminal_argv(GPU4, tty=True))["batchmode"] == "no"
    assert options_of(terminal_argv(GPU4, tty=False))["batchmode"] == "yes"


# Whatever a person wrote for their own sessions.
EXTRAS = """
Host gpu4
  HostName 10.0.0.4
  ProxyJump bastion
  ForwardAgent yes
  ForwardX11 yes
  LocalForward 8080 localhost:80
  RemoteForward 9090 localhost:90
  DynamicForward 1080
  PermitLocalCommand yes
  LocalCommand touch /tmp/x
  RemoteCommand tmux
  Tunnel yes
  ControlMaster auto
  ControlPersist yes
  ControlPath /tmp/mine-%C
"""


def test_the_users_own_extras_do_not_apply_in_the_background(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(EXTRAS)
    options = options_of(openssh_argv(GPU4), "-F", str(config))
    assert (options["hostname"], options["proxyjump"]) == ("10.0.0.4", "bastion")
    for name in ("forwardagent", "forwardx11", "tunnel", "permitlocalcommand", "controlmaster"):
        assert options[name] in ("no", "false"), name
    assert options["clearallforwardings"] == "yes"
    assert not options.keys() & {"controlpath", "localforward", "remoteforward", "dynamicforward", "remotecommand"}


def test_a_persons_own_session_keeps_them(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(EXTRAS)
    options = options_of(terminal_argv(GPU4, tty=True), "-F", str(config))
    assert options["forwardagent"] == "yes"
    # But for a master of the user's: kit would wait for its end.
    assert options["controlmaster"] in ("no", "false")
    assert "controlpath" not in options


def test_a_kept_connection_is_made_joined_or_left_alone() -> None:
    login = replace(GPU4, socket="/tmp/a b%/s")
    made = options_of(openssh_argv(login, sharing="make"))
    assert (made["controlmaster"], made["controlpersist"], made["controlpath"]) == ("auto", "60", "/tmp/a b%/s")
    joined = options_of(openssh_argv(login))
    assert (joined["controlmaster"], joined["controlpath"]) == ("false", "/tmp/a b%/s")
    assert "controlpath" not in options_of(openssh_argv(login, sharing="no"))


def test_a_known_hosts_file_with_a_blank_in_its_path(tmp_path: Path) -> None:
    path = str(tmp_path / "my 100% hosts")
    assert options_of(openssh_argv(replace(GPU4, known_hosts=path)))["userknownhostsfile"] == path


def test_an_address_is_never_an_option() -> None:
    login = Login(host="g", address="-oProxyCommand=true", user=None, port=None, key=None, known_hosts=None)
    assert openssh_argv(login)[-2:] == ("--", "-oProxyCommand=true")


def test_keys_are_openssh_keys(tmp_path: Path) -> None:
    pair = make_key("kit-lab-gpu1")
    assert pair.private is not None
    file = tmp_path / "key"
    file.write_bytes(pair.private.reveal())
    file.chmod(0o600)
    public_key = subprocess.run(["ssh-keygen", "-y", "-f", file], capture_output=True, text=True, check=True).stdout
    assert public_key.split()[:2] == pair.public.split()[:2]
    assert pair.public.startswith("ssh-ed25519 ")
    assert pair.public.endswith(" kit-lab-gpu1")
    assert make_key("x").public != make_key("x").public


def test_errors_are_read_until_the_process_ends_though_another_holds_the_pipe() -> None:
    # As a master that an old ssh leaves behind.
    left = "sleep 30 & echo refused >&2; echo $!"
    with subprocess.Popen(["sh", "-c", left], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        holder = int(process.stdout.readline())
        try:
            assert errors_of(process) == "refused"
        finally:
            os.kill(holder, signal.SIGKILL)
