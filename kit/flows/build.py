"""`kit image build`: makes the image that the spec defines on this machine's engine, unless it is there."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from kit.events import HostDone, HostStep, Note, Reporter
from kit.model.spec import ImageSpec
from kit.plan.image import CA_PATH, image_content, needed_bases
from kit.remote.assets import read_images
from kit.remote.engine import BuildStep, Engine
from kit.remote.trust import extra_certificates, proxy_arguments

# What the reporter calls this task: it is on no host.
TASK = "image"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageResult:
    """The image: `image_id` is sha256:…; `built` is False when it was there; `seconds` is the flow's time."""

    tag: str
    image_id: str
    size_bytes: int
    built: bool
    seconds: float


def build_image(spec: ImageSpec, *, reporter: Reporter, force: bool = False) -> ImageResult:
    """Builds `spec`'s image; `force` builds every step anew. Raises InputError, UnreachableError and ImageError."""
    start = time.monotonic()
    content = image_content(spec, read_images())
    engine = Engine.connect()
    try:
        image = None if force else engine.image(content.tag)
        built = image is None
        if image is None:
            for base in needed_bases(content):
                if engine.image(base) is None:
                    reporter.report(HostStep(host=TASK, text=f"pulling {base}"))
                    engine.pull(base)
            certificates = extra_certificates(os.environ)
            if certificates:
                count = certificates.count(b"BEGIN CERTIFICATE")
                reporter.report(Note(text=f"the build trusts {count} certificates of this machine; the image will not"))

            def on_step(step: BuildStep) -> None:
                text = f"step {step.number}/{step.total} {step.instruction}"
                reporter.report(HostStep(host=TASK, text=text, fraction=step.number / step.total))

            image = engine.build(
                content,
                beside={CA_PATH: certificates},
                arguments=proxy_arguments(os.environ),
                on_step=on_step,
                fresh=force,
            )
        reporter.report(HostDone(host=TASK, text=f"{content.tag} ({'built' if built else 'unchanged'})"))
        return ImageResult(
            tag=content.tag,
            image_id=image.image_id,
            size_bytes=image.size_bytes,
            built=built,
            seconds=time.monotonic() - start,
        )
    finally:
        engine.close()
