"""Remotes of the operator's own rclone configuration: what goes to the hosts, and that their rclone can use it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kit.config.datasource import source
from kit.errors import InputError
from kit.remote.data.credentials import request_of
from tests.fakes import launcher
from tests.fakes.credentials import RCLONE_CONF, RCLONE_FILES, SERVICE, access
from tests.integration.store import KEY, RCLONE, SECRET, store
from tests.sockets import own_addresses

rclone = launcher.load("kitdata.rclone")


def test_an_encrypted_remote_over_s3_is_read_with_what_goes_to_the_hosts(tmp_path: Path) -> None:
    with store(tmp_path / "store", own_addresses(1)[0], fast=True) as running:
        (tmp_path / "set").mkdir()
        (tmp_path / "set/one").write_bytes(b"not encrypted here")
        password = subprocess.run([RCLONE, "obscure", "s3cret"], capture_output=True, check=True, text=True).stdout
        # rclone's server reports two times for a file that comes over S3, so this one is written into its folder.
        local = tmp_path / "local.conf"
        local.write_text(f"[box]\ntype = crypt\nremote = {running.bucket}/box\npassword = {password}\n")
        upload = [RCLONE, "--config", str(local), "copy", str(tmp_path / "set"), "box:set"]
        subprocess.run(upload, check=True, capture_output=True)
        config = tmp_path / "rclone.conf"
        config.write_text(
            f"[my-store]\ntype = s3\nprovider = Other\nendpoint = {running.url}\n"
            f"access_key_id = {KEY}\nsecret_access_key = {SECRET}\n"
            f"[box]\ntype = crypt\nremote = my-store:data/box\npassword = {password}\n"
        )
        environ = {"RCLONE_CONFIG": str(config), "RCLONE_CA_CERT": str(running.ca)}
        request = request_of(source("rclone:box:set"), environ)
        data = rclone.Rclone(request["remote"], request["env"], request["label"], ca=request["ca"], program=RCLONE)
        try:
            (entry,) = data.entries()
            assert (entry.path, entry.size) == ("one", 18)
            assert data.read(entry, 4, 9) == b"encrypted"
        finally:
            data.close()


@pytest.mark.parametrize(
    ("text", "environ", "files", "wanted", "by"),
    [
        (
            "rclone:minio:bucket/a",
            {},
            RCLONE_FILES,
            {"MINIO"},
            "your rclone remote minio (~/.config/rclone/rclone.conf).",
        ),
        (
            "rclone:secret-box:a",
            {},
            RCLONE_FILES,
            {"SECRET-BOX", "MINIO"},
            "your rclone remote secret-box and the remotes that it names (minio) (~/.config/rclone/rclone.conf).",
        ),
        (
            "rclone:all:",
            {"RCLONE_CONFIG": "/own.conf"},
            {"/own.conf": RCLONE_CONF},
            {"ALL", "MINIO", "SECRET-BOX", "ODD NAME"},
            "your rclone remote all and the remotes that it names (minio, secret-box, odd name) (/own.conf).",
        ),
        (
            "rclone:google:b",
            {"XDG_CONFIG_HOME": "/xdg"},
            {"/xdg/rclone/rclone.conf": RCLONE_CONF, "~/key.json": SERVICE},
            {"GOOGLE"},
            "your rclone remote google (/xdg/rclone/rclone.conf).",
        ),
        (
            "rclone:fresh:b",
            {"RCLONE_CONFIG_FRESH_TYPE": "s3", "RCLONE_CONFIG_FRESH_ENV_AUTH": "true"},
            {},
            {"FRESH"},
            "your rclone remote fresh (variables RCLONE_CONFIG_FRESH_*).",
        ),
    ],
    ids=["one", "crypt", "union", "google", "variables"],
)
def test_a_remote_comes_with_all_that_it_names(
    text: str, environ: dict[str, str], files: dict[str, str], wanted: set[str], by: str
) -> None:
    found = access(text, environ, files)
    names = {
        name.removeprefix("RCLONE_CONFIG_").removesuffix("_TYPE") for name in found.settings if name.endswith("TYPE")
    }
    assert names == wanted
    assert found.by == f"kit reads {text} with {by}"
    assert found.remote == text.removeprefix("rclone:")
    assert "s3cret" not in repr(found)


def test_variables_win_over_the_file_and_obscured_passwords_stay() -> None:
    changed = {"RCLONE_CONFIG_MINIO_ACCESS_KEY_ID": "OTHER"}
    found = access("rclone:secret-box:", changed, RCLONE_FILES).settings
    assert found["RCLONE_CONFIG_MINIO_ACCESS_KEY_ID"].reveal() == b"OTHER"
    assert found["RCLONE_CONFIG_SECRET-BOX_PASSWORD"].reveal() == b"0bscured-s3cret"


def test_the_key_file_of_google_goes_as_its_content() -> None:
    found = access("rclone:google:b", {}, RCLONE_FILES).settings
    assert "RCLONE_CONFIG_GOOGLE_SERVICE_ACCOUNT_FILE" not in found
    content = found["RCLONE_CONFIG_GOOGLE_SERVICE_ACCOUNT_CREDENTIALS"].reveal().decode()
    assert json.loads(content) == json.loads(SERVICE)
    assert "\n" not in content


def test_a_remote_that_is_named_but_missing() -> None:
    with pytest.raises(InputError, match="your rclone has no remote nobody"):
        access("rclone:lost:x", {}, RCLONE_FILES)
