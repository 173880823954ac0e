"""The words of ssh, as ssh itself understands them; and the keys that kit makes, as ssh-keygen reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kit.model.host import Login
from kit.remote.cluster.keys import make_key
from kit.remote.ssh.openssh import openssh_argv


def told(login: Login, *, tty: bool = False) -> dict[str, str]:
    argv = openssh_argv(login, tty=tty)
    said = subprocess.run([argv[0], "-G", *argv[1:]], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def test_what_the_login_says(tmp_path: Path) -> None:
    key = tmp_path / "id"
    key.touch()
    login = Login(host="g", address="10.0.0.4", user="ubuntu", port=2222, key=str(key), known_hosts="/k/kh")
    options = told(login)
    assert (options["hostname"], options["user"], options["port"]) == ("10.0.0.4", "ubuntu", "2222")
    assert (options["identityfile"], options["identitiesonly"]) == (str(key), "yes")
    assert (options["userknownhostsfile"], options["globalknownhostsfile"]) == ("/k/kh", "/dev/null")


def test_it_never_asks_never_trusts_and_never_stays() -> None:
    options = told(Login(host="g", address="gpu4", user=None, port=None, key=None, known_hosts=None))
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert options["batchmode"] == "yes"
    assert options["controlmaster"] in ("no", "false")


def test_a_person_at_a_terminal_may_be_asked_for_a_passphrase() -> None:
    login = Login(host="g", address="gpu4", user=None, port=None, key=None, known_hosts=None)
    assert told(login, tty=True)["batchmode"] == "no"


def test_an_address_is_never_an_option() -> None:
    login = Login(host="g", address="-oProxyCommand=true", user=None, port=None, key=None, known_hosts=None)
    assert openssh_argv(login)[-2:] == ("--", "-oProxyCommand=true")


def test_keys_are_openssh_keys(tmp_path: Path) -> None:
    pair = make_key("kit-lab-gpu1")
    assert pair.private is not None
    file = tmp_path / "key"
    file.write_bytes(pair.private.reveal())
    file.chmod(0o600)
    said = subprocess.run(["ssh-keygen", "-y", "-f", file], capture_output=True, text=True, check=True).stdout
    assert said.split()[:2] == pair.public.split()[:2]
    assert pair.public.startswith("ssh-ed25519 ")
    assert pair.public.endswith(" kit-lab-gpu1")
    assert make_key("x").public != make_key("x").public
