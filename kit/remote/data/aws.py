"""How hosts read S3, and stores that speak its language: from the variables and files of AWS's own tools."""

from __future__ import annotations

import configparser
from collections.abc import Mapping

from msgspec import Struct

from kit.errors import InputError
from kit.model.data import DataSource
from kit.remote.data.access import Access, Read, both, certificates, joined, settings

# rclone's providers, by the end of an endpoint's host. Others are "Other".
_PROVIDERS = {
    "amazonaws.com": "AWS",
    "amazonaws.com.cn": "AWS",
    "aliyuncs.com": "Alibaba",
    "r2.cloudflarestorage.com": "Cloudflare",
    "storage.googleapis.com": "GCS",
}
_KEY, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
# Of ossutil, and of Alibaba Cloud's SDKs.
_OSS = (
    ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"),
    ("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"),
)
# Profiles with one of these get their keys from somewhere else.
_ELSEWHERE = ("credential_process", "role_arn", "sso_session", "sso_start_url", "login_session")


class _Profile(Struct, frozen=True, kw_only=True):
    name: str
    values: Mapping[str, str]
    there: bool


def s3_access(source: DataSource, environ: Mapping[str, str], read: Read) -> Access:
    """Return the access to s3://. Keys of the environment win over those of a profile, as AWS's tools have it."""
    profile = _profile(environ, read)
    endpoint = (
        environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or profile.values.get("endpoint_url", "")
    )
    if endpoint and not endpoint.startswith(("https://", "http://")):
        raise InputError(
            f"the endpoint of {source.text} is {endpoint!r}, which is no URL",
            hint="set AWS_ENDPOINT_URL to https://HOST or https://HOST:PORT",
        )
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or profile.values.get("region", "")
    options = {"provider": _provider(endpoint), "endpoint": endpoint, "region": region}
    keys, by = _keys(source, environ, profile)
    return Access(
        remote=joined(source.place, source.path),
        settings=settings("s3", **options, **keys),
        ca=certificates("AWS_CA_BUNDLE", environ, read),
        by=by,
    )


def oss_access(source: DataSource, environ: Mapping[str, str], read: Read) -> Access:
    """Return the access to oss://, with the variables of ossutil or of Alibaba Cloud's SDKs."""
    sets = [names for names in _OSS if both(*names[:2], environ)]
    if not sets:
        raise InputError(
            f"{source.text} needs keys, and this machine's environment has none",
            hint="set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET",
        )
    key, secret, token = sets[0]
    endpoint = environ.get("OSS_ENDPOINT", "")
    region = environ.get("OSS_REGION") or environ.get("ALIBABA_CLOUD_REGION_ID", "")
    if not endpoint and not region:
        raise InputError(
            f"kit does not know the region of {source.text}",
            hint="set OSS_REGION (for example cn-hangzhou) or OSS_ENDPOINT",
        )
    return Access(
        remote=joined(source.place, source.path),
        settings=settings(
            "s3",
            provider="Alibaba",
            endpoint=endpoint or f"oss-{region.removeprefix('oss-')}.aliyuncs.com",
            access_key_id=environ[key],
            secret_access_key=environ[secret],
            session_token=environ.get(token, ""),
        ),
        ca=certificates("RCLONE_CA_CERT", environ, read),
        by=f"kit reads {source.text} with the keys in {key} and {secret}.",
    )


def _provider(endpoint: str) -> str:
    if not endpoint:
        return "AWS"
    host = endpoint.split("://", 1)[1].split("/", 1)[0].rsplit(":", 1)[0]
    names = (name for end, name in _PROVIDERS.items() if host == end or host.endswith(f".{end}"))
    return next(names, "Other")


def _keys(source: DataSource, environ: Mapping[str, str], profile: _Profile) -> tuple[dict[str, str], str]:
    """Return the options that open the store, and the sentence about them."""
    keys = both(_KEY, _SECRET, environ)
    if keys is not None:
        options = {"access_key_id": keys[0], "secret_access_key": keys[1], "session_token": environ.get(_TOKEN, "")}
        return options, f"kit reads {source.text} with the keys in {_KEY} and {_SECRET}."
    if "aws_access_key_id" in profile.values and "aws_secret_access_key" in profile.values:
        options = {
            "access_key_id": profile.values["aws_access_key_id"],
            "secret_access_key": profile.values["aws_secret_access_key"],
            "session_token": profile.values.get("aws_session_token", ""),
        }
        return options, f"kit reads {source.text} with the keys of your AWS profile {profile.name}."
    elsewhere = next((name for name in _ELSEWHERE if name in profile.values), None)
    if elsewhere is not None:
        raise InputError(
            f"your AWS profile {profile.name} has no keys: it gets them by {elsewhere}",
            hint=f'eval "$(aws configure export-credentials --profile {profile.name} --format env)"',
        )
    if environ.get("AWS_PROFILE") and not profile.there:
        raise InputError(
            f"AWS_PROFILE names the profile {profile.name}, which is in no file of AWS",
            hint="correct AWS_PROFILE, or unset it",
        )
    return {"env_auth": "true"}, f"kit reads {source.text} with the role of each host: this machine has no keys for it."


def _profile(environ: Mapping[str, str], read: Read) -> _Profile:
    """Return the values of the profile in both files of AWS; those of the credentials file win."""
    name = environ.get("AWS_PROFILE") or "default"
    files = (
        (environ.get("AWS_CONFIG_FILE") or "~/.aws/config", name if name == "default" else f"profile {name}"),
        (environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials", name),
    )
    values: dict[str, str] = {}
    there = False
    for path, section in files:
        parser = configparser.RawConfigParser(strict=False, default_section="")
        try:
            parser.read_string(read(path) or "", source=path)
        except configparser.Error:
            raise InputError(
                f"kit cannot read {path}: it is no file of AWS", hint="check it: aws configure list"
            ) from None
        if parser.has_section(section):
            there = True
            values |= parser.items(section)
    return _Profile(name=name, values=values, there=there)
