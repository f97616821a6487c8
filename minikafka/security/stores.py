"""TLS contexts from Kafka's ssl.* properties: key stores and trust stores as PEM, PKCS12 or JKS, in files or in the properties themselves.

The content of a file decides its format; ssl.keystore.type and ssl.truststore.type are ignored. Java's JCEKS format is refused, with the
command that converts it. The properties follow Apache Kafka's SslConfigs and DefaultSslEngineFactory, and KIP-651 for PEM.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from minikafka.security.errors import SecurityError
from minikafka.security.java_key_store import MAGIC, decrypted, read_java_key_store

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
ENABLED_PROTOCOLS = "TLSv1.2,TLSv1.3"
Properties = Mapping[str, str]


def server_context(properties: Properties) -> ssl.SSLContext:
    """The context of a listener. `properties`: names without the listener's prefix. Raises SecurityError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _common(context, properties)
    if not _load_key(context, properties):
        raise SecurityError("TLS needs ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key")
    client_auth = properties.get("ssl.client.auth", "none").strip().lower()
    if client_auth not in _CLIENT_AUTH:
        raise SecurityError(f"ssl.client.auth={client_auth}: must be none, requested or required")
    if _CLIENT_AUTH[client_auth] != ssl.CERT_NONE:
        _load_trust(context, properties)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    return context


def client_context(properties: Properties) -> ssl.SSLContext:
    """The context of outgoing connections. Without a trust store the system's authorities are trusted. Raises SecurityError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _common(context, properties)
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("", "https"):
        raise SecurityError(f"ssl.endpoint.identification.algorithm={algorithm}: must be https or empty")
    context.check_hostname = bool(algorithm)
    _load_key(context, properties)
    _load_trust(context, properties)
    return context


def _common(context: ssl.SSLContext, properties: Properties) -> None:
    # Java trusts every certificate in the trust store, whether it is a root or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if properties.get("ssl.cipher.suites", "").strip():
        raise SecurityError("ssl.cipher.suites: must be empty, because OpenSSL chooses the cipher suites")
    enabled = [name.strip() for name in properties.get("ssl.enabled.protocols", ENABLED_PROTOCOLS).split(",") if name.strip()]
    unknown = [name for name in enabled if name not in _VERSIONS]
    if unknown or not enabled:
        raise SecurityError(f"ssl.enabled.protocols={','.join(enabled)}: must name some of {', '.join(_VERSIONS)}")
    context.minimum_version = min(_VERSIONS[name] for name in enabled)
    context.maximum_version = max(_VERSIONS[name] for name in enabled)


def _load_key(context: ssl.SSLContext, properties: Properties) -> bool:
    location = properties.get("ssl.keystore.location", "").strip()
    chain, key = properties.get("ssl.keystore.certificate.chain", ""), properties.get("ssl.keystore.key", "")
    password = properties.get("ssl.key.password") or None
    if location:
        what = f"ssl.keystore.location={location}"
        content = _read(what, location)
        if b"-----BEGIN" in content:
            text = _normalized(content.decode("ascii", "replace"))
        else:
            store_password = properties.get("ssl.keystore.password")
            text = _store_key(what, content, store_password, password or store_password)
            password = None
    elif chain.strip() and key.strip():
        what, text = "ssl.keystore.certificate.chain", _normalized(key + "\n" + chain)
    elif chain.strip() or key.strip():
        raise SecurityError("ssl.keystore.certificate.chain and ssl.keystore.key must be set together")
    else:
        return False
    if "PRIVATE KEY-----" not in text or "BEGIN CERTIFICATE-----" not in text:
        raise SecurityError(f"{what}: must contain a private key and the certificates of its chain")
    try:
        with _file_of(text) as path:
            context.load_cert_chain(path, password=_password(what, password))
    except (ssl.SSLError, OSError, ValueError) as error:
        if isinstance(error, SecurityError):
            raise
        reason = getattr(error, "reason", None) or str(error)
        hint = " (ssl.key.password?)" if "ENCRYPTED" in text else ""
        raise SecurityError(f"{what}: the key and its certificate cannot be used: {reason.lower().replace('_', ' ')}{hint}") from error
    return True


def _password(what: str, password: str | None) -> Callable[[], str]:
    def ask() -> str:
        if password is None:
            raise SecurityError(f"{what}: the private key is encrypted; ssl.key.password is missing")
        return password

    return ask


def _load_trust(context: ssl.SSLContext, properties: Properties) -> None:
    location = properties.get("ssl.truststore.location", "").strip()
    inline = properties.get("ssl.truststore.certificates", "")
    if location:
        what = f"ssl.truststore.location={location}"
        content = _read(what, location)
        if b"-----BEGIN" in content:
            text = _normalized(content.decode("ascii", "replace"))
        else:
            text = _store_certificates(what, content, properties.get("ssl.truststore.password"))
    elif inline.strip():
        what, text = "ssl.truststore.certificates", _normalized(inline)
    else:
        context.load_default_certs()
        return
    if "BEGIN CERTIFICATE-----" not in text:
        raise SecurityError(f"{what}: contains no certificate")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(f"{what}: the certificates cannot be read: {error}") from error


def _read(what: str, location: str) -> bytes:
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise SecurityError(f"{what}: {error.strerror or error}") from error
    if content[:4] == _JCEKS_MAGIC:
        raise SecurityError(
            f"{what}: Java's JCEKS format is not supported; convert it: keytool -importkeystore -srckeystore {location}"
            f" -destkeystore {Path(location).stem}.p12 -deststoretype PKCS12"
        )
    return content


def _store_key(what: str, content: bytes, store_password: str | None, key_password: str | None) -> str:
    """PEM of the private key and its chain in a PKCS12 or JKS store."""
    if content[:4] != MAGIC:
        return _pkcs12_key(what, content, store_password, key_password)
    try:
        keys = read_java_key_store(content, store_password or None).keys
        if not keys or not keys[0][1]:
            raise SecurityError(f"{what}: contains no private key with a certificate")
        key, chain = keys[0]
        return _pem("PRIVATE KEY", decrypted(key, key_password or "")) + "".join(_pem("CERTIFICATE", one) for one in chain)
    except SecurityError:
        raise
    except ValueError as error:
        raise SecurityError(f"{what}: the JKS store cannot be read: {error} (ssl.keystore.password, ssl.key.password)") from error


def _store_certificates(what: str, content: bytes, password: str | None) -> str:
    """PEM of the trusted certificates in a PKCS12 or JKS store."""
    if content[:4] != MAGIC:
        return _pkcs12_certificates(what, content, password)
    try:
        return "".join(_pem("CERTIFICATE", one) for one in read_java_key_store(content, password or None).certificates)
    except ValueError as error:
        raise SecurityError(f"{what}: the JKS store cannot be read: {error} (ssl.truststore.password)") from error


def _pem(kind: str, der: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n"


def _pkcs12_key(what: str, content: bytes, store_password: str | None, key_password: str | None) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        key, certificate, more = pkcs12.load_key_and_certificates(content, _bytes(store_password if store_password else key_password))
    except ValueError as error:
        raise SecurityError(f"{what}: neither PEM nor a PKCS12 store that ssl.keystore.password opens: {error}") from error
    if key is None or certificate is None:
        raise SecurityError(f"{what}: contains no private key with a certificate")
    encoding = serialization.Encoding.PEM
    parts = [key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())]
    parts += [one.public_bytes(encoding) for one in (certificate, *more)]
    return b"".join(parts).decode()


def _pkcs12_certificates(what: str, content: bytes, password: str | None) -> str:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store = pkcs12.load_pkcs12(content, _bytes(password))
    except ValueError as error:
        raise SecurityError(f"{what}: neither PEM nor a PKCS12 store that ssl.truststore.password opens: {error}") from error
    found = [one.certificate for one in ([store.cert] if store.cert is not None else []) + list(store.additional_certs)]
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in found).decode()


def _bytes(password: str | None) -> bytes | None:
    return password.encode() if password else None


def _normalized(text: str) -> str:
    """The PEM blocks of a text with proper line breaks: properties files lose line ends, or write them as \\n."""
    blocks = []
    for kind, body in _PEM.findall(text.replace("\\n", "\n")):
        if ":" in body:  # an old encrypted key has headers, whose line breaks matter
            blocks.append(f"-----BEGIN {kind}-----{body}-----END {kind}-----\n")
            continue
        data = "".join(body.split())
        lines = "\n".join(data[at : at + 64] for at in range(0, len(data), 64))
        blocks.append(f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n")
    return "".join(blocks)


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[str]:
    """A temporary file with this content, readable only by this user."""
    import tempfile

    handle, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def certificate_warning(properties: Properties) -> str | None:
    """A warning if the certificate of a key store is not valid now, or None."""
    from cryptography import x509

    location = properties.get("ssl.keystore.location", "").strip()
    text = properties.get("ssl.keystore.certificate.chain", "")
    with contextlib.suppress(OSError, ValueError):
        if location:
            content = Path(location).read_bytes()
            text = content.decode("ascii", "replace")
            if "-----BEGIN" not in text:
                password = properties.get("ssl.keystore.password")
                text = _store_key("", content, password, properties.get("ssl.key.password") or password)
        found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", _normalized(text), re.DOTALL)
        if found is None:
            return None
        certificate = x509.load_pem_x509_certificate(found[0].encode())
        now, name = datetime.now(UTC), certificate.subject.rfc4514_string()
        if now > certificate.not_valid_after_utc:
            return f"the certificate {name} expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"
        if now < certificate.not_valid_before_utc:
            return f"the certificate {name} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d} on"
    return None
