"""More openings of borders between hosts, and from VMs, engines and images to your machine, than machines.py has."""

from __future__ import annotations

from tests.security.openings import Opening

_COPY = "From a host to another one, through the copy"
_DATA = "From a host that passes data on"
_FEED = "From a VM to your machine, through a folder"
_ANSWER = "From an answer of any other machine"
_DOCTOR = "From a VM to `kit doctor`"
_TOP = "From a VM to `kit top`"
_SETUP = "From a VM to `kit setup`"
_SBOM = "From an image to the engine"

_PORTER_TESTS = ("security/test_porter.py", "-k")
_COPIES = (
    Opening(
        border=_COPY,
        what="a text that begins with a digest is one",
        file="kit/remote/ship/porter/names.py",
        old="if not isinstance(word, str) or DIGEST.fullmatch(word) is None:",
        new="if not isinstance(word, str) or DIGEST.match(word) is None:",
        tests=(*_PORTER_TESTS, "order_with_another_name"),
    ),
    Opening(
        border=_COPY,
        what="kit passes on layers of a source that are no digests",
        file="kit/remote/ship/reports.py",
        old="if len(image.layers) > MOST_LAYERS or not all(is_digest(layer) for layer in image.layers):",
        new="if len(image.layers) > MOST_LAYERS:",
        tests=(*_PORTER_TESTS, "source_reports"),
    ),
    Opening(
        border=_COPY,
        what="a porter writes all bytes that come",
        file="kit/remote/ship/porter/layers.py",
        old="if self.at + len(data) > self.size:",
        new="if self.at > self.size:",
        tests=(*_PORTER_TESTS, "one_byte_more"),
    ),
    Opening(
        border=_COPY,
        what="a layer may have other bytes than its digest",
        file="kit/remote/ship/porter/layers.py",
        old="if self.at != self.size or self._hash.hexdigest() != self.layer:",
        new="if self.at != self.size:",
        tests=(*_PORTER_TESTS, "other_bytes"),
    ),
)
_STAGER = ("unit/images/test_stager_parts.py", "-k", "header_of_a_piece")
_PASSED = (
    Opening(
        border=_DATA,
        what="a piece of another host has any size",
        file="images/lib/kitdata/wire.py",
        old='integer(value.get("size"), EXTENT)',
        new='integer(value.get("size"))',
        tests=_STAGER,
    ),
    Opening(
        border=_DATA,
        what="a piece of another host has any number of checksums",
        file="images/lib/kitdata/wire.py",
        old='integer(value.get("sums"), MOST_PARTS)',
        new='integer(value.get("sums"))',
        tests=_STAGER,
    ),
    Opening(
        border=_DATA,
        what="another host sends a piece in a circle",
        file="images/lib/kitdata/wire.py",
        old="if len(set(self.route)) != len(self.route):",
        new="if len(self.route) >= hosts:",
        tests=_STAGER,
    ),
)
_FEED_TESTS = ("unit/remote/data/test_feed.py", "-k")
_FED = (
    Opening(
        border=_FEED,
        what="a list goes through links out of the folder",
        file="kit/remote/data/feed.py",
        old="return Path(self._inside(path)).is_dir()",
        new='return Path(f"{self._real}/{path}").is_dir()',
        tests=(*_FEED_TESTS, "links_inside"),
    ),
    Opening(
        border=_FEED,
        what="whole files have any number of bytes together",
        file="kit/remote/data/feed.py",
        old=" or sum(size for _, size, _ in ask.files) > MOST_READ:",
        new=":",
        tests=(*_FEED_TESTS, "too_many_bytes"),
    ),
    Opening(
        border=_FEED,
        what="a frame of the lead has any length",
        file="kit/remote/data/feed.py",
        old="if length > _MOST_HEADER:",
        new="if not length:",
        tests=(*_FEED_TESTS, "odd_frame"),
    ),
)
_ANSWER_TESTS = ("unit/model/test_answer.py", "-k")
_ENGINE_TESTS = ("security/test_engine_answers.py", "-k")
_ANSWERED = (
    Opening(
        border=_ANSWER,
        what="a number of an answer has no limits",
        file="kit/model/answer.py",
        old='if not least <= value <= most:\n        raise OddAnswer(f"the number',
        new='if value is None:\n        raise OddAnswer(f"the number',
        tests=(*_ANSWER_TESTS, "limits"),
    ),
    Opening(
        border=_ANSWER,
        what="a decoder's own message is printed unescaped",
        file="kit/model/answer.py",
        old='super().__init__(f"{_escaped(what)}: {beginning(answer)}" if answer else _escaped(what))',
        new='super().__init__(f"{what}: {beginning(answer)}" if answer else what)',
        tests=(*_ANSWER_TESTS, "own_message"),
    ),
    Opening(
        border=_ANSWER,
        what="a message shows a whole answer",
        file="kit/model/answer.py",
        old="cut = answer[:_SHOWN]",
        new="cut = answer",
        tests=(*_ANSWER_TESTS, "beginning_of_an_answer"),
    ),
    Opening(
        border=_ANSWER,
        what="an image has any number of layers that come",
        file="kit/remote/engine/registry.py",
        old="if len(self._whole) + len(self._unknown) > _MOST_LAYERS:",
        new="if self._whole is self._unknown:",
        tests=(*_ENGINE_TESTS, "layers_without_end"),
    ),
)
_READER_TESTS = ("unit/remote/doctor/test_reader.py", "-k")
_EXAMINED = (
    Opening(
        border=_DOCTOR,
        what="a reader's answers have no limit together",
        file="kit/remote/doctor/reader.py",
        old="if self.room < 0:",
        new="if self.room is None:",
        tests=(*_READER_TESTS, "together_the_answers"),
    ),
    Opening(
        border=_DOCTOR,
        what="a pattern of a reader finds any number of files",
        file="kit/remote/doctor/reader.py",
        old="return list(itertools.islice(glob.iglob(pattern), FILES))",
        new="return glob.glob(pattern)",
        tests=(*_READER_TESTS, "no_more_files"),
    ),
    Opening(
        border=_DOCTOR,
        what="a reader waits for all of its reads",
        file="kit/remote/doctor/reader.py",
        old="if events or left <= 0:",
        new="if events:",
        tests=(*_READER_TESTS, "hides_only_itself"),
    ),
    Opening(
        border=_DOCTOR,
        what="a check that fails ends the others",
        file="kit/plan/doctor/judge.py",
        old="        except Exception as error:",
        new="        except LookupError as error:",
        tests=("unit/plan/doctor/test_judge.py", "-k", "hides_no_other"),
    ),
)
_WATCH_TESTS = ("unit/remote/watch/test_watchers.py", "-k")
_WATCHED = (
    Opening(
        border=_TOP,
        what="a number of a reading is of any size",
        file="kit/remote/watch/answers.py",
        old="elif isinstance(value, int | float) and not abs(value) <= MOST:",
        new="elif isinstance(value, int | float) and value != value:",
        tests=(*_WATCH_TESTS, "odd_reading"),
    ),
    Opening(
        border=_TOP,
        what="a list of a reading has any number of entries",
        file="kit/remote/watch/answers.py",
        old="if len(value) > _MOST_ENTRIES:",
        new="if len(value) > MOST_LINE:",
        tests=(*_WATCH_TESTS, "odd_reading"),
    ),
    Opening(
        border=_TOP,
        what="kit top shows names of GPUs as they came",
        file="kit/cli/text/top_tables.py",
        old="_plain(one_line(row.gpu.name))",
        new="_plain(row.gpu.name)",
        tests=("unit/cli/text/test_top.py", "-k", "names_of_a_host"),
    ),
    Opening(
        border=_TOP,
        what="the program of kit top listens",
        file="images/lib/kitwatch/look.py",
        old="        os.set_blocking(1, False)\n",
        new="        os.set_blocking(1, False)\n        import socket\n"
        '        self.door = socket.create_server(("", 0))\n',
        tests=(*_WATCH_TESTS, "listens_nowhere"),
    ),
    Opening(
        border=_TOP,
        what="the program of kit top writes a file",
        file="images/lib/kitwatch/look.py",
        old="        os.set_blocking(1, False)\n",
        new='        os.set_blocking(1, False)\n        open("kitwatch.pid", "w").close()\n',
        tests=(*_WATCH_TESTS, "listens_nowhere"),
    ),
)
_SETUP_TESTS = ("flows/test_setup.py", "-k")
_SET_UP = (
    Opening(
        border=_SETUP,
        what="a section of kit setup has any number of lines",
        file="kit/remote/setup/observe.py",
        old="if len(current) > _MOST_LINES:",
        new="if len(current) > MOST_BYTES:",
        tests=(*_SETUP_TESTS, "without_an_end"),
    ),
    Opening(
        border=_SETUP,
        what="a host reports files outside of /etc to kit setup",
        file="kit/remote/setup/observe.py",
        old='if len(words) not in (2, 3) or not words[0].startswith("/etc/"):',
        new="if len(words) not in (2, 3):",
        tests=(*_SETUP_TESTS, "odd_state"),
    ),
    Opening(
        border=_SETUP,
        what="a word of a host's state is any text",
        file="kit/remote/setup/observe.py",
        old="if value and not _WORD.fullmatch(value):",
        new="if value and len(value) > MOST_BYTES:",
        tests=(*_SETUP_TESTS, "odd_state"),
    ),
)
_LIST_TESTS = ("unit/remote/engine/test_packages.py", "-k")
_LISTED = (
    Opening(
        border=_SBOM,
        what="the container that lists an image may gain privileges",
        file="kit/remote/engine/packages.py",
        old='        security_opt=["no-new-privileges"],\n',
        new="",
        tests=(*_LIST_TESTS, "may_only_read"),
    ),
    Opening(
        border=_SBOM,
        what="the container that lists an image has any number of processes",
        file="kit/remote/engine/packages.py",
        old="        pids_limit=64,\n",
        new="",
        tests=(*_LIST_TESTS, "may_only_read"),
    ),
    Opening(
        border=_SBOM,
        what="paths of an image reach a terminal as they came",
        file="kit/plan/sbom.py",
        old="files = {printable(path): content for path, content in files.items()}",
        new="files = dict(files)",
        tests=("unit/plan/test_sbom.py", "-k", "reaches_no_terminal"),
    ),
    Opening(
        border=_SBOM,
        what="the engine's facts about an image are not checked",
        file="kit/remote/engine/packages.py",
        old="facts: _Facts = convert(engine.api.inspect_image(image.image_id), _Facts)",
        new="facts = _Facts(**{key: value for key, value in engine.api.inspect_image(image.image_id).items()"
        ' if key == "Created"})',
        tests=(*_LIST_TESTS, "odd_facts"),
    ),
)

OPENINGS: tuple[Opening, ...] = (
    *_COPIES,
    *_PASSED,
    *_FED,
    *_ANSWERED,
    *_EXAMINED,
    *_WATCHED,
    *_SET_UP,
    *_LISTED,
)
