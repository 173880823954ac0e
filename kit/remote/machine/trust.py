"""What this machine needs to reach the network: proxies, and certificates beyond its distribution's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_DISTRIBUTION = Path("/usr/share/ca-certificates")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL)
_LOOPBACK = re.compile(r"(^|//|@)(localhost|127\.[0-9.]+|\[::1\])(:|/|$)")
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


def extra_certificates(
    environ: Mapping[str, str], *, bundles: tuple[str, ...] = _BUNDLES, distribution: Path = _DISTRIBUTION
) -> bytes:
    """Return the certificates of this machine's bundles that its distribution does not ship, as PEM; b"" if none.

    The bundles are those in SSL_CERT_FILE and REQUESTS_CA_BUNDLE, and the system's. If it is unknown what the
    distribution ships, the result is all of them. It contains certificates only, whatever else a bundle has.
    """
    named = [environ[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE") if environ.get(name)]
    shipped = {
        _body(certificate) for path in sorted(distribution.rglob("*.crt")) for certificate in _certificates(path)
    }
    extra = {
        _body(certificate): certificate
        for path in (*named, *bundles)
        for certificate in _certificates(Path(path))
        if _body(certificate) not in shipped
    }
    return b"".join(certificate + b"\n" for certificate in extra.values())


def proxy_arguments(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies of `environ` as build arguments, which an engine keeps out of the image."""
    names = [*_PROXIES, *(name.upper() for name in _PROXIES)]
    return {name: environ[name] for name in names if environ.get(name)}


def elsewhere(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the `proxy_arguments` that work elsewhere: without those on this machine's loopback."""
    return {
        name: value for name, value in arguments.items() if "no_proxy" in name.lower() or not _LOOPBACK.search(value)
    }


def _certificates(path: Path) -> list[bytes]:
    try:
        return _CERTIFICATE.findall(path.read_bytes())
    except OSError:
        return []


def _body(certificate: bytes) -> bytes:
    return b"".join(certificate.split())
