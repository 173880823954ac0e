"""Which settings the hosts' rclone gets for each store, from which variable or file."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

import pytest

from kit.config.datasource import source
from kit.errors import InputError
from kit.remote.data.access import Access, certificates, read_file
from kit.remote.data.credentials import to_request
from tests.fakes.credentials import AWS_FILES, AWS_KEYS, CONFIG, CREDENTIALS, LOGIN, OSS_KEYS, PEM, SERVICE, access
from tests.integration.store import RCLONE


def options(found: Access) -> dict[str, str]:
    """Return the settings of the remote `kit`, by rclone's names."""
    prefix = "RCLONE_CONFIG_KIT_"
    assert all(name.startswith(prefix) for name in found.settings)
    return {name.removeprefix(prefix).lower(): value.reveal().decode() for name, value in found.settings.items()}


TABLE = [
    (
        "s3://bucket/a/b",
        AWS_KEYS,
        {},
        {"type": "s3", "provider": "AWS", "access_key_id": "AKIA", "secret_access_key": "s3cret-value"},
        "with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    (
        "s3://bucket/",
        {
            **AWS_KEYS,
            "AWS_SESSION_TOKEN": "token",
            "AWS_DEFAULT_REGION": "cn-north-1",
            "AWS_ENDPOINT_URL": "https://no",
            "AWS_ENDPOINT_URL_S3": "https://abc.r2.cloudflarestorage.com",
            "AWS_PROFILE": "team",
        },
        AWS_FILES,
        {
            "type": "s3",
            "provider": "Cloudflare",
            "endpoint": "https://abc.r2.cloudflarestorage.com",
            "region": "cn-north-1",
            "access_key_id": "AKIA",
            "secret_access_key": "s3cret-value",
            "session_token": "token",
        },
        "with the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    ),
    (
        "s3://bucket/",
        {},
        AWS_FILES,
        {
            "type": "s3",
            "provider": "AWS",
            "region": "eu-west-1",
            "access_key_id": "AKIADEFAULT",
            "secret_access_key": "s3cret-value",
        },
        "with the keys of your AWS profile default.",
    ),
    (
        "s3://bucket/",
        {"AWS_PROFILE": "team"},
        AWS_FILES,
        {
            "type": "s3",
            "provider": "Other",
            "endpoint": "https://minio.example.com:9000",
            "region": "us-west-2",
            "access_key_id": "AKIATEAM",
            "secret_access_key": "s3cret/%+value",
            "session_token": "token",
        },
        "with the keys of your AWS profile team.",
    ),
    (
        "s3://bucket/",
        {"AWS_SHARED_CREDENTIALS_FILE": "/c", "AWS_CONFIG_FILE": "/d", "AWS_REGION": "eu-north-1"},
        {"/c": CREDENTIALS, "/d": CONFIG},
        {
            "type": "s3",
            "provider": "AWS",
            "region": "eu-north-1",
            "access_key_id": "AKIADEFAULT",
            "secret_access_key": "s3cret-value",
        },
        "with the keys of your AWS profile default.",
    ),
    (
        "s3://bucket/",
        {},
        {},
        {"type": "s3", "provider": "AWS", "env_auth": "true"},
        "with the role of each host: this machine has no keys for it.",
    ),
    (
        "oss://bucket/x",
        {**OSS_KEYS, "OSS_REGION": "cn-hangzhou", "OSS_SESSION_TOKEN": "token"},
        {},
        {
            "type": "s3",
            "provider": "Alibaba",
            "endpoint": "oss-cn-hangzhou.aliyuncs.com",
            "access_key_id": "LTAI",
            "secret_access_key": "s3cret-value",
            "session_token": "token",
        },
        "with the keys in OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET.",
    ),
    (
        "oss://bucket/",
        {
            "ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI",
            "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "s3cret-value",
            "OSS_ENDPOINT": "oss-cn-beijing-internal.aliyuncs.com",
        },
        {},
        {
            "type": "s3",
            "provider": "Alibaba",
            "endpoint": "oss-cn-beijing-internal.aliyuncs.com",
            "access_key_id": "LTAI",
            "secret_access_key": "s3cret-value",
        },
        "with the keys in ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET.",
    ),
    (
        "gs://bucket/",
        {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"},
        {"/key.json": SERVICE},
        {"type": "google cloud storage", "service_account_credentials": json.dumps(json.loads(SERVICE))},
        "with the credentials in /key.json.",
    ),
    (
        "gs://bucket/",
        {},
        {"~/.config/gcloud/application_default_credentials.json": LOGIN},
        {
            "type": "google cloud storage",
            "client_id": "id",
            "client_secret": "s3cret-value",
            "token": '{"access_token": "-", "token_type": "Bearer", "expiry": "2000-01-01T00:00:00Z", '
            '"refresh_token": "refresh"}',
        },
        "with the credentials in ~/.config/gcloud/application_default_credentials.json.",
    ),
    (
        "gs://bucket/",
        {"CLOUDSDK_CONFIG": "/gcloud"},
        {},
        {"type": "google cloud storage", "env_auth": "true"},
        "with the service account of each host: this machine has no credentials for it.",
    ),
    (
        "azure://container/x",
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountKey=s3cret-value", "AZURE_STORAGE_ACCOUNT": "other"},
        {},
        {"type": "azureblob", "connection_string": "AccountKey=s3cret-value"},
        "with AZURE_STORAGE_CONNECTION_STRING.",
    ),
    (
        "azure://container/",
        {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_STORAGE_KEY": "s3cret-value", "AZURE_STORAGE_SAS_TOKEN": "x"},
        {},
        {"type": "azureblob", "account": "me", "key": "s3cret-value"},
        "with AZURE_STORAGE_KEY.",
    ),
    (
        "azure://container/x",
        {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=s3cret-value"},
        {},
        {
            "type": "azureblob",
            "sas_url": "https://me.blob.core.windows.net/container?sv=1&sig=s3cret-value",
        },
        "with AZURE_STORAGE_SAS_TOKEN.",
    ),
    (
        "azure://container/",
        {
            "AZURE_STORAGE_ACCOUNT": "me",
            "AZURE_TENANT_ID": "t",
            "AZURE_CLIENT_ID": "c",
            "AZURE_CLIENT_SECRET": "s3cret-value",
        },
        {},
        {"type": "azureblob", "account": "me", "tenant": "t", "client_id": "c", "client_secret": "s3cret-value"},
        "with the service principal in AZURE_CLIENT_ID.",
    ),
    (
        "azure://container/",
        {"AZURE_STORAGE_ACCOUNT": "me"},
        {},
        {"type": "azureblob", "account": "me", "use_msi": "true"},
        "with the identity of each host: this machine has no key for it.",
    ),
    (
        "https://example.com:8443/sets/a%20b/",
        {},
        {},
        {"type": "http", "url": "https://example.com:8443"},
        "without credentials.",
    ),
]


@pytest.mark.parametrize(("text", "environ", "files", "wanted", "by"), TABLE, ids=lambda value: None)
def test_settings_of_each_source(
    text: str, environ: dict[str, str], files: dict[str, str], wanted: dict[str, str], by: str
) -> None:
    found = access(text, environ, files)
    assert options(found) == wanted
    assert found.by == f"kit reads {text} {by}"
    assert found.ca == ""
    # Nothing that prints an access may show what opens the store.
    assert "s3cret" not in repr(found) + str(found) + found.by
    assert to_request(source(text), found) == {
        "kind": "rclone",
        "remote": found.remote,
        "env": {f"RCLONE_CONFIG_KIT_{name.upper()}": value for name, value in wanted.items()},
        "label": text,
    }


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        ("s3://bucket/", "kit:bucket"),
        ("s3://bucket/a/b/", "kit:bucket/a/b"),
        ("https://example.com/a%20b/c.tar", "kit:a b/c.tar"),
        ("https://example.com/", "kit:"),
    ],
)
def test_what_rclone_reads(text: str, remote: str) -> None:
    assert access(text, AWS_KEYS).remote == remote


@functools.cache
def rclone_options() -> dict[str, set[str]]:
    """Return the options of each type of remote, as rclone itself lists them."""
    listed = subprocess.run([RCLONE, "--config", "", "config", "providers"], capture_output=True, check=True).stdout
    return {found["Name"]: {option["Name"] for option in found["Options"]} for found in json.loads(listed)}


@pytest.mark.parametrize("wanted", [row[3] for row in TABLE], ids=lambda value: str(value["type"]))
def test_rclone_has_every_option_and_provider_that_kit_sets(wanted: dict[str, str]) -> None:
    assert wanted.keys() - {"type"} <= rclone_options()[wanted["type"]]


def test_rclone_has_every_provider_that_kit_names() -> None:
    help_text = subprocess.run([RCLONE, "help", "backend", "s3"], capture_output=True, check=True, text=True).stdout
    for provider in ("AWS", "Alibaba", "Cloudflare", "GCS", "Other"):
        assert f'- "{provider}"' in help_text


def test_only_certificates_leave_a_bundle() -> None:
    key = "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----"
    text = f"# mine\n{PEM}\n{key}\n{PEM}\n"
    assert certificates("AWS_CA_BUNDLE", {"AWS_CA_BUNDLE": "/x"}, {"/x": text}.get) == f"{PEM}\n{PEM}\n"
    found = access("s3://b/", {**AWS_KEYS, "AWS_CA_BUNDLE": "/x"}, {"/x": text})
    assert to_request(source("s3://b/"), found)["ca"] == f"{PEM}\n{PEM}\n"


def test_files_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "some").write_text("text")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
    assert read_file("~/some") == "text"
    assert read_file("~/missing") is None
    for name in ("binary", "large"):
        with pytest.raises(InputError) as caught:
            read_file(f"~/{name}")
        assert name in str(caught.value)
        assert caught.value.hint
