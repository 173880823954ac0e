"""How hosts read Google Cloud Storage, Azure Blob Storage and web servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import unquote

from kit.errors import InputError
from kit.model.data import DataSource
from kit.remote.data.access import Access, Read, both, certificates, joined, settings

_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS"
_GCLOUD = "application_default_credentials.json"


def gs_access(source: DataSource, environ: Mapping[str, str], read: Read) -> Access:
    """Return the access to gs://: a service account, your gcloud login, or the service account of each host."""
    path = environ.get(_GOOGLE, "")
    text = read(path) if path else None
    if path and text is None:
        raise InputError(f"{_GOOGLE} names the file {path}, which is missing", hint=f"correct {_GOOGLE}, or unset it")
    if text is None:
        path = f"{environ.get('CLOUDSDK_CONFIG') or '~/.config/gcloud'}/{_GCLOUD}"
        text = read(path)
    if text is None:
        options = {"env_auth": "true"}
        by = f"kit reads {source.text} with the service account of each host: this machine has no credentials for it."
    else:
        options = _google(path, text)
        by = f"kit reads {source.text} with the credentials in {path}."
    return Access(
        remote=joined(source.place, source.path),
        settings=settings("google cloud storage", **options),
        ca=certificates("RCLONE_CA_CERT", environ, read),
        by=by,
    )


def _google(path: str, text: str) -> dict[str, str]:
    try:
        credentials = json.loads(text)
        kind = credentials["type"]
        if kind == "service_account":
            # One line: it is the value of a variable.
            return {"service_account_credentials": json.dumps(credentials)}
        if kind == "authorized_user":
            # rclone gets a token at once, because this one is out of date.
            token = {"access_token": "-", "token_type": "Bearer", "expiry": "2000-01-01T00:00:00Z"}
            token["refresh_token"] = credentials["refresh_token"]
            return {
                "client_id": credentials["client_id"],
                "client_secret": credentials["client_secret"],
                "token": json.dumps(token),
            }
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{path} has no credentials of Google Cloud", hint=f"set {_GOOGLE} to the key file of a service account"
        ) from None
    raise InputError(
        f"{path} has credentials of the type {kind}, which kit cannot give to the hosts",
        hint=f"set {_GOOGLE} to the key file of a service account",
    )


def azure_access(source: DataSource, environ: Mapping[str, str], read: Read) -> Access:
    """Return the access to azure://, with the variables of Azure's command-line tool, or the identity of each host."""
    options, by = _azure(source, environ)
    return Access(
        remote=joined(source.place, source.path),
        settings=settings("azureblob", **options),
        ca=certificates("RCLONE_CA_CERT", environ, read),
        by=f"kit reads {source.text} with {by}.",
    )


def _azure(source: DataSource, environ: Mapping[str, str]) -> tuple[dict[str, str], str]:
    connection = environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    if connection:
        return {"connection_string": connection}, "AZURE_STORAGE_CONNECTION_STRING"
    account = environ.get("AZURE_STORAGE_ACCOUNT", "")
    if not account:
        raise InputError(
            f"kit does not know the storage account of {source.text}",
            hint="set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN",
        )
    key = environ.get("AZURE_STORAGE_KEY", "")
    if key:
        return {"account": account, "key": key}, "AZURE_STORAGE_KEY"
    token = environ.get("AZURE_STORAGE_SAS_TOKEN", "").removeprefix("?")
    if token:
        url = f"https://{account}.blob.core.windows.net/{source.place}?{token}"
        return {"sas_url": url}, "AZURE_STORAGE_SAS_TOKEN"
    client = both("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", environ)
    if client is not None:
        tenant = environ.get("AZURE_TENANT_ID", "")
        if not tenant:
            raise InputError("AZURE_CLIENT_ID is set, but AZURE_TENANT_ID is not", hint="set AZURE_TENANT_ID as well")
        options = {"account": account, "tenant": tenant, "client_id": client[0], "client_secret": client[1]}
        return options, "the service principal in AZURE_CLIENT_ID"
    return {"account": account, "use_msi": "true"}, "the identity of each host: this machine has no key for it"


def web_access(source: DataSource, environ: Mapping[str, str], read: Read) -> Access:
    """Return the access to a web server. It needs no credentials."""
    scheme = source.text.split("://", 1)[0]
    return Access(
        remote=joined("", unquote(source.path)),
        settings=settings("http", url=f"{scheme}://{source.place}"),
        ca=certificates("RCLONE_CA_CERT", environ, read),
        by=f"kit reads {source.text} without credentials.",
    )
