"""NCCL's plugin as kit.yaml names it."""

from __future__ import annotations

import pytest

from kit.config.yaml import load_spec
from kit.errors import InputError
from kit.model.nccl import PluginImage, plugin_image
from kit.model.registry import name_of
from kit.model.spec import NcclSpec

DIGEST = "sha256:" + "d" * 64
GOOGLE = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.6"


@pytest.mark.parametrize(
    ("text", "image", "path", "digest"),
    [
        (f"{GOOGLE}:/var/lib/tcpx/lib64", GOOGLE, "/var/lib/tcpx/lib64", ""),
        ("ofi:/opt/lib", "docker.io/library/ofi:latest", "/opt/lib", ""),
        ("acme/ofi:1.9:/opt//lib/./", "docker.io/acme/ofi:1.9", "/opt/lib", ""),
        ("localhost:5000/ofi:/lib", "localhost:5000/ofi:latest", "/lib", ""),
        ("localhost:5000/ofi:1:/a b", "localhost:5000/ofi:1", "/a b", ""),
        (f"nvcr.io/x@{DIGEST}:/lib", f"nvcr.io/x@{DIGEST}", "/lib", DIGEST),
        (f"nvcr.io/x:1@{DIGEST}:/lib", f"nvcr.io/x:1@{DIGEST}", "/lib", DIGEST),
    ],
)
def test_a_folder_in_an_image(text: str, image: str, path: str, digest: str) -> None:
    assert plugin_image(text) == PluginImage(image=image, path=path, digest=digest)
    assert load_spec(f"nccl: {{plugin: '{text}'}}", source="kit.yaml").nccl == NcclSpec(plugin=text)
    assert NcclSpec(plugin=text).folder is None


def test_a_folder_of_the_vms() -> None:
    assert plugin_image("/opt/x") is None
    assert NcclSpec(plugin="/opt/x").folder == "/opt/x"
    assert (NcclSpec().image, NcclSpec().folder) == (None, None)


@pytest.mark.parametrize(
    ("plugin", "message", "write"),
    [
        ("nvcr.io/nvidia/nccl-plugin:1", "names no folder", "nvcr.io/nvidia/nccl-plugin:1:/FOLDER"),
        (f"nvcr.io/x@{DIGEST}", "names no folder", f"x@{DIGEST}:/FOLDER"),
        ("./plugin", "is neither a folder of the VMs nor one in an image", "write the whole path, /FOLDER of the VMs"),
        ("~/plugin", "is neither a folder of the VMs nor one in an image", "IMAGE:/FOLDER"),
        ("ofi:1:lib", "is neither a folder", "IMAGE:/FOLDER"),
        ("docker://acme/ofi:1:/lib", "begins with docker://", "write acme/ofi:1:/lib"),
        ("docker://acme/ofi:1", "begins with docker://", "write IMAGE:/FOLDER"),
        ("docker://ann:s3cret@acme/ofi:1:/lib", "begins with docker://", "write IMAGE:/FOLDER"),
        ("Acme/ofi:1:/lib", "'Acme/ofi:1' is not the name of an image", "the name in lower case"),
        ("-v:/lib", "'-v' is not the name of an image", "write NAME:TAG:/FOLDER"),
        ("nvcr.io/x@sha256:12:/lib", "is not the name of an image", "write NAME:TAG:/FOLDER"),
        ("ofi:1:/lib/../..", "has .. in its folder", "write the folder without .."),
        ("ofi:1:/", "is the whole image", "ofi:1:/opt/aws-ofi-nccl/lib"),
        ("ofi:1:/" + "x" * 1024, "longer than 1,024", "IMAGE:/FOLDER"),
        ("/opt/a:ro", "has a colon", ""),
        ("/opt/kit", "kit's own folder", ""),
    ],
)
def test_what_is_neither(plugin: str, message: str, write: str) -> None:
    with pytest.raises(InputError) as error:
        load_spec(f"name: lab\nnccl: {{plugin: '{plugin}'}}", source="kit.yaml")
    assert "kit.yaml:2" in str(error.value)
    assert message in str(error.value)
    assert write in (error.value.hint or "")


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("kit:1", "kit"),
        ("localhost:5000/kit", "localhost:5000/kit"),
        ("r.example.com:5000/team/kit:cpu-01", "r.example.com:5000/team/kit"),
        (f"localhost:5000/kit:1@{DIGEST}", "localhost:5000/kit"),
    ],
)
def test_the_name_of_an_image_without_what_chooses_one(reference: str, name: str) -> None:
    assert name_of(reference) == name
