"""What rclone's messages mean, as rclone and stores write them, and that no secret of the settings is in a text."""

from __future__ import annotations

import pytest

from tests.fakes import launcher

complaints = launcher.load("kitdata.complaints")

ENV = {
    "RCLONE_CONFIG_KIT_TYPE": "azureblob",
    "RCLONE_CONFIG_KIT_KEY": "c2VjcmV0LWtleQ==",
    "RCLONE_CONFIG_KIT_SAS_URL": "https://me.blob.core.windows.net/?sig=topsecret",
    "RCLONE_CONFIG_KIT_REGION": "eu-west-1",
    "RCLONE_CONFIG_KIT_SERVICE_ACCOUNT_CREDENTIALS": '{\n"private_key": "-----BEGIN"\n}',
}
S3 = "operation error S3: ListObjectsV2, https response error StatusCode: {}, RequestID: , HostID: , api error {}"


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (S3.format(403, "AccessDenied: Access Denied"), "source-refused", "may not read it (AccessDenied)"),
        (S3.format(403, "Forbidden: Forbidden"), "source-refused", "these credentials may not read it (Forbidden)"),
        (S3.format(400, "ExpiredToken: x"), "source-refused", "the session token has expired (ExpiredToken)"),
        (S3.format(400, "InvalidToken: x"), "source-refused", "the session token is wrong (InvalidToken)"),
        (S3.format(403, "RequestTimeTooSkewed: x"), "source-refused", "of this host is wrong (RequestTimeTooSkewed)"),
        (S3.format(404, "NoSuchBucket: x"), "source-missing", "s3://b is not there (NoSuchBucket)"),
        (S3.format(503, "SlowDown: x"), "source-lost", "too many requests (SlowDown)"),
        (
            "get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found",
            "source-refused",
            "there are no credentials, and this host has no role that the store knows",
        ),
        (
            'Get "https://me/c?sig=topsecret": dial tcp 10.0.0.1:443: connect: connection refused',
            "source-lost",
            "s3://b does not answer: the connection is refused",
        ),
        ("read tcp 1.2.3.4: i/o timeout", "source-lost", "s3://b does not answer: nothing came within the time limit"),
        (
            "googleapi: Error 403: x does not have storage.objects.list access, forbidden",
            "source-refused",
            "these credentials may not read it",
        ),
        ("googleapi: Error 404: The specified bucket does not exist.", "source-missing", "s3://b is not there"),
        ('oauth2: "invalid_grant" "Invalid JWT Signature."', "source-refused", "the credentials are wrong"),
        (
            "RESPONSE 403: 403 Server failed to authenticate the request.\nERROR CODE: AuthenticationFailed",
            "source-refused",
            "the credentials are wrong (AuthenticationFailed)",
        ),
        ("RESPONSE 404: 404\nERROR CODE: ContainerNotFound", "source-missing", "is not there (ContainerNotFound)"),
        ("HTTP Error: 404 Not Found", "source-missing", "s3://b is not there"),
        ("HTTP Error: 401 Unauthorized", "source-refused", "these credentials may not read it"),
        ("http: server gave HTTP response to HTTPS client", "source-lost", "the endpoint has no TLS"),
        ("2026/11/23 14:18:49 NOTICE: Failed: odd", "source-lost", "s3://b cannot be read: Failed: odd"),
        ("", "source-lost", "s3://b cannot be read: no reason given"),
    ],
)
def test_messages(message: str, kind: str, text: str) -> None:
    error = complaints.meaning(message, "s3://b", ENV)
    assert error.kind == kind
    assert error.text.endswith(text)
    assert error.text.startswith("s3://b ")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("key c2VjcmV0LWtleQ== is odd", "key *** is odd"),
        ("at https://me.blob.core.windows.net/?sig=topsecret now", "at *** now"),
        ("at https://me.blob/x?sig=other&a=b: failed", "at https://me.blob/x failed"),
        ("at https://ann:pw@host/x", "at https://host/x"),
        ('bad "private_key": "-----BEGIN" here', "bad *** here"),
        ("region eu-west-1", "region eu-west-1"),
        ("2026/11/23 14:18:49 ERROR : a\x1b[31mb\rc", "a [31mb c"),
    ],
)
def test_secrets_are_not_shown(message: str, text: str) -> None:
    assert complaints.clean(message, ENV) == text
