from __future__ import annotations

from pathlib import Path

from kit.remote.machine.trust import elsewhere, extra_certificates, proxy_arguments


def certificate(body: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def test_only_what_the_distribution_does_not_ship_is_extra(tmp_path: Path) -> None:
    (tmp_path / "mozilla").mkdir()
    (tmp_path / "mozilla" / "one.crt").write_text(certificate("AAAA\nBBBB"))
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(certificate("AAAA\r\nBBBB") + "# a proxy's\n" + certificate("CCCC") + certificate("CCCC"))
    extra = extra_certificates({}, bundles=(str(bundle), "/nowhere"), distribution=tmp_path)
    assert extra.decode() == certificate("CCCC")


def test_the_environment_names_more_bundles(tmp_path: Path) -> None:
    mine = tmp_path / "mine.pem"
    mine.write_text(certificate("DDDD"))
    assert b"DDDD" in extra_certificates({"SSL_CERT_FILE": str(mine)}, bundles=(), distribution=tmp_path / "none")
    assert b"DDDD" in extra_certificates({"REQUESTS_CA_BUNDLE": str(mine)}, bundles=(), distribution=tmp_path / "none")


def test_a_private_key_in_a_bundle_stays_where_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine.pem"
    mine.write_text("-----BEGIN PRIVATE KEY-----\nEEEE\n-----END PRIVATE KEY-----\n" + certificate("FFFF"))
    extra = extra_certificates({"SSL_CERT_FILE": str(mine)}, bundles=(), distribution=tmp_path / "none")
    assert extra.decode() == certificate("FFFF")


def test_proxies_become_build_arguments() -> None:
    environ = {"http_proxy": "http://p:3128", "NO_PROXY": "localhost", "https_proxy": "", "HOME": "/root"}
    assert proxy_arguments(environ) == {"http_proxy": "http://p:3128", "NO_PROXY": "localhost"}


def test_a_proxy_on_loopback_is_of_no_use_elsewhere() -> None:
    given = {
        "http_proxy": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://user:pw@localhost:3128", "all_proxy": "[::1]:1",
        "https_proxy": "http://proxy.example.com:3128", "no_proxy": "localhost,127.0.0.1",
    }  # fmt: skip
    assert elsewhere(given) == {"https_proxy": "http://proxy.example.com:3128", "no_proxy": "localhost,127.0.0.1"}
