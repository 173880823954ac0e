"""What a build gets of this machine, and on which engines kit builds its own flavors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kit.errors import ImageError
from kit.events import HostStep, Note, Warned
from kit.flows.image.build import build_with, report_steps
from kit.model.spec import ClusterSpec, ImageSpec
from kit.remote.engine.build import BuildStep
from kit.remote.engine.client import EngineImage
from tests.fakes.reporter import Remembering


class FakeEngine:
    """An engine that has every base, and builds whatever it is given."""

    host: str | None = None

    def __init__(self, arch: str = "amd64") -> None:
        self.arch = arch
        self.arguments: Mapping[str, str] = {}

    def image(self, name: str) -> EngineImage | None:
        return None if name.startswith("kit:") else EngineImage(image_id="sha256:1", size_bytes=1, arch=self.arch)

    def build(self, _content: Any, *, arguments: Mapping[str, str], **_more: Any) -> EngineImage:
        self.arguments = arguments
        return EngineImage(image_id="sha256:2", size_bytes=1, arch=self.arch)


CPU = ClusterSpec(image=ImageSpec(flavour="cpu"))


@pytest.mark.parametrize("host", [None, "gpu1"])
def test_a_proxy_on_the_loopback_is_left_out_and_named(host: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:7890")
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    engine, reporter = FakeEngine(), Remembering()
    engine.host = host
    build_with(engine, CPU, reporter=reporter)  # type: ignore[arg-type]
    assert "http_proxy" not in engine.arguments
    assert engine.arguments["https_proxy"] == "http://proxy.example.com:3128"
    notes = [event.text for event in reporter.events if isinstance(event, Note)]
    assert "the build does without http_proxy: it cannot reach this machine's loopback" in notes


def test_a_flavor_of_kit_is_not_built_on_another_processor() -> None:
    with pytest.raises(ImageError, match="the flavor cpu is for x86-64, and this engine is for arm64") as caught:
        build_with(FakeEngine("arm64"), CPU, reporter=Remembering())  # type: ignore[arg-type]
    assert "flavour: ssh-layer" in str(caught.value.hint)


def test_your_own_base_may_be_for_any_processor() -> None:
    spec = ClusterSpec(image=ImageSpec(flavour="ssh-layer", base="team/base:1"))
    assert build_with(FakeEngine("arm64"), spec, reporter=Remembering()).built  # type: ignore[arg-type]


def test_a_base_that_kit_yaml_names_by_digest_is_that_image_or_none() -> None:
    class WithoutRegistry(FakeEngine):
        def image(self, name: str) -> EngineImage | None:
            return None if "@" in name else super().image(name)

        def pull(self, name: str, **_: object) -> None:
            raise ImageError(f"{name} cannot be pulled")

    def never(question: str) -> bool:
        raise AssertionError(question)

    spec = ClusterSpec(image=ImageSpec(flavour="ssh-layer", base=f"team/base@sha256:{'ab' * 32}"))
    with pytest.raises(ImageError, match="cannot be pulled"):
        build_with(WithoutRegistry(), spec, reporter=Remembering(), consent=never)  # type: ignore[arg-type]


def test_an_image_that_is_there_but_has_an_older_base_is_kept_with_a_warning() -> None:
    class Present(FakeEngine):
        def image(self, name: str) -> EngineImage | None:
            layers = ("a", "b") if name.startswith("kit:") else ("c",)
            return EngineImage(image_id="sha256:1", size_bytes=1, arch=self.arch, layers=layers)

    spec = ClusterSpec(image=ImageSpec(flavour="ssh-layer", base="team/base:1"))
    engine, reporter = Present(), Remembering()
    assert not build_with(engine, spec, reporter=reporter).built  # type: ignore[arg-type]
    assert [event.hint for event in reporter.events if isinstance(event, Warned)] == [
        "to build it on the new one: kit image build --force, kit down --images, kit deploy; "
        "with another tag for each build of your base, kit deploy is enough"
    ]


@pytest.mark.parametrize(
    ("host", "commands"),
    [
        (None, "kit down --images, then kit deploy"),
        # The new image goes from the head, too. So the build comes after it.
        ("gpu1", "kit down --images (which also removes it from gpu1), kit image build --force, then kit deploy"),
    ],
)
def test_an_image_that_is_built_again_says_how_it_reaches_all_hosts(host: str | None, commands: str) -> None:
    class Present(FakeEngine):
        def image(self, name: str) -> EngineImage | None:
            return EngineImage(image_id="sha256:1", size_bytes=1, arch=self.arch)

    engine, reporter = Present(), Remembering()
    engine.host = host
    assert build_with(engine, CPU, reporter=reporter, force=True).built  # type: ignore[arg-type]
    hints = [event.hint for event in reporter.events if isinstance(event, Warned)]
    assert hints == [f"to replace it there: {commands}"]


def test_no_step_shows_a_login() -> None:
    reporter = Remembering()
    report_steps(reporter, "image")(BuildStep(number=2, total=3, instruction="RUN pip install https://a:s3cret@h/x"))
    (step,) = [event for event in reporter.events if isinstance(event, HostStep)]
    assert step.text == "step 2/3 RUN pip install https://…@h/x"
