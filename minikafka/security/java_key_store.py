"""Reads Java's older key stores, JKS (`keytool -storetype JKS`, and every .jks file from before Java 9).

The format is that of sun.security.provider.JavaKeyStore: entries, then a SHA-1 of a password, a constant and the entries. Private keys are
encrypted with a key stream of SHA-1 (KeyProtector). Stores with secret keys (JCEKS) are another format.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from minikafka.late_dataclass import dataclass

MAGIC = b"\xfe\xed\xfe\xed"
_WHITENER = b"Mighty Aphrodite"
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_DIGEST_BYTES = 20
#: 1.3.6.1.4.1.42.2.17.1.1, the algorithm of Sun's KeyProtector, as DER.
_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
_SEQUENCE, _OCTET_STRING = 0x30, 0x04


@dataclass(slots=True, frozen=True)
class JavaKeyStore:
    """What a store holds, as DER: `keys` are (encrypted private key, chain) in the order of the file, `certificates` those that are
    trusted."""

    keys: list[tuple[bytes, list[bytes]]]
    certificates: list[bytes]


def read_java_key_store(content: bytes, password: str | None) -> JavaKeyStore:
    """The store. Without a password its checksum is not verified, as in Java. Raises ValueError."""
    entries, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + entries, usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, expected):
            raise ValueError("the password is wrong, or the store is damaged")
    reader = _Reader(entries)
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError("no JKS store")
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise ValueError(f"JKS of version {version}")
    found = JavaKeyStore([], [])
    for _ in range(count):
        tag = reader.number()
        reader.text()  # the alias
        reader.take(8)  # when it was made
        if tag == _PRIVATE_KEY:
            key = reader.block()
            found.keys.append((key, [reader.certificate(version) for _ in range(reader.number())]))
        elif tag == _CERTIFICATE:
            found.certificates.append(reader.certificate(version))
        else:
            raise ValueError(f"an entry of the unknown kind {tag}")
    return found


def decrypted(key: bytes, password: str) -> bytes:
    """A private key of a store as PKCS8, DER. Raises ValueError."""
    algorithm, sealed = _encrypted_private_key(key)
    if not algorithm.startswith(_KEY_PROTECTOR):
        raise ValueError("the private key is encrypted with another algorithm than JKS has")
    if len(sealed) < 2 * _DIGEST_BYTES:
        raise ValueError("the private key is too short")
    secret = password.encode("utf-16-be")
    salt, text, check = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    stream, block = b"", salt
    while len(stream) < len(text):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(text, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise ValueError("the password of the private key is wrong")
    return plain


class _Reader:
    """Reads big-endian values from the front of `data`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """So many bytes. Raises ValueError at the end."""
        if count > len(self._data) - self._at:
            raise ValueError("the store is cut off")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self) -> int:
        """A u32."""
        return int.from_bytes(self.take(4), "big")

    def text(self) -> bytes:
        """Bytes behind their number as u16."""
        return self.take(struct.unpack(">H", self.take(2))[0])

    def block(self) -> bytes:
        """Bytes behind their number as u32."""
        return self.take(self.number())

    def certificate(self, version: int) -> bytes:
        """DER of an X.509 certificate; since version 2 its kind comes first."""
        kind = self.text() if version == 2 else b"X.509"
        if kind != b"X.509":
            raise ValueError(f"a certificate of the kind {kind.decode(errors='replace')}")
        return self.block()


def _encrypted_private_key(der: bytes) -> tuple[bytes, bytes]:
    """Content of the algorithm identifier, and the encrypted bytes, of an EncryptedPrivateKeyInfo (PKCS8)."""
    outer = _Reader(_tagged(_Reader(der), _SEQUENCE))
    return _tagged(outer, _SEQUENCE), _tagged(outer, _OCTET_STRING)


def _tagged(reader: _Reader, tag: int) -> bytes:
    """The content of the next DER value, which has this tag."""
    if reader.take(1)[0] != tag:
        raise ValueError("the private key is not an EncryptedPrivateKeyInfo")
    length = reader.take(1)[0]
    if length >= 0x80:
        length = int.from_bytes(reader.take(length - 0x80), "big")
    return reader.take(length)
