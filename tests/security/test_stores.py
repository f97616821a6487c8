"""Key stores and trust stores: PEM in files and in properties, PKCS12, and what is said about everything else."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from minikafka.security.errors import SecurityError
from minikafka.security.principals import distinguished_name, principal_mapper
from minikafka.security.stores import certificate_warning, client_context, server_context

CA = trustme.CA(organization_name="tests")
SERVER = CA.issue_cert("localhost", "127.0.0.1", common_name="broker", organization_name="tests")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; the client's side of it. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [here, there]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return here
    raise AssertionError("the handshake does not end")


def keystore(path: Path, *, password: bytes | None = None) -> Path:
    key = serialization.load_pem_private_key(SERVER.private_key_pem.bytes(), None)
    encryption: Any = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    path.write_bytes(text + b"".join(part.bytes() for part in SERVER.cert_chain_pems))
    return path


def truststore(path: Path) -> Path:
    CA.cert_pem.write_to_path(str(path))
    return path


def test_pem_files(tmp_path: Path) -> None:
    server = server_context({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore(tmp_path / "key.pem"))})
    client = client_context({"ssl.truststore.location": str(truststore(tmp_path / "ca.pem"))})
    assert shake_hands(server, client).version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client, "elsewhere")


def test_host_names_are_not_checked_when_the_algorithm_is_empty(tmp_path: Path) -> None:
    server = server_context({"ssl.keystore.location": str(keystore(tmp_path / "key.pem"))})
    properties = {"ssl.truststore.location": str(truststore(tmp_path / "ca.pem")), "ssl.endpoint.identification.algorithm": ""}
    shake_hands(server, client_context(properties), "elsewhere")


@pytest.mark.parametrize("mangle", [lambda text: text, lambda text: text.replace("\n", "\\n"), lambda text: text.replace("\n", " ")])
def test_pem_in_properties_survives_what_properties_files_do_to_line_ends(mangle: Any) -> None:
    chain = mangle("".join(part.bytes().decode() for part in SERVER.cert_chain_pems))
    key = mangle(SERVER.private_key_pem.bytes().decode())
    server = server_context({"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key})
    shake_hands(server, client_context({"ssl.truststore.certificates": mangle(CA.cert_pem.bytes().decode())}))


def test_encrypted_key(tmp_path: Path) -> None:
    path = str(keystore(tmp_path / "key.pem", password=b"secret"))
    server_context({"ssl.keystore.location": path, "ssl.key.password": "secret"})
    with pytest.raises(SecurityError, match=r"ssl\.key\.password is missing"):
        server_context({"ssl.keystore.location": path})
    with pytest.raises(SecurityError, match=r"\(ssl.key.password\?\)") as wrong:
        server_context({"ssl.keystore.location": path, "ssl.key.password": "hunter2"})
    assert "hunter2" not in str(wrong.value)


def test_pkcs12(tmp_path: Path) -> None:
    key: Any = serialization.load_pem_private_key(SERVER.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(SERVER.cert_chain_pems[0].bytes())
    authority = x509.load_pem_x509_certificate(CA.cert_pem.bytes())
    encryption = serialization.BestAvailableEncryption(b"changeit")
    (tmp_path / "key.p12").write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, certificate, [authority], encryption))
    (tmp_path / "ca.p12").write_bytes(pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"ca")], encryption))
    server = server_context({"ssl.keystore.location": str(tmp_path / "key.p12"), "ssl.keystore.password": "changeit"})
    client = client_context({"ssl.truststore.location": str(tmp_path / "ca.p12"), "ssl.truststore.password": "changeit"})
    shake_hands(server, client)
    with pytest.raises(SecurityError, match=r"ssl\.keystore\.password opens"):
        server_context({"ssl.keystore.location": str(tmp_path / "key.p12"), "ssl.keystore.password": "wrong"})


def test_errors_about_unusable_files(tmp_path: Path) -> None:
    (tmp_path / "key.jceks").write_bytes(b"\xce\xce\xce\xce\0\0\0\2")
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(SecurityError, match=r"keytool -importkeystore"):
        server_context({"ssl.keystore.location": str(tmp_path / "key.jceks")})
    with pytest.raises(SecurityError, match=r"neither PEM nor a PKCS12 store"):
        server_context({"ssl.keystore.location": str(tmp_path / "none.pem")})
    with pytest.raises(SecurityError, match=r"No such file"):
        server_context({"ssl.keystore.location": str(tmp_path / "missing.pem")})
    with pytest.raises(SecurityError, match=r"private key and the certificates"):
        server_context({"ssl.keystore.location": str(truststore(tmp_path / "ca.pem"))})
    with pytest.raises(SecurityError, match=r"TLS needs ssl\.keystore\.location"):
        server_context({})
    with pytest.raises(SecurityError, match=r"ssl\.enabled\.protocols"):
        client_context({"ssl.enabled.protocols": "TLSv9"})
    with pytest.raises(SecurityError, match=r"ssl\.cipher\.suites"):
        client_context({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA"})


def test_versions_without_overlap(tmp_path: Path) -> None:
    server = server_context({"ssl.keystore.location": str(keystore(tmp_path / "key.pem")), "ssl.enabled.protocols": "TLSv1.3"})
    client = client_context({"ssl.truststore.location": str(truststore(tmp_path / "ca.pem")), "ssl.enabled.protocols": "TLSv1.2"})
    with pytest.raises(ssl.SSLError):
        shake_hands(server, client)


def test_an_expired_certificate_is_said_at_the_start(tmp_path: Path) -> None:
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    old = CA.issue_cert("localhost", not_after=past, common_name="old")
    path = tmp_path / "old.pem"
    old.private_key_and_cert_chain_pem.write_to_path(str(path))
    assert "expired at" in (certificate_warning({"ssl.keystore.location": str(path)}) or "")
    assert certificate_warning({"ssl.keystore.location": str(keystore(tmp_path / "key.pem"))}) is None


def der_of(*attributes: x509.NameAttribute) -> bytes:
    key = serialization.load_pem_private_key(SERVER.private_key_pem.bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    name = x509.Name(list(attributes))
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    from cryptography.hazmat.primitives import hashes

    signed = builder.not_valid_before(now).not_valid_after(now).sign(key, hashes.SHA256())  # type: ignore[arg-type]
    return signed.public_bytes(serialization.Encoding.DER)


def test_distinguished_names_are_those_of_java() -> None:
    oid = x509.NameOID
    found = distinguished_name(
        der_of(
            x509.NameAttribute(oid.COUNTRY_NAME, "DE"),
            x509.NameAttribute(oid.STATE_OR_PROVINCE_NAME, "Bayern"),
            x509.NameAttribute(oid.ORGANIZATION_NAME, "Acme, Inc."),
            x509.NameAttribute(oid.ORGANIZATIONAL_UNIT_NAME, "R+D"),
            x509.NameAttribute(oid.COMMON_NAME, "alice"),
        )
    )
    assert found == r"CN=alice,OU=R\+D,O=Acme\, Inc.,ST=Bayern,C=DE"
    mail = distinguished_name(der_of(x509.NameAttribute(oid.EMAIL_ADDRESS, "a@b.c"), x509.NameAttribute(oid.COMMON_NAME, "bob")))
    assert mail == "CN=bob,1.2.840.113549.1.9.1=#1605614062" + "2e63"


def test_principal_mapping_rules() -> None:
    name = "CN=Alice,OU=Sales,O=Acme"
    assert principal_mapper("DEFAULT")(name) == name
    assert principal_mapper("RULE:^CN=(.*?),.*$/$1/")(name) == "Alice"
    assert principal_mapper("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L")(name) == "alice@sales"
    assert principal_mapper("RULE:^CN=(.*?),OU=Ops.*$/$1/, RULE:^CN=(.*?),.*$/$1/U,DEFAULT")(name) == "ALICE"
    assert principal_mapper("RULE:^CN=bob.*$/bob/")(name) is None
    assert principal_mapper("RULE:^CN=bob.*$/bob/,DEFAULT")(name) == name
    for wrong in ("RULE:abc", "RULE:(/x/", "RULE:a/b/X", "nonsense"):
        with pytest.raises(SecurityError):
            principal_mapper(wrong)
