"""Variables and files that hold what opens a store, for tests. All secrets have `s3cret` in them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kit.config.datasource import source
from kit.remote.data.access import Access
from kit.remote.data.credentials import access_of

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----"
AWS_KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s3cret-value"}
OSS_KEYS = {"OSS_ACCESS_KEY_ID": "LTAI", "OSS_ACCESS_KEY_SECRET": "s3cret-value"}
SERVICE = json.dumps({"type": "service_account", "private_key": "-----BEGIN\ns3cret-value\n"}, indent=1)
LOGIN = json.dumps(
    {"type": "authorized_user", "client_id": "id", "client_secret": "s3cret-value", "refresh_token": "refresh"}
)
CREDENTIALS = """
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = s3cret-value
[team]
aws_access_key_id=AKIATEAM
aws_secret_access_key=s3cret/%+value
aws_session_token=token
"""
CONFIG = """
[default]
region = eu-west-1
[profile team]
region = us-west-2
endpoint_url = https://minio.example.com:9000
[profile sso]
sso_start_url = https://example.awsapps.com/start
[profile assumed]
role_arn = arn:aws:iam::1:role/x
source_profile = default
"""
AWS_FILES = {"~/.aws/credentials": CREDENTIALS, "~/.aws/config": CONFIG}
RCLONE_CONF = """
# a comment
[minio]
type = s3
provider = Minio
access_key_id = AKIA
secret_access_key = s3cret-value=with:signs
endpoint = https://minio.example.com

[secret-box]
type = crypt
remote = minio:bucket/box
password = 0bscured-s3cret
password2 = ; not a comment

[all]
type = union
upstreams = minio:a secret-box:b:ro "odd name:c"

[odd name]
type = sftp
host = example.com
user = ann
pass = 0bscured

[google]
type = google cloud storage
service_account_file = ~/key.json

[keyed]
type = sftp
host = example.com
key_file = ~/.ssh/id

[here]
type = local
[pointer]
type = alias
remote = /srv/data
[lost]
type = alias
remote = nobody:x
[Minio]
type = s3
[twins]
type = union
upstreams = minio:a Minio:b
"""
RCLONE_FILES = {"~/.config/rclone/rclone.conf": RCLONE_CONF, "~/key.json": SERVICE}


def access(text: str, environ: Mapping[str, str], files: Mapping[str, str] | None = None) -> Access:
    return access_of(source(text), environ, (files or {}).get)
