"""What every Transport does. One suite for the fake and for the real one, so that the fake cannot drift.

A module runs it by a class that derives from TransportContract and has two fixtures: `connect`, a function that gives a
new transport to one host each time, and `scratch`, a folder on that host which is the test's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from kit.errors import StepError
from kit.remote.cluster.observe import observe
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

Factory = Callable[[], Transport]

ODD = [
    "", " ", "a b", "it's", 'say "hi"', "$HOME", "$(id)", "`id`", "a\nb\n", "\n", "tab\there", "\\", "\\n", "*", "~",
    "-n", "--", "a;b", "a&b|c>d", "#", "!x", "{a,b}", "ü ł 漢字 🜁", "%s", "=", "\x01\x7f",
]  # fmt: skip
# Prints a zero byte after each argument, so that an empty argument and a newline in one are visible.
TELL = 'for one; do printf "%s\\0" "$one"; done'


class TransportContract:
    @pytest.mark.parametrize("code", [0, 1, 3, 126, 255])
    def test_the_exit_code(self, connect: Factory, code: int) -> None:
        assert connect().run(["sh", "-c", f"exit {code}"]).code == code

    def test_a_command_that_is_not_there(self, connect: Factory) -> None:
        done = connect().run(["no-such-command-of-kit"])
        assert done.code == 127
        assert b"no-such-command-of-kit" in done.stderr

    def test_a_death_by_signal_is_no_success(self, connect: Factory) -> None:
        done = connect().run(["sh", "-c", "echo last words; kill -9 $$"])
        assert done.code != 0
        assert done.stdout == b"last words\n"

    def test_output_and_errors_stay_apart_and_are_bytes(self, connect: Factory) -> None:
        done = connect().run(["sh", "-c", r"printf 'a\000\377'; printf 'b\n' >&2"])
        assert (done.stdout, done.stderr) == (b"a\0\xff", b"b\n")
        assert done.text == "a\0\ufffd"
        assert done.error_text == "b"

    def test_commands_run_as_root(self, connect: Factory) -> None:
        assert connect().run(["id", "-u"]).text.strip() == "0"

    def test_standard_input_ends(self, connect: Factory) -> None:
        assert connect().run(["cat"]).stdout == b""

    def test_a_large_input_arrives_whole(self, connect: Factory) -> None:
        content = bytes(range(256)) * 4096
        done = connect().run(["sha256sum"], stdin=content)
        assert done.text.split()[0] == hashlib.sha256(content).hexdigest()
        assert connect().run(["cat"], stdin=content).stdout == content

    def test_input_that_nobody_reads(self, connect: Factory) -> None:
        assert connect().run(["true"], stdin=b"x" * (1 << 20)).code == 0

    def test_a_large_output_arrives_whole(self, connect: Factory) -> None:
        done = connect().run(["sh", "-c", "yes 0123456789 | head -c 5000000; yes e | head -c 300000 >&2"])
        assert len(done.stdout) == 5_000_000
        assert done.stdout == (b"0123456789\n" * 454_546)[:5_000_000]
        assert len(done.stderr) == 300_000

    def test_odd_arguments_arrive_unchanged(self, connect: Factory) -> None:
        done = connect().run(["sh", "-c", TELL, "sh", *ODD])
        assert done.stdout.decode().split("\0")[:-1] == ODD

    def test_many_arguments(self, connect: Factory) -> None:
        words = [f"10.0.{n // 250}.{n % 250}" for n in range(2000)]
        done = connect().run(["sh", "-c", TELL, "sh", *words])
        assert done.stdout.decode().split("\0")[:-1] == words

    def test_a_command_that_does_not_end(self, connect: Factory) -> None:
        transport = connect()
        with pytest.raises(StepError) as caught:
            transport.run(["sleep", "30"], timeout_s=0.5)
        assert caught.value.host == transport.host.name
        assert "did not end" in caught.value.message
        assert caught.value.hint

    def test_it_is_usable_after_a_timeout(self, connect: Factory) -> None:
        transport = connect()
        with pytest.raises(StepError):
            transport.run(["sleep", "30"], timeout_s=0.5)
        assert transport.run(["echo", "again"]).stdout == b"again\n"

    def test_commands_follow_one_another(self, connect: Factory) -> None:
        transport = connect()
        assert [transport.run(["echo", str(n)]).text for n in range(5)] == [f"{n}\n" for n in range(5)]

    def test_it_comes_back_after_close(self, connect: Factory) -> None:
        transport = connect()
        assert transport.run(["echo", "one"]).stdout == b"one\n"
        transport.close()
        transport.close()
        assert transport.run(["echo", "two"]).stdout == b"two\n"

    def test_closing_what_was_never_opened(self, connect: Factory) -> None:
        connect().close()

    def test_a_written_file_is_seen_with_digest_and_mode(self, connect: Factory, scratch: str) -> None:
        transport, folder = connect(), f"{scratch}/kit/lab"
        files = {
            "compose.yaml": (b"\0\xff" * 5000, "600"),
            "ssh/authorized_keys": (b"a key\n", "644"),
            "e": (b"", "600"),
        }
        for path, (content, mode) in files.items():
            done = transport.run(script("write_file", folder, path, mode, str(len(content))), stdin=content)
            assert (done.code, done.stderr) == (0, b"")
        facts = observe(transport, folder=folder, image="no/such:image")
        assert facts.files == {path: hashlib.sha256(content).hexdigest() for path, (content, _) in files.items()}
        assert facts.modes == {path: mode for path, (_, mode) in files.items()}
        assert transport.run(["rm", "-f", "--", f"{folder}/e"]).code == 0
        assert set(observe(transport, folder=folder, image="x").files) == {"compose.yaml", "ssh/authorized_keys"}

    def test_a_part_of_a_file_is_no_file(self, connect: Factory, scratch: str) -> None:
        transport, folder = connect(), f"{scratch}/kit/lab"
        done = transport.run(script("write_file", folder, "f", "600", "9"), stdin=b"12345678")
        assert done.code == 1
        assert "only a part of f arrived" in done.error_text
        assert observe(transport, folder=folder, image="x").files == {}

    def test_keys_and_record_are_seen(self, connect: Factory, scratch: str) -> None:
        transport, folder = connect(), f"{scratch}/kit/lab"
        for path, text in {
            "ssh/host_ed25519": "private\n-----END KEY-----\n", "ssh/host_ed25519.pub": "ssh-ed25519 AAAA host\n",
            "ssh/id_ed25519.pub": "ssh-ed25519 BBBB its private half is not here\n", "cluster.json": '{"kit": 1}\n',
        }.items():  # fmt: skip
            argv = script("write_file", folder, path, "600", str(len(text)))
            assert transport.run(argv, stdin=text.encode()).code == 0
        facts = observe(transport, folder=folder, image="x")
        assert (facts.host_key, facts.client_key) == ("ssh-ed25519 AAAA host", None)
        assert facts.record == '{"kit": 1}'

    def test_runs_that_are_not_there(self, connect: Factory) -> None:
        assert connect().run(script("ranks", "no-such-cluster")).stdout == b""
        assert connect().run(script("stop_run", "no-such-run")).text.split() == ["0"]
