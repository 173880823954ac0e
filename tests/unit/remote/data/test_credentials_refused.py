"""What kit says when the access to a store is missing or cannot be used: what is wrong, and what to write."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from tests.fakes.credentials import AWS_FILES, AWS_KEYS, OSS_KEYS, RCLONE_CONF, RCLONE_FILES, access

REFUSED = [
    ("s3://b/", {"AWS_ACCESS_KEY_ID": "A"}, {}, "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not"),
    ("s3://b/", {"AWS_SECRET_ACCESS_KEY": "s3cret"}, {}, "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not"),
    (
        "s3://b/",
        {"AWS_PROFILE": "nobody"},
        AWS_FILES,
        "AWS_PROFILE names the profile nobody, which is in no file of AWS",
    ),
    ("s3://b/", {"AWS_PROFILE": "sso"}, AWS_FILES, "your AWS profile sso has no keys: it gets them by sso_start_url"),
    (
        "s3://b/",
        {"AWS_PROFILE": "assumed"},
        AWS_FILES,
        "your AWS profile assumed has no keys: it gets them by role_arn",
    ),
    (
        "s3://b/",
        {**AWS_KEYS, "AWS_ENDPOINT_URL": "minio:9000"},
        {},
        "the endpoint of s3://b/ is 'minio:9000', which is no URL",
    ),
    ("s3://b/", {}, {"~/.aws/config": "nonsense"}, "kit cannot read ~/.aws/config: it is no file of AWS"),
    ("s3://b/", {**AWS_KEYS, "AWS_CA_BUNDLE": "/x"}, {}, "AWS_CA_BUNDLE names the file /x, which is missing"),
    (
        "s3://b/",
        {**AWS_KEYS, "AWS_CA_BUNDLE": "/x"},
        {"/x": "s3cret"},
        "AWS_CA_BUNDLE names the file /x, which has no certificate",
    ),
    ("oss://b/", {"OSS_REGION": "x"}, {}, "oss://b/ needs keys, and this machine's environment has none"),
    ("oss://b/", OSS_KEYS, {}, "kit does not know the region of oss://b/"),
    ("oss://b/", {"OSS_ACCESS_KEY_SECRET": "s3cret"}, {}, "OSS_ACCESS_KEY_SECRET is set, but OSS_ACCESS_KEY_ID is not"),
    (
        "gs://b/",
        {"GOOGLE_APPLICATION_CREDENTIALS": "/k"},
        {},
        "GOOGLE_APPLICATION_CREDENTIALS names the file /k, which is missing",
    ),
    ("gs://b/", {"GOOGLE_APPLICATION_CREDENTIALS": "/k"}, {"/k": "s3cret"}, "/k has no credentials of Google Cloud"),
    (
        "gs://b/",
        {"GOOGLE_APPLICATION_CREDENTIALS": "/k"},
        {"/k": '["s3cret"]'},
        "/k has no credentials of Google Cloud",
    ),
    (
        "gs://b/",
        {"GOOGLE_APPLICATION_CREDENTIALS": "/k"},
        {"/k": '{"type": "external_account"}'},
        "/k has credentials of the type external_account, which kit cannot give to the hosts",
    ),
    ("azure://b/", {"AZURE_STORAGE_KEY": "s3cret"}, {}, "kit does not know the storage account of azure://b/"),
    (
        "azure://b/",
        {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s3cret"},
        {},
        "AZURE_CLIENT_ID is set, but AZURE_TENANT_ID is not",
    ),
    (
        "rclone:nobody:x",
        {},
        {"~/.rclone.conf": "[one]\ntype = s3\n[two]\ntype = s3\n"},
        "your rclone has no remote nobody; it has: one, two",
    ),
    ("rclone:nobody:x", {}, {}, "your rclone has no remote nobody; it has: none"),
    (
        "rclone:minio:x",
        {},
        {"~/.rclone.conf": "# Encrypted rclone configuration File\n\nRCLONE_ENCRYPT_V0:\ns3cret"},
        "~/.rclone.conf is encrypted, and kit does not ask for its password",
    ),
    (
        "rclone:here:x",
        {},
        RCLONE_FILES,
        "rclone:here:x reads files of this machine: the remote here is of the type local",
    ),
    ("rclone:pointer:x", {}, RCLONE_FILES, "the rclone remote pointer reads /srv/data, a folder of this machine"),
    (
        "rclone:keyed:x",
        {},
        RCLONE_FILES,
        "the rclone remote keyed needs the file ~/.ssh/id (key_file), which the hosts do not have",
    ),
    ("rclone:twins:x", {}, RCLONE_FILES, "the rclone remotes minio and Minio differ only in case"),
    (
        "rclone:google:x",
        {},
        {"~/.rclone.conf": RCLONE_CONF},
        "the rclone remote google needs the file ~/key.json, which is missing",
    ),
]


@pytest.mark.parametrize(("text", "environ", "files", "message"), REFUSED, ids=lambda value: None)
def test_what_is_missing_is_said_with_what_to_write(
    text: str, environ: dict[str, str], files: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        access(text, environ, files)
    assert str(caught.value) == message
    assert caught.value.hint
    assert "s3cret" not in f"{caught.value}{caught.value.hint}"
